"""Manifest files of pylance pass through our codec and lose nothing; pylance opens what we write of them."""

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lakefold_protos.lance.table_pb2 import IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.codec import decode_file, decode_head
from lakefold_table.lance.manifests.naming import detect
from tests.encoding import encode_file
from tests.oracle.columns import LISTS, SIMPLE, STRUCTS
from tests.oracle.manifests import read_sections
from tests.oracle.test_messages import WAYS, create, rows

UNKNOWN = b"\x9a\x3f\x03abc"


def many_types(table: Path) -> None:
    columns = [pa.field(f"c{n}", kind) for n, kind in enumerate([*SIMPLE, *STRUCTS[:3], *LISTS])]
    kind = pa.schema(columns, metadata={"unit": "m"})
    lance.write_dataset(kind.empty_table(), str(table))


def older_names(table: Path) -> None:
    lance.write_dataset(rows(0, 5), str(table), enable_v2_manifest_paths=False)
    lance.write_dataset(rows(5, 5), str(table), mode="append")


def older_files(table: Path) -> None:
    lance.write_dataset(rows(0, 5), str(table), data_storage_version="legacy")


def mixed_files(table: Path) -> None:
    lance.write_dataset(rows(0, 5), str(table), data_storage_version="2.0")
    lance.write_dataset(rows(5, 5), str(table), mode="append", data_storage_version="2.1")


def tagged_and_cloned(table: Path) -> None:
    dataset = create(table)
    dataset.tags.create("release", 1)
    dataset.delete("a = 3")
    dataset.shallow_clone(str(table.parent / "clone"), 2)


MORE = [many_types, older_names, older_files, mixed_files, tagged_and_cloned]


def encoded_again(data: bytes) -> bytes:
    """The file as our codec writes what it read."""
    file = decode_file(data)
    transaction = file.transaction or Transaction()
    return b"".join(encode_file(file.head, file.fragments, file.index_section, transaction))


def check_file(path: Path) -> None:
    """Nothing of a file is lost on the way through the codec, and nothing added."""
    before = read_sections(path)
    manifest = Manifest.FromString(before.manifest)
    assert before.transaction is not None
    head, transaction = decode_head(path.read_bytes())
    assert (head.version, len(head.fragments)) == (manifest.version, 0)
    assert transaction == Transaction.FromString(before.transaction)
    again = path.parent / "again"
    again.write_bytes(encoded_again(path.read_bytes()))
    after = read_sections(again)
    again.unlink()
    assert IndexSection.FromString(after.index or b"") == IndexSection.FromString(before.index or b"")
    assert (after.index is None) == (before.index is None)
    assert Transaction.FromString(after.transaction or b"") == Transaction.FromString(before.transaction)
    messages = [manifest, Manifest.FromString(after.manifest)]
    assert messages[1].transaction_section == 0
    for message in messages:
        message.ClearField("index_section")
        message.ClearField("transaction_section")
        message.ClearField("transaction_section_before_14")
    assert messages[0] == messages[1]
    # The fragments keep the very bytes that pylance gave them.
    assert set(_fragments(before.manifest)) == set(_fragments(after.manifest))


def _fragments(manifest: bytes) -> list[bytes]:
    return [fragment.SerializeToString() for fragment in Manifest.FromString(manifest).fragments]


def seen_by_pylance(table: Path) -> tuple[object, ...]:
    dataset = lance.dataset(str(table))
    dataset.validate()
    return (
        dataset.version,
        dataset.schema,
        dataset.count_rows(),
        dataset.to_table(),
        [(description.name, description.fields) for description in dataset.describe_indices()],
        dataset.config(),
        dataset.metadata,
        dataset.tags.list(),
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [*WAYS, *MORE], ids=lambda method: method.__name__)
def test_nothing_is_lost(make: Callable[[Path], object], tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(table)
    files = sorted(tmp_path.rglob("*.manifest"))
    assert files
    for path in files:
        check_file(path)
    state = decode_file(_newest(table).read_bytes())
    if state.head.reader_feature_flags & 64:
        return  # Overlays: pylance itself reads them only on request.
    before = seen_by_pylance(table)
    _newest(table).write_bytes(encoded_again(_newest(table).read_bytes()))
    assert seen_by_pylance(table) == before


def _newest(table: Path) -> Path:
    names = [path.name for path in (table / "_versions").glob("*.manifest")]
    scheme = detect(names)
    assert scheme is not None
    return table / "_versions" / max(names, key=lambda name: scheme.parse(name) or 0)


def test_pylance_commits_on_top_of_a_file_of_ours(tmp_path: Path) -> None:
    table = tmp_path / "table"
    dataset = create(table)
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 3")
    stale = lance.dataset(str(table), version=2)
    _newest(table).write_bytes(encoded_again(_newest(table).read_bytes()))
    before = lance.dataset(str(table)).read_transaction(3)
    assert before is not None
    assert (type(before.operation).__name__, before.read_version) == ("Delete", 2)
    lance.write_dataset(rows(40, 5), stale, mode="append")
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert (dataset.version, dataset.count_rows()) == (4, 42)
    assert dataset.to_table(filter="a = 41").num_rows == 1


def test_unknown_fields_survive_and_pylance_looks_past_them(tmp_path: Path) -> None:
    table = tmp_path / "table"
    create(table)
    path = _newest(table)
    file = decode_file(path.read_bytes())
    head = Manifest.FromString(file.head.SerializeToString() + UNKNOWN)
    data = b"".join(encode_file(head, file.fragments, b"", file.transaction or Transaction()))
    path.write_bytes(encoded_again(data))
    assert path.read_bytes().count(UNKNOWN) == 1
    assert lance.dataset(str(table)).count_rows() == 40


def test_the_state_of_each_table_can_be_written_on_or_is_refused_by_its_flags(tmp_path: Path) -> None:
    table = tmp_path / "table"
    create(table, stable_row_ids=True)
    path = _newest(table)
    state = LanceFormat().decode(f"_versions/{path.name}", path.read_bytes())
    assert (state.version, state.rows, state.file_version) == (1, 40, (2, 2))
    LanceFormat().check_writable(state)
