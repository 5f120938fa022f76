"""Our messages know every field that pylance writes: nothing of its files is unknown, nothing is lost."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from lance import DatasetBasePath
from lance.file import LanceFileWriter
from lance.fragment import DataFile
from lance.mem_wal import CompactedSsTable
from pyroaring import BitMap

from lakefold_protos.lance.rowids_pb2 import RowDatasetVersionSequence, RowIdSequence
from lakefold_protos.lance.table_pb2 import (
    DataFragment,
    FragmentReuseIndexDetails,
    IndexSection,
    Manifest,
    MemWalIndexDetails,
)
from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.oracle.manifests import manifest_files, read_sections

M = TypeVar("M", bound=Message)

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("s", pa.string()),
    ]
)
DETAILS = {"FragmentReuseIndexDetails": FragmentReuseIndexDetails, "MemWalIndexDetails": MemWalIndexDetails}


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"a": list(numbers), "s": [f"row {n}" for n in numbers]}, schema=SCHEMA)


def unknown(message: Message, path: str) -> Iterator[str]:
    """The places of all unknown fields in a message and in the messages in it."""
    fields = UnknownFieldSet(message)
    yield from (f"{path}#{fields[number].field_number}" for number in range(len(fields)))
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        many = value.values() if hasattr(value, "values") else value if descriptor.is_repeated else [value]
        for each in many:
            if isinstance(each, Message):
                yield from unknown(each, f"{path}.{descriptor.name}")


def known(kind: type[M], stream: bytes) -> M:
    """Parse; nothing may be unknown, and writing it again gives no fewer bytes.

    It may give more: pylance leaves out a map's key if it is 0.
    """
    message = kind.FromString(stream)
    assert list(unknown(message, kind.__name__)) == []
    assert message.ByteSize() >= len(stream)
    return message


def check_fragment(fragment: DataFragment) -> None:
    known(RowIdSequence, fragment.inline_row_ids)
    known(RowDatasetVersionSequence, fragment.inline_created_at_versions)
    known(RowDatasetVersionSequence, fragment.inline_last_updated_at_versions)


def check_index_section(stream: bytes) -> None:
    for index in known(IndexSection, stream).indices:
        kind = DETAILS.get(index.index_details.type_url.rpartition(".")[2])
        if kind:
            known(kind, index.index_details.value)


def check_table(table: Path) -> list[str]:
    """Hold every version and transaction file of a table against the messages; the operations in order."""
    operations: list[str] = []
    for path in manifest_files(table):
        sections = read_sections(path)
        manifest = known(Manifest, sections.manifest)
        for fragment in manifest.fragments:
            check_fragment(fragment)
        assert (sections.index is not None) == manifest.HasField("index_section")
        check_index_section(sections.index or b"")
        assert sections.transaction is not None
        assert manifest.HasField("transaction_section")
        transaction = known(Transaction, sections.transaction)
        stored = table / "_transactions" / manifest.transaction_file
        assert stored.read_bytes() == sections.transaction
        operations.append(transaction.WhichOneof("operation") or "none")
    return operations


def create(table: Path, *, stable_row_ids: bool = False) -> lance.LanceDataset:
    return lance.write_dataset(
        rows(0, 40), str(table), max_rows_per_file=10, enable_stable_row_ids=stable_row_ids
    )


def column_file(dataset: lance.LanceDataset, table: Path, values: pa.Table) -> DataFile:
    """A data file of the table's own columns, written beside the others."""
    name = f"{uuid.uuid4().hex}.lance"
    with LanceFileWriter(str(table / "data" / name), values.schema, version="2.2") as writer:
        writer.write_batch(values)
    return DataFile.create(dataset, name)


def rows_come_and_go(table: Path) -> list[str]:
    dataset = create(table)
    dataset = lance.write_dataset(rows(40, 5), str(table), mode="append", transaction_properties={"k": "v"})
    dataset.delete("a < 3 or a >= 30")
    dataset.update({"s": "'new'"}, where="a = 7")
    dataset = lance.write_dataset(rows(0, 5), str(table), mode="overwrite")
    dataset = lance.dataset(str(table), version=2)
    dataset.restore()
    return ["overwrite", "append", "delete", "update", "overwrite", "restore"]


def rows_have_stable_ids(table: Path) -> list[str]:
    dataset = create(table, stable_row_ids=True)
    dataset.delete("a % 7 = 3")
    dataset.update({"s": "'new'"}, where="a % 3 = 0")
    dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(rows(30, 20))
    dataset.optimize.compact_files()
    return ["overwrite", "delete", "update", "update", "reserve_fragments", "rewrite"]


def row_ids_lie_in_columns(table: Path) -> list[str]:
    dataset = create(table, stable_row_ids=True)
    dataset.update_config({"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"})
    dataset.update({"s": "'new'"}, where="a % 3 = 0")
    dataset.optimize.compact_files()
    return ["overwrite", "update_config", "update", "reserve_fragments", "rewrite"]


def indices_follow(table: Path) -> list[str]:
    dataset = create(table)
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("s", "INVERTED")
    dataset.delete("a < 3")
    dataset.optimize.compact_files()
    return ["overwrite", "create_index", "create_index", "delete", "reserve_fragments", "rewrite"]


def indices_follow_later(table: Path) -> list[str]:
    dataset = create(table)
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a < 3")
    dataset.optimize.compact_files(defer_index_remap=True)
    return ["overwrite", "create_index", "delete", "reserve_fragments", "rewrite"]


def columns_come_and_go(table: Path) -> list[str]:
    dataset = create(table)
    dataset.add_columns({"twice": "a * 2"})
    dataset.alter_columns({"path": "s", "name": "text"})  # type: ignore[dict-item]
    dataset.drop_columns(["twice"])
    return ["overwrite", "merge", "project", "project"]


def columns_are_replaced(table: Path) -> list[str]:
    operation = lance.LanceOperation
    dataset = create(table, stable_row_ids=True)
    file = column_file(dataset, table, rows(0, 10).select(["s"]))
    replacement = operation.DataReplacement([operation.DataReplacementGroup(1, file)])
    dataset = lance.LanceDataset.commit(str(table), replacement, read_version=1)
    fragment, fields = dataset.get_fragments()[0].update_columns(rows(0, 3), left_on="a")
    offsets = {0: BitMap([0, 1, 2]).serialize()}
    update = operation.Update(
        updated_fragments=[fragment],
        fields_modified=fields,
        update_mode="rewrite_columns",
        updated_fragment_offsets=offsets,
    )
    dataset = lance.LanceDataset.commit(str(table), update, read_version=2)
    file = column_file(dataset, table, rows(0, 2).select(["s"]))
    overlay = operation.DataOverlay(
        [operation.DataOverlayGroup(1, [operation.DataOverlayFile(file, [3, 4])])]
    )
    lance.LanceDataset.commit(str(table), overlay, read_version=3)
    return ["overwrite", "data_replacement", "update", "data_overlay"]


def settings_change(table: Path) -> list[str]:
    dataset = create(table)
    dataset.update_config({"k": "v"})
    dataset.update_metadata({"owner": "me"}, replace=True)
    dataset.update_schema_metadata({"unit": "m"})
    dataset.update_field_metadata({"s": {"label": "text"}})
    dataset.add_bases([DatasetBasePath(path=str(table.parent / "b"), name="b", is_dataset_root=True)])
    return ["overwrite", *["update_config"] * 4, "update_bases"]


def shards_are_compacted(table: Path) -> list[str]:
    dataset = create(table)
    dataset.create_scalar_index("s", "BTREE")
    dataset.initialize_mem_wal(
        bucket_column="a", num_buckets=4, max_memtable_rows=7, maintained_indexes=["s_idx"]
    )
    dataset = lance.dataset(str(table))
    merge = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(str(uuid.uuid4()), 3)]).execute(rows(35, 10))
    return ["overwrite", "create_index", "create_index", "update"]


WAYS = [
    rows_come_and_go,
    rows_have_stable_ids,
    row_ids_lie_in_columns,
    indices_follow,
    indices_follow_later,
    columns_come_and_go,
    columns_are_replaced,
    settings_change,
    shards_are_compacted,
]


@pytest.mark.parametrize("make", WAYS, ids=lambda method: method.__name__)
def test_every_field_of_a_table_is_known(make: Callable[[Path], list[str]], tmp_path: Path) -> None:
    expected = make(tmp_path / "table")
    assert check_table(tmp_path / "table") == expected


def test_every_field_of_a_branch_is_known(tmp_path: Path) -> None:
    dataset = create(tmp_path / "table")
    dataset.delete("a = 3")
    dataset.create_scalar_index("a", "BTREE")
    branch = dataset.create_branch("next")
    lance.write_dataset(rows(50, 5), branch.uri, mode="append")
    assert check_table(tmp_path / "table" / "tree" / "next") == ["clone", "append"]
