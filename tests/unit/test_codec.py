"""The manifest file: what is encoded is decoded, wherever the sections are; what is broken is named."""

import struct

import pytest

from lakefold_protos.lance.table_pb2 import DataFragment, IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests import codec
from lakefold_table.lance.manifests.codec import decode_file, decode_head, head_length, head_transaction
from lakefold_table.lance.manifests.fragments import Fragments
from tests.encoding import encode_file, fragments_of

UNKNOWN = b"\x9a\x3f\x03abc"
INDEX = IndexSection()
INDEX.indices.add(name="a_idx", fields=[0])


def transaction() -> Transaction:
    transaction = Transaction(read_version=4, uuid="u", transaction_properties={"b": "2", "a": "1"})
    transaction.append.fragments.add(physical_rows=3)
    return transaction


def head() -> Manifest:
    manifest = Manifest(version=5, max_fragment_id=2, config={"k": "v"}, table_metadata={"m": "n"})
    manifest.fields.add(name="a", id=0, parent_id=-1, logical_type="int64")
    return manifest


def fragments() -> Fragments:
    listed = [DataFragment(id=number, physical_rows=3) for number in range(3)]
    return fragments_of([fragment.SerializeToString() for fragment in listed])


def file(index: bytes = b"") -> bytes:
    return b"".join(encode_file(head(), fragments(), index, transaction()))


def section(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def with_footer(body: bytes, offset: int, *, major: int = 0, minor: int = 2, magic: bytes = b"LANC") -> bytes:
    return body + struct.pack("<QHH4s", offset, major, minor, magic)


@pytest.mark.parametrize("index", [b"", INDEX.SerializeToString()], ids=["no index", "index"])
def test_a_file_is_decoded_as_it_was_encoded(index: bytes) -> None:
    decoded = decode_file(file(index))
    expected = head()
    expected.transaction_section = 0
    if index:
        expected.index_section = 4 + len(transaction().SerializeToString(deterministic=True))
    assert decoded.head == expected
    assert decoded.fragments == fragments()
    assert decoded.index_section == index
    assert decoded.transaction == transaction()
    read, made_by = decode_head(file(index))
    assert (read.version, made_by) == (5, transaction())


def test_the_transaction_is_first() -> None:
    start = file()
    assert head_transaction(start) == transaction()
    assert head_transaction(start[: head_length(start)]) == transaction()
    assert head_transaction(start[: head_length(start) - 1]) is None


@pytest.mark.parametrize(
    "start", [b"", b"abc", b"\0\0\0\0", b"\0\0\0\0rest", b"\xff\xff\xff\xffx", b"\x01\0\0\0\xff"]
)
def test_other_bytes_hold_no_transaction(start: bytes) -> None:
    assert head_transaction(start) is None


def test_the_same_content_gives_the_same_bytes() -> None:
    manifest, other = head(), head()
    manifest.table_metadata["z"] = other.config["z"] = "1"
    other.table_metadata["z"] = manifest.config["z"] = "1"
    files = [
        b"".join(encode_file(manifest, fragments(), b"", transaction())) for manifest in (manifest, other)
    ]
    assert files[0] == files[1]


def test_pylance_s_order_and_its_older_field_are_read() -> None:
    """Index, transaction, manifest; the transaction's offset in field 23 or, before version 14, in 21."""
    index, change = section(INDEX.SerializeToString()), section(transaction().SerializeToString())
    for field in ("transaction_section", "transaction_section_before_14"):
        manifest = head()
        manifest.index_section = 7
        setattr(manifest, field, 7 + len(index))
        body = b"padding" + index + change
        decoded = decode_file(with_footer(body + section(manifest.SerializeToString()), len(body)))
        assert decoded.transaction == transaction()
        assert decoded.index_section == INDEX.SerializeToString()


def test_a_file_without_transaction() -> None:
    data = with_footer(section(head().SerializeToString()), 0)
    assert decode_file(data).transaction is None
    read, made_by = decode_head(data)
    assert (read.version, made_by) == (5, None)


def test_unknown_fields_survive() -> None:
    fragment = b"\x08\x07" + UNKNOWN
    message = head().SerializeToString() + b"\x12" + bytes([len(fragment)]) + fragment + UNKNOWN
    decoded = decode_file(with_footer(section(message), 0))
    again = b"".join(encode_file(decoded.head, decoded.fragments, b"", transaction()))
    assert again.count(UNKNOWN) == 2
    assert [fragment.id for fragment in decode_file(again).fragments] == [7]


GOOD = file(INDEX.SerializeToString())
MANIFEST = section(head().SerializeToString())


def broken_offset(field: str, offset: int) -> bytes:
    manifest = head()
    setattr(manifest, field, offset)
    return with_footer(section(manifest.SerializeToString()), 0)


BROKEN = {
    "empty": (b"", "too short"),
    "footer only": (GOOD[-16:], "too short"),
    "cut at its end": (GOOD[:-1], "doesn't end with LANC"),
    "cut at its start": (GOOD[5:], "manifest"),
    "other magic": (with_footer(MANIFEST, 0, magic=b"LANX"), "doesn't end with LANC"),
    "offset beyond": (with_footer(MANIFEST, 2**64 - 1), "starts at byte"),
    "offset at the footer": (with_footer(MANIFEST, len(MANIFEST)), "starts at byte"),
    "a gap before the footer": (with_footer(MANIFEST + b"x", 0), "doesn't end where the footer starts"),
    "longer than the file": (with_footer(struct.pack("<I", 9999) + b"x", 0), "reaches beyond the file"),
    "not a manifest": (with_footer(section(b"\xff" * 9), 0), "manifest can't be decoded"),
    "broken fragment": (with_footer(section(b"\x12\x02\x08\xff"), 0), "fragment can't be decoded"),
    "unordered fragments": (with_footer(section(b"\x12\x02\x08\x05" * 2), 0), "must ascend"),
    "text that is none": (with_footer(section(b"\x42\x02\xff\xfe"), 0), "manifest can't be decoded"),
    "index beyond": (broken_offset("index_section", 9999), "index section starts at byte"),
    "index inside": (broken_offset("index_section", 1), "index section"),
    "transaction beyond": (broken_offset("transaction_section", 2**63), "transaction section starts at"),
    "old transaction beyond": (broken_offset("transaction_section_before_14", 99), "transaction section"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_damage_with_a_reason(data: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message) as caught:
        decode_file(data, "memory://t/_versions/1.manifest")
    assert caught.value.where == "memory://t/_versions/1.manifest"


def test_a_section_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_SECTION", 100)
    many = fragments_of([DataFragment(id=n, physical_rows=3).SerializeToString() for n in range(100)])
    with pytest.raises(InvalidError, match=r"the manifest of .* bytes is larger than 100") as caught:
        encode_file(head(), many, b"", transaction())
    assert "compact" in caught.value.hint
