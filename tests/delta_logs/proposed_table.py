"""A Delta table in a bucket of any store, which is made of what a test proposes.

delta-rs decides: it opens each version, and commits between ours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakefold
from lakefold_committer.tables.branches import open_branch
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.tail.tail import tail
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.log_segment.names import FOLDER, NAMING
from lakefold_table.entry import Committed
from lakefold_table.errors import RetryError
from lakefold_table.storage import open_storage
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import LISTED, PROTOCOL, VECTORS, Members, add, metadata, remove, text
from tests.folding import entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_table.storage.base import Storage

V2 = {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"}
ROWS = 5
APPENDS = 6


class ProposedTable:
    """A table with a V2 checkpoint after each second version, and what is proposed for it."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self.uri = uri
        self.options = dict(options)
        self.storage: Storage = open_storage(self.uri, self.options)
        self.offset = 0

    def writer(self, options: Mapping[str, str] | None = None) -> TableWriter:
        return open_branch(TableAddress(self.uri, dict(options or self.options)), "")

    def fold(self, writer: TableWriter, envelope: Envelope) -> TableWriter:
        """Folds the next proposal, until it is answered. Returns the writer, which may be another one."""
        while True:
            try:
                (outcome,) = writer.fold(entries([envelope], self.offset)).outcomes
            except RetryError:
                writer = self.writer()
                continue
            assert isinstance(outcome.result, Committed)
            self.offset += 1
            return writer

    def create(self, protocol: Members = LISTED, **properties: str) -> Envelope:
        return self._propose(protocol, metadata(**properties or {**VECTORS, **V2}))

    def append(self, number: int) -> Envelope:
        """Writes a file with `ROWS` rows, and proposes it."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())}), sink)
        data = bytes(sink.getvalue())
        self.storage.put(f"{number}.parquet", [data])
        return self._propose(self._added(number, len(data)))

    def delete(self, number: int, row: int) -> Envelope:
        """Proposes to delete a row of a file, as it was before any of its rows were deleted."""
        path, rows = f"{number}.parquet", {0: Bitmap([row])}
        size = self.storage.size(path)
        assert size is not None
        added = self._added(number, size)
        added["add"]["deletionVector"] = members_of(inline_vector(rows))
        envelope = self._propose(remove(path), added)
        envelope.delta.read_version = number + 1
        envelope.delta.affected_rows[path] = encode_treemap(rows)
        return envelope

    def _added(self, number: int, size: int) -> Members:
        return add(f"{number}.parquet", size=size, stats=json.dumps({"numRecords": ROWS}))

    def _propose(self, *actions: Members) -> Envelope:
        envelope = Envelope(table=self.uri)
        envelope.delta.actions = text(actions)
        return envelope

    def versions(self) -> list[int]:
        """The versions whose commits are stored."""
        numbers = map(NAMING.parse, self.storage.names(FOLDER))
        return sorted(number for number in numbers if number is not None)

    def rows(self) -> list[int]:
        """The rows as Lakefold and delta-rs read them."""
        ours = sorted(lakefold.open(self.uri, storage_options=self.options).to_arrow()["x"].to_pylist())
        theirs = QueryBuilder().register("t", DeltaTable(self.uri, storage_options=self.options))
        assert pa.table(theirs.execute("select x from t order by x").read_all())["x"].to_pylist() == ours
        return ours


def take_turns_with_delta_rs(table: ProposedTable) -> None:
    """Commits to a new table by turns with delta-rs. After each turn both read all rows, and we tail it."""
    writer = table.fold(table.writer(), table.create(PROTOCOL, **{"delta.checkpointInterval": "2"}))
    expected: list[int] = []
    begun = tail(table.uri, "latest", storage_options=table.options)
    for number in range(APPENDS):
        rows = pa.table({"x": pa.array([1000 + number], pa.int64())})
        write_deltalake(table.uri, rows, mode="append", storage_options=table.options)
        writer = table.fold(writer, table.append(number))
        expected += [1000 + number, *range(number * ROWS, (number + 1) * ROWS)]
        theirs = DeltaTable(table.uri, storage_options=table.options).to_pyarrow_table()
        assert sorted(theirs["x"].to_pylist()) == sorted(expected)
        ours = lakefold.open(table.uri, storage_options=table.options)
        assert sorted(ours.to_arrow()["x"].to_pylist()) == sorted(expected)
        assert [each["x"] for change in begun.step() for each in change.inserted().to_pylist()] == [
            1000 + number,
            *range(number * ROWS, (number + 1) * ROWS),
        ]
