"""The manifest file, byte by byte (Lance facts 2.1 and 2.2): sections, manifest, a footer of 16 bytes.

A version we publish begins with its transaction section, so that one read of the file's head tells what
changed, whatever the size of the table. Others put it elsewhere; reading goes by the offsets that the
manifest names.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, Message

from lakefold_protos.lance.table_pb2 import IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.allocation import check_allocated
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.expansion import check_expansion, most_parts
from lakefold_table.lance.manifests.chunks import CHUNK_BYTES, Chunk
from lakefold_table.lance.manifests.fragments import Fragments, Gathering
from lakefold_table.lance.manifests.neighbours import Neighbour
from lakefold_table.lance.manifests.packed import without_fragments
from lakefold_table.wire import Run, runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_table.lance.manifests.packed import Packed
    from lakefold_table.storage.base import Buffer

M = TypeVar("M", bound=Message)

MAGIC = b"LANC"
MAJOR, MINOR = 0, 2
FOOTER = struct.Struct("<QHH4s")
LENGTH = struct.Struct("<I")
MAX_SECTION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest file taken apart.

    `head` is the Manifest message without its fragments; `fragments` holds those. `index_section` is the
    encoded IndexSection message (empty where the table has no index). `transaction` is what made the version,
    None where the file doesn't hold it (then `head.transaction_file` may name it).
    """

    head: Manifest
    fragments: Fragments
    index_section: bytes
    transaction: Transaction | None


def decode_file(
    data: bytes, where: str = "", *, whole: bool = True, like: Fragments | None = None
) -> ManifestFile:
    """Takes a whole manifest file apart. Raises `DamagedError` naming `where` and what is wrong.

    `whole`: False leaves the fragments of an Append out of its transaction. `like`: the fragments of another
    version of the table; chunks of them that stand here again are shared, and not decoded once more.
    """
    head, fragments = _decoded(data, _manifest_span(data, where), where, like)
    index = index_section(data, head, where)
    _parsed(IndexSection(), index, where, "index section")
    return ManifestFile(head, fragments, index, _transaction(data, head, where, whole=whole))


def decode_head(data: bytes, where: str = "") -> tuple[Manifest, Transaction | None]:
    """The manifest without its fragments, and the transaction, of a whole file. Raises `DamagedError`.

    For who follows versions, or looks back at old ones: what one did stands in its transaction. The fragments
    are not decoded, which makes it many times cheaper than `decode_file`.
    """
    span = _manifest_span(data, where)
    rest = bytearray()
    for run in _runs(data, span, len(span), where):
        if isinstance(run, Run) and not run.wanted:
            rest += data[run.start : run.end]
    head = _parsed(Manifest(), bytes(rest), where, "manifest")
    return head, _transaction(data, head, where)


def index_section(data: bytes, head: Manifest, where: str = "") -> bytes:
    """The index section of a whole file, encoded; empty where it has none. Raises `DamagedError`."""
    if not head.HasField("index_section"):
        return b""
    return _section(data, head.index_section, where, "index section")


def transaction_of(data: bytes | None) -> Transaction | None:
    """The transaction in a file of its own, as older clients wrote it beside the manifest.

    None where there is no such file or it can't be read: the table is sound without it, only what the version
    did can't be told any more.
    """
    if data is None:
        return None
    try:
        check_expansion(data, Transaction)
        return Transaction.FromString(data)
    except DecodeError as error:
        check_allocated(error)
        return None


def head_transaction(start: bytes) -> Transaction | None:
    """The transaction at the very start of a manifest file that we wrote; None if it isn't there whole.

    Bytes of another's file may parse by chance: the caller checks that the properties name the version it
    expects.
    """
    if len(start) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(start)
    if not 0 < length <= len(start) - LENGTH.size:
        return None
    try:
        return Transaction.FromString(start[LENGTH.size : LENGTH.size + length])
    except DecodeError as error:
        check_allocated(error)
        return None


def head_length(start: bytes) -> int:
    """How many bytes of the file hold the transaction section, if the file starts with one."""
    return LENGTH.size + LENGTH.unpack_from(start)[0] if len(start) >= LENGTH.size else 0


def encode_transaction(transaction: Transaction, packed: Packed | None = None) -> list[bytes]:
    """The encoded transaction, in parts. `packed`: fragments of it that it doesn't list.

    The first part is then all that stands in front of them, its properties among it, which name the version.
    """
    if packed is not None:
        return packed.section(transaction)
    return [transaction.SerializeToString(deterministic=True)]


def encode_file(
    head: Manifest, fragments: Fragments, index_section: bytes, transaction: Transaction
) -> list[Buffer]:
    """The buffers of a manifest file, as `assemble_file` returns them."""
    return assemble_file(head, fragments, index_section, encode_transaction(transaction))


def assemble_file(
    head: Manifest, fragments: Fragments, index_section: bytes, encoded: Sequence[bytes]
) -> list[Buffer]:
    """The buffers of a manifest file; the first is the transaction section. Changes `head`'s offsets.

    `encoded`: the transaction, as `encode_transaction` returns it. Raises `InvalidError` if a section grows
    larger than a protobuf message may be.
    """
    size = sum(map(len, encoded))
    sections: list[Buffer] = [_length(size, "transaction") + encoded[0], *encoded[1:]]
    offset = LENGTH.size + size
    head.transaction_section = 0
    head.ClearField("index_section")
    if index_section:
        head.index_section = offset
        sections += [_length(len(index_section), "index section"), index_section]
        offset += LENGTH.size + len(index_section)
    head_bytes = head.SerializeToString(deterministic=True)
    footer = FOOTER.pack(offset, MAJOR, MINOR, MAGIC)
    length = _length(len(head_bytes) + fragments.size, "manifest")
    return [*sections, length, head_bytes, *fragments.buffers(), footer]


def _length(size: int, what: str) -> bytes:
    """The length prefix of a section."""
    if size > MAX_SECTION:
        raise InvalidError(
            f"the {what} of {size} bytes is larger than {MAX_SECTION}, which no client can read",
            hint="compact the table: fewer fragments make a smaller manifest",
        )
    return LENGTH.pack(size)


def _manifest_span(data: bytes, where: str) -> range:
    """Where the Manifest message lies in the file. It is not copied: it may be as large as memory allows."""
    span = _section_span(data, _manifest_offset(data, where), where, "manifest")
    if span.stop + FOOTER.size != len(data):
        raise DamagedError("the manifest message doesn't end where the footer starts", where=where)
    return span


def _decoded(
    data: bytes, span: range, where: str, like: Fragments | None = None
) -> tuple[Manifest, Fragments]:
    rest, fragments = bytearray(), Gathering()
    try:
        for run in _runs(data, span, CHUNK_BYTES, where, like):
            if isinstance(run, Chunk):
                fragments.share(run)
            elif run.wanted:
                check_expansion(data, Manifest, range(run.start, run.end))
                fragments.add(data[run.start : run.end])
            else:
                rest += data[run.start : run.end]
        return _parsed(Manifest(), bytes(rest), where, "manifest"), fragments.finish()
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"a fragment can't be decoded: {error}", where=where) from error
    except ValueError as error:
        raise DamagedError(str(error), where=where) from error


def _runs(
    data: bytes, span: range, longest: int, where: str, like: Fragments | None = None
) -> Iterator[Run | Chunk]:
    """The fragments of a Manifest message, and its other fields; chunks only where they stand in `like`."""
    most = most_parts(len(span))
    number = Manifest.FRAGMENTS_FIELD_NUMBER
    try:
        others = 0
        for run in (
            runs(data, number, longest, span)
            if like is None or not like.chunks
            else Neighbour(like, number).parts(data, longest, span)
        ):
            others += isinstance(run, Run) and not run.wanted
            if others > most:
                break
            yield run
        else:
            return
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"the manifest can't be decoded: {error}", where=where) from error
    raise DamagedError(f"the manifest has over {most} fields that are no fragments", where=where)


def _manifest_offset(data: bytes, where: str) -> int:
    if len(data) < FOOTER.size + LENGTH.size:
        raise DamagedError(f"a manifest file of {len(data)} bytes is too short", where=where)
    # The two version numbers decide nothing (Lance fact 2.4).
    offset, _, _, magic = FOOTER.unpack_from(data, len(data) - FOOTER.size)
    if magic != MAGIC:
        raise DamagedError("the file doesn't end with LANC: it is truncated or no manifest", where=where)
    return int(offset)


def _section(data: bytes, offset: int, where: str, what: str) -> bytes:
    """The bytes of the length-prefixed section at `offset`."""
    span = _section_span(data, offset, where, what)
    return data[span.start : span.stop]


def _section_span(data: bytes, offset: int, where: str, what: str) -> range:
    end_of_sections = len(data) - FOOTER.size
    if offset + LENGTH.size > end_of_sections:
        raise DamagedError(f"the {what} is said to start at byte {offset} of {len(data)}", where=where)
    (length,) = LENGTH.unpack_from(data, offset)
    start = offset + LENGTH.size
    if start + length > end_of_sections:
        raise DamagedError(f"the {what} of {length} bytes at {offset} reaches beyond the file", where=where)
    return range(start, start + length)


def _parsed(message: M, data: bytes, where: str, what: str) -> M:
    try:
        check_expansion(data, type(message))
        message.ParseFromString(data)
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"the {what} can't be decoded: {error}", where=where) from error
    return message


def _transaction(data: bytes, head: Manifest, where: str, *, whole: bool = True) -> Transaction | None:
    """The inline transaction: field 23, or the older field 21 (Lance fact 2.3)."""
    if head.HasField("transaction_section"):
        offset = head.transaction_section
    elif head.HasField("transaction_section_before_14"):
        offset = head.transaction_section_before_14
    else:
        return None
    span = _section_span(data, offset, where, "transaction section")
    if not span:
        raise DamagedError("the transaction section is empty", where=where)
    if not whole:
        try:
            told = without_fragments(data, span)
        except DecodeError as error:
            check_allocated(error)
            raise DamagedError(f"the transaction section can't be decoded: {error}", where=where) from error
        if told is not None:
            return told
    return _parsed(Transaction(), data[span.start : span.stop], where, "transaction section")
