"""Random histories of upserts, updates and deletes of a Delta table by several writers, beside a dictionary.

Each writer builds its batch on the version that is the newest then, and the batch is folded later, when
others have been folded, alone or together with the others. A batch that is refused is built again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import lakefold
from lakefold_ingest.merge.clauses import MatchedUpdate, Merge
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_table.entry import Committed, Rejected
from tests.delta_merging import FEED, TRACKED, VECTORS, DeltaFolding, delta_rs_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope

WRITERS = 3
BATCHES = st.lists(st.integers(0, 11), min_size=1, max_size=5, unique=True)
Model = dict[int, str]


@dataclass
class PendingBatch:
    """A batch that was built and is not folded yet, and what it does to the model.

    `known`: the keys that the table had in the version that it was built on.
    """

    operation: Operation
    key: Key
    envelope: Envelope
    apply: Callable[[Model, frozenset[int]], None]
    known: frozenset[int]


def rows(ids: list[int], name: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"{name} {n}" for n in ids]})


class DeltaHistories(RuleBasedStateMachine):
    """A table, several writers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.folding = DeltaFolding(self.folder / "t")
        self.model: Model = {}
        self.pending: list[PendingBatch | None] = [None] * WRITERS
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        vectors=st.booleans(), feed=st.booleans(), tracked=st.booleans(), ids=BATCHES, by=st.booleans()
    )
    def begin(self, ids: list[int], *, vectors: bool, feed: bool, tracked: bool, by: bool) -> None:
        chosen = ((VECTORS, vectors), (FEED, feed), (TRACKED, tracked))
        properties = {name: text for each, is_on in chosen if is_on for name, text in each.items()}
        batch = rows(ids, "first")
        self.folding.create(batch.schema, properties, ("name",) if by else ())
        self.folding.append(batch, max_rows_per_file=3)
        self.model = {n: f"first {n}" for n in ids}

    @rule(writer=st.integers(0, WRITERS - 1), ids=BATCHES)
    def upserts(self, writer: int, ids: list[int]) -> None:
        name = self._name()
        self._build(
            writer,
            UpsertRows(rows(ids, name), Merge(("id",))),
            lambda model, _: model.update({n: f"{name} {n}" for n in ids}),
        )

    @rule(writer=st.integers(0, WRITERS - 1), ids=BATCHES)
    def updates(self, writer: int, ids: list[int]) -> None:
        name = self._name()
        self._build(
            writer,
            UpsertRows(rows(ids, name), Merge(("id",), clauses=(MatchedUpdate(),))),
            lambda model, known: model.update({n: f"{name} {n}" for n in ids if n in known}),
        )

    @rule(writer=st.integers(0, WRITERS - 1), ids=BATCHES, where=st.booleans())
    def deletes(self, writer: int, ids: list[int], *, where: bool) -> None:
        def apply(model: Model, known: frozenset[int]) -> None:
            for number in known.intersection(ids):
                del model[number]

        listed = ", ".join(map(str, ids))
        by_condition = DeleteWhere(f"id in ({listed})")
        self._build(writer, by_condition if where else delete_keys(rows(ids, ""), ["id"]), apply)

    @rule(writer=st.integers(0, WRITERS - 1))
    def folds(self, writer: int) -> None:
        """Folds a writer's batch. If it is refused, it is built again and waits."""
        self._fold([writer])

    @rule()
    def folds_all(self) -> None:
        """Folds the batches of all writers as a group."""
        self._fold(list(range(WRITERS)))

    @invariant()
    def the_table_has_the_rows_of_the_model(self) -> None:
        if not self.folding.offset:
            return
        expected = sorted(({"id": n, "name": name} for n, name in self.model.items()), key=repr)
        read = lakefold.open(self.folding.path).to_arrow().to_pylist()
        assert sorted(read, key=repr) == expected

    def _fold(self, writers: list[int]) -> None:
        waiting = [(writer, batch) for writer in writers if (batch := self.pending[writer]) is not None]
        if not waiting:
            return
        results = self.folding.fold(*(batch.envelope for _, batch in waiting))
        for (writer, batch), result in zip(waiting, results, strict=True):
            self.pending[writer] = None
            if isinstance(result, Committed):
                batch.apply(self.model, batch.known)
            else:
                assert isinstance(result, Rejected), result
                assert result.conflict.retryable, result
        for (writer, batch), result in zip(waiting, results, strict=True):
            if not isinstance(result, Committed):
                self._build(writer, batch.operation, batch.apply, batch.key)
        assert delta_rs_rows(self.folding.path) == sorted(
            ({"id": n, "name": name} for n, name in self.model.items()), key=repr
        )

    def _build(
        self,
        writer: int,
        operation: Operation,
        apply: Callable[[Model, frozenset[int]], None],
        key: Key | None = None,
    ) -> None:
        if self.pending[writer] is not None:
            return
        again = key is not None
        self.count += 1
        key = key or Key(f"writer {writer}", self.count)
        envelope = self.folding.build(operation, key, again=again)
        known = frozenset(self.model)
        if envelope is None:
            before = dict(self.model)
            apply(self.model, known)
            assert self.model == before
        else:
            self.pending[writer] = PendingBatch(operation, key, envelope, apply, known)

    def _name(self) -> str:
        self.count += 1
        return f"batch {self.count}"


TestDeltaHistories = DeltaHistories.TestCase
TestDeltaHistories.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
