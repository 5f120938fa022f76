"""Rows as bytes, which tasks of Spark send to the driver."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def to_stream(rows: pa.Table) -> pa.Buffer:
    """Returns the rows as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def rows_or_nothing(rows: pa.Table) -> bytes:
    """Returns the rows as a stream, no bytes if there are none."""
    return to_stream(rows).to_pybytes() if rows.num_rows else b""


def from_streams(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Returns the rows of all streams that follow one another in `data`; they have this schema."""
    source, tables = pa.BufferReader(data), [schema.empty_table()]
    while source.tell() < source.size():
        tables.append(pa.ipc.open_stream(source).read_all())
    return pa.concat_tables(tables)
