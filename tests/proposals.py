"""Proposals that tests send: data files written by pylance, in envelopes as any client would make them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.lance.schemas.arrow import schema_from_arrow
from lakefold_table.uri import local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])


def rows(ids: Sequence[int]) -> pa.Table:
    """A table of rows with these ids."""
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "text": [f"row {number}" for number in ids]}, schema=SCHEMA
    )


def creation(uri: str, schema: pa.Schema = SCHEMA, *, stable_row_ids: bool = False) -> Envelope:
    """An envelope that creates an empty table."""
    envelope = Envelope(table=uri)
    envelope.create.stable_row_ids = stable_row_ids
    envelope.lance.uuid = str(uuid.uuid4())
    envelope.lance.overwrite.schema.extend(schema_from_arrow(schema).fields)
    return envelope


def append(
    uri: str,
    table: pa.Table,
    read_version: int,
    app_id: str = "",
    batch_id: int = 0,
    *,
    storage_options: dict[str, str] | None = None,
) -> Envelope:
    """An envelope that appends these rows, their files written below the table's root."""
    envelope = Envelope(table=uri)
    if app_id:
        envelope.app_id, envelope.batch_id = app_id, batch_id
    envelope.lance.uuid = str(uuid.uuid4())
    envelope.lance.read_version = read_version
    at = local_path(uri) if storage_options is None else uri
    dataset = lance.dataset(at, version=read_version, storage_options=storage_options)
    for fragment in write_fragments(table, dataset, mode="append"):
        added = envelope.lance.append.fragments.add(physical_rows=fragment.physical_rows)
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


def ids_in(uri: str) -> list[int]:
    """The ids of all rows, as pylance reads them, after it has validated the table."""
    dataset = lance.dataset(local_path(uri))
    dataset.validate()
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def remove_files_of(envelope: Envelope) -> None:
    """Deletes the data files that the proposal names."""
    root = Path(local_path(envelope.table))
    for fragment in envelope.lance.append.fragments:
        for file in fragment.files:
            (root / "data" / file.path).unlink()
