"""Random histories of operations that read, in tables whose isolation level is `Serializable`.

Each writer builds its batch on the version that is the newest then, and it is folded later, after others,
alone or in a group. Every operation is also a function of the table's rows. What is committed must be what
these functions give one after another, in the order of the log; a batch that changes nothing counts where it
read.

Promise: serializable (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, NamedTuple

import lance
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import lakefold
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.merge.clauses import (
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedInsert,
)
from lakefold_ingest.merge.delta.format import ReplaceDelta
from lakefold_ingest.merge.lance.format import ReplaceWhere
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_table.entry import Committed, Rejected
from lakefold_table.lance.isolation import ISOLATION
from tests.delta_merging import FEED, VECTORS, DeltaFolding
from tests.merging import Folding
from tests.oracle.delta_maintenance import DeltaWorld
from tests.oracle.test_compacting import BatchLog, compaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Result

WRITERS = 3
IDS = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
SERIALIZABLE = {"delta.isolationLevel": "Serializable"}


class Row(NamedTuple):
    id: int
    v: int
    at: int


Rows = list[Row]


def table_of(rows: Rows) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({name: pa.array(c, pa.int64()) for name, c in zip(Row._fields, columns, strict=True)})


def appended(new: Rows, rows: Rows) -> Rows:
    return [*rows, *new]


def increased(ids: list[int], odd: int, rows: Rows) -> Rows:
    """One is added to the values of the rows with these keys that are odd (1) or even (0)."""
    return [row._replace(v=row.v + 1) if row.id in ids and row.v % 2 == odd else row for row in rows]


def merged(new: Rows, odd: int, rows: Rows) -> Rows:
    """Rows with these keys are replaced if they are odd or even. Keys without rows are inserted."""
    by_id = {row.id: row for row in new}
    kept = [by_id[row.id] if row.id in by_id and row.v % 2 == odd else row for row in rows]
    return [*kept, *(row for row in new if row.id not in {each.id for each in rows})]


def with_newer(new: Rows, rows: Rows) -> Rows:
    by_id = {row.id: row for row in new}
    kept = [by_id[row.id] if row.id in by_id and by_id[row.id].at > row.at else row for row in rows]
    return [*kept, *(row for row in new if row.id not in {each.id for each in rows})]


def without(ids: list[int], rows: Rows) -> Rows:
    return [row for row in rows if row.id not in ids]


def without_below(limit: int, rows: Rows) -> Rows:
    return [row for row in rows if row.v >= limit]


def only_these(ids: list[int], limit: int, rows: Rows) -> Rows:
    """Rows of other keys are deleted, if their values are below the limit."""
    return [row for row in rows if row.id in ids or row.v >= limit]


def replaced(new: Rows, limit: int, rows: Rows) -> Rows:
    return [*without_below(limit, rows), *new]


@dataclass
class Pending:
    operation: Operation
    key: Key
    envelope: Envelope
    effect: Callable[[Rows], Rows]


class SerializableHistories(RuleBasedStateMachine):
    """A table, and several writers. A subclass knows the table's format."""

    folding: DeltaFolding | Folding

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.model: Rows = []
        self.pending: list[Pending | None] = [None] * WRITERS
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @abstractmethod
    def replacement(self, rows: pa.Table, where: str) -> ReplaceDelta | ReplaceWhere:
        """The operation that replaces the rows for which `where` holds."""

    @abstractmethod
    def compact(self, before: Callable[[Envelope], object]) -> None:
        """Compacts the table. `before`: what others do before each proposal."""

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS)
    def appends(self, writer: int, ids: list[int]) -> None:
        new = self._new(ids)
        self._build(writer, append_source(RowSource(table_of(new))), partial(appended, new))

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS, odd=st.integers(0, 1))
    def increases(self, writer: int, ids: list[int], odd: int) -> None:
        clause = MatchedUpdate([], f"target.v % 2 = {odd}", {"v": "target.v + 1"})
        merge = Merge(("id",), clauses=(clause,))
        self._build(writer, UpsertRows(table_of(self._new(ids)), merge), partial(increased, ids, odd))

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS, odd=st.integers(0, 1))
    def merges(self, writer: int, ids: list[int], odd: int) -> None:
        new = self._new(ids)
        clauses = (MatchedUpdate(None, f"target.v % 2 = {odd}"), NotMatchedInsert())
        operation = UpsertRows(table_of(new), Merge(("id",), clauses=clauses))
        self._build(writer, operation, partial(merged, new, odd))

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS, at=st.integers(0, 3))
    def applies_changes(self, writer: int, ids: list[int], at: int) -> None:
        new = [row._replace(at=at) for row in self._new(ids)]
        events = table_of(new).append_column("op", pa.array(["u"] * len(new)))
        form = change_format(
            "id", "at", operation_column="op", operations=None, envelope=None, debezium_types=None
        )
        self._build(writer, ApplyChanges(events, form), partial(with_newer, new))

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS)
    def deletes_keys(self, writer: int, ids: list[int]) -> None:
        self._build(writer, delete_keys(table_of(self._new(ids)), ["id"]), partial(without, ids))

    @rule(writer=st.integers(0, WRITERS - 1), limit=st.integers(0, 8))
    def deletes_where(self, writer: int, limit: int) -> None:
        self._build(writer, DeleteWhere(f"v < {limit}"), partial(without_below, limit))

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS, limit=st.integers(0, 8))
    def deletes_what_the_batch_lacks(self, writer: int, ids: list[int], limit: int) -> None:
        merge = Merge(("id",), clauses=(NotMatchedBySourceDelete(f"target.v < {limit}"),))
        operation = UpsertRows(table_of(self._new(ids)), merge)
        self._build(writer, operation, partial(only_these, ids, limit))

    @rule(writer=st.integers(0, WRITERS - 1), ids=IDS, limit=st.integers(0, 8))
    def replaces_where(self, writer: int, ids: list[int], limit: int) -> None:
        new = [row._replace(v=0) for row in self._new(ids)]
        self._build(writer, self.replacement(table_of(new), f"v < {limit}"), partial(replaced, new, limit))

    @rule(writer=st.integers(0, WRITERS - 1))
    def folds(self, writer: int) -> None:
        self._fold([writer])

    @rule(order=st.permutations(range(WRITERS)))
    def folds_all(self, order: list[int]) -> None:
        self._fold(order)

    @rule(order=st.permutations(range(WRITERS)), count=st.integers(0, WRITERS))
    def compacts(self, order: list[int], count: int) -> None:
        """A compaction, and writers whose batches are folded after it has read and before it is folded."""
        self.count += 1
        self.compact(lambda _: self._fold(order[:count]))

    @invariant()
    def the_table_is_as_if_one_batch_had_come_after_another(self) -> None:
        if self.count:
            read = lakefold.open(self.folding.path).to_arrow().select(list(Row._fields)).to_pylist()
            assert sorted(Row(**row) for row in read) == sorted(self.model)

    def _fold(self, writers: list[int]) -> None:
        waiting = [(writer, batch) for writer in writers if (batch := self.pending[writer]) is not None]
        results: list[Result] = []
        while len(results) < len(waiting):
            # A group ends where a batch can't share the version of those before it.
            results += self.folding.fold(*(batch.envelope for _, batch in waiting[len(results) :]))
        for (writer, batch), result in zip(waiting, results, strict=True):
            self.pending[writer] = None
            if isinstance(result, Committed):
                self.model = batch.effect(self.model)
            else:
                assert isinstance(result, Rejected), result
                assert result.conflict.retryable, result
        for (writer, batch), result in zip(waiting, results, strict=True):
            is_refused = isinstance(result, Rejected)
            if is_refused and not isinstance(batch.operation, ReplaceDelta | ReplaceWhere):
                self._build(writer, batch.operation, batch.effect, batch.key)

    def _build(
        self, writer: int, operation: Operation, effect: Callable[[Rows], Rows], key: Key | None = None
    ) -> None:
        if self.pending[writer] is not None:
            return
        again = key is not None
        self.count += 1
        key = key or Key(f"writer {writer}", self.count)
        envelope = self.folding.build(operation, key, again=again)
        if envelope is None:
            assert sorted(effect(self.model)) == sorted(self.model)
        else:
            self.pending[writer] = Pending(operation, key, envelope, effect)

    def _new(self, ids: list[int]) -> Rows:
        self.count += 1
        return [Row(number, (self.count + number) % 10, self.count % 4) for number in ids]


class DeltaHistories(SerializableHistories):
    """A Delta table."""

    folding: DeltaFolding

    @initialize(vectors=st.booleans(), feed=st.booleans(), ids=IDS)
    def begin(self, ids: list[int], *, vectors: bool, feed: bool) -> None:
        chosen = (VECTORS if vectors else {}) | (FEED if feed else {}) | SERIALIZABLE
        self.model = [Row(number, number, 0) for number in ids]
        self.folding = DeltaFolding(self.folder / "t")
        self.folding.create(table_of([]).schema, chosen)
        self.folding.append(table_of(self.model), max_rows_per_file=2)

    def replacement(self, rows: pa.Table, where: str) -> ReplaceDelta:
        view = self.folding.view()
        files = list(view.target(rows.schema, self.folding.settings()).write(rows.to_batches()))
        return ReplaceDelta(files, view.metadata.schema_text, where)  # type: ignore[attr-defined] # of Delta

    def compact(self, before: Callable[[Envelope], object]) -> None:
        world = DeltaWorld(self.folding.path, before, logs=10000 * self.count)
        world.compaction().run(full=True)


class LanceHistories(SerializableHistories):
    """A Lance table."""

    folding: Folding

    @initialize(stable=st.booleans(), ids=IDS)
    def begin(self, ids: list[int], *, stable: bool) -> None:
        self.model = [Row(number, number, 0) for number in ids]
        self.folding = Folding(self.folder / "t")
        dataset = lance.write_dataset(
            table_of(self.model), str(self.folding.path), max_rows_per_file=2, enable_stable_row_ids=stable
        )
        dataset.update_config({ISOLATION: "serializable"})

    def replacement(self, rows: pa.Table, where: str) -> ReplaceWhere:
        view = self.folding.view()
        files = list(view.target(rows.schema, self.folding.settings()).write(rows.to_batches()))
        return ReplaceWhere(files, Schema(fields=view.fields), where)  # type: ignore[attr-defined] # of Lance

    def compact(self, before: Callable[[Envelope], object]) -> None:
        log = BatchLog(self.folding.path, before, folding=self.folding)
        compaction(self.folding.path, log).run(full=True)


TestDeltaHistories = DeltaHistories.TestCase
TestLanceHistories = LanceHistories.TestCase
TestDeltaHistories.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLanceHistories.settings = TestDeltaHistories.settings
