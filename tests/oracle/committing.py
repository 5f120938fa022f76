"""The same Append committed by pylance and folded by us, on two copies of a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries, parsed_packed, with_packed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold_table.entry import Entry, Result
    from lakefold_table.lance.state import LanceState


def rows(start: int, count: int) -> pa.Table:
    """So many rows, numbered in column a from `start` on."""
    numbers = range(start, start + count)
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"row {n}" for n in numbers]})


def commit(dataset: lance.LanceDataset, operation: lance.LanceOperation.BaseOperation) -> None:
    """Has pylance commit an operation on the version that is open."""
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def owned(table: Path) -> TableWriter:
    """A committer's table on a local disk."""
    storage = LocalStorage(table)
    return TableWriter(StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)))


def state(table: Path, version: int | None = None) -> LanceState:
    """A version as its file says, the newest unless given."""
    versions = Versions(LocalStorage(table), FORMAT.folder, FORMAT.detect)
    number = version or versions.latest()
    return FORMAT.decode(versions.path(number), versions.read(number))


def written(table: Path, rows: pa.Table, version: str | None = None) -> list[FragmentMetadata]:
    """Fragments of at most 10 rows with their data files, not yet part of any version."""
    dataset = lance.dataset(str(table))
    return list(
        write_fragments(rows, dataset, mode="append", max_rows_per_file=10, data_storage_version=version)
    )


def numbered(fragments: Sequence[FragmentMetadata], ids: Sequence[int]) -> list[FragmentMetadata]:
    """The fragments with ids of their own."""
    actual = []
    for fragment, number in zip(fragments, ids, strict=True):
        form = fragment.to_json()
        form["id"] = number
        actual.append(FragmentMetadata.from_json(json.dumps(form)))
    return actual


def proposal(table: Path, fragments: Sequence[FragmentMetadata], read: int, uuid: str = "append") -> Envelope:
    """The Append of these fragments as an envelope."""
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = uuid, read
    envelope.lance.append.SetInParent()
    for fragment in fragments:
        added = envelope.lance.append.fragments.add(id=fragment.id, physical_rows=fragment.physical_rows)
        for file in fragment.files:
            added.files.add(
                path=file.path,
                fields=file.fields,
                column_indices=file.column_indices,
                file_major_version=file.file_major_version,
                file_minor_version=file.file_minor_version,
                file_size_bytes=file.file_size_bytes or 0,
            )
    return envelope


def fold(
    table: TableWriter, envelopes: Sequence[Envelope], offset: int, *, encoded: bool = False
) -> list[Result]:
    """Folds envelopes at consecutive offsets as a group; `encoded`: as large Appends in claims."""
    group = entries(envelopes, offset)
    if encoded:
        group = [packed(entry) for entry in group]
    return [outcome.result for outcome in table.fold(group).outcomes]


def packed(item: Entry) -> Entry:
    """The entry of an Append with its fragments kept encoded."""
    envelope, fragments = parsed_packed(encode(item.envelope))
    assert fragments is not None
    return with_packed(item, envelope, fragments)
