"""Random histories of upserts, deletes and appends by several writers mean the same as if they came in turn.

Each writer builds its batch on the version that is the newest then, and the batch is folded later, when
others have been folded. A batch that is refused is built again. A plain dictionary is changed when a batch is
folded, and the table must have the same rows after every step.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakefold_ingest.merge.clauses import MatchedUpdate, Merge
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.operations.delete import delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_table.entry import Committed, Rejected
from lakefold_table.lance.conflicts.keys import APPENDS, LATER
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope

WRITERS = 3
KEYS = st.integers(0, 11)
BATCHES = st.lists(KEYS, min_size=1, max_size=5, unique=True)
Model = dict[int, str]


@dataclass
class Batch:
    """A batch that was built and is not folded yet, and what it does to the model."""

    operation: Operation
    key: Key
    envelope: Envelope
    apply: Callable[[Model, frozenset[int]], None]
    known: frozenset[int]
    ids: frozenset[int]


def properties(batch: Batch) -> MutableMapping[str, str]:
    return batch.envelope.lance.transaction_properties


def rows(ids: list[int], name: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"{name} {n}" for n in ids]})


class Histories(RuleBasedStateMachine):
    """A table, several writers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.folding = Folding(self.folder / "t")
        self.model: Model = {}
        self.pending: list[Batch | None] = [None] * WRITERS
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(stable=st.booleans(), ids=BATCHES, index=st.booleans())
    def begin(self, ids: list[int], *, stable: bool, index: bool) -> None:
        dataset = lance.write_dataset(
            rows(ids, "first"), str(self.folding.path), max_rows_per_file=3, enable_stable_row_ids=stable
        )
        if index:
            dataset.create_scalar_index("id", "BTREE")
        self.model = {n: f"first {n}" for n in ids}

    @rule(writer=st.integers(0, WRITERS - 1), ids=BATCHES)
    def upserts(self, writer: int, ids: list[int]) -> None:
        name = self._name()
        self._build(
            writer,
            ids,
            UpsertRows(rows(ids, name), Merge(("id",))),
            lambda model, _: model.update({n: f"{name} {n}" for n in ids}),
        )

    @rule(writer=st.integers(0, WRITERS - 1), ids=BATCHES)
    def updates(self, writer: int, ids: list[int]) -> None:
        name = self._name()
        self._build(
            writer,
            ids,
            UpsertRows(rows(ids, name), Merge(("id",), clauses=(MatchedUpdate(),))),
            lambda model, known: model.update({n: f"{name} {n}" for n in ids if n in known}),
        )

    @rule(writer=st.integers(0, WRITERS - 1), ids=BATCHES)
    def deletes(self, writer: int, ids: list[int]) -> None:
        def apply(model: Model, known: frozenset[int]) -> None:
            for number in known.intersection(ids):
                del model[number]

        self._build(writer, ids, delete_keys(rows(ids, ""), ["id"]), apply)

    @rule(ids=BATCHES)
    def appends(self, ids: list[int]) -> None:
        """Rows with keys that the table does not have, folded at once.

        Batches that were refused before count as made before them, so these don't have their keys either.
        """
        waiting = {n for batch in self.pending if batch for n in batch.ids if APPENDS in properties(batch)}
        new, name = [n for n in ids if n not in self.model and n not in waiting], self._name()
        batch = rows(new, name)
        operation = AppendRows(batch.schema, lambda target: list(target.write(batch.to_batches())))
        assert (self.folding.put(operation) is None) is (not new)
        self.model |= {n: f"{name} {n}" for n in new}

    @rule()
    def compacts(self) -> None:
        """Another client moves rows into other fragments."""
        lance.dataset(str(self.folding.path)).optimize.compact_files(target_rows_per_fragment=6)

    @rule(writer=st.integers(0, WRITERS - 1), soon=st.booleans())
    def folds(self, writer: int, *, soon: bool) -> None:
        """Folds a writer's batch. If it is refused, it is built again and folded at once or later."""
        batch = self.pending[writer]
        while batch is not None:
            (result,) = self.folding.fold(batch.envelope)
            if isinstance(result, Committed):
                batch.apply(self.model, batch.known)
                break
            assert isinstance(result, Rejected), result
            assert result.conflict.retryable, result
            batch = self._built(batch.operation, batch.key, batch.apply, batch.ids)
            if batch is not None and batch.envelope.lance.update.HasField("inserted_rows"):
                properties(batch)[APPENDS] = LATER
            if not soon:
                self.pending[writer] = batch
                return
        self.pending[writer] = None

    @invariant()
    def has_the_rows_of_the_model(self) -> None:
        if self.model or self.count:
            actual = [(row["id"], row["name"]) for row in self.folding.rows()]
            assert sorted(actual, key=repr) == sorted(self.model.items(), key=repr)

    def _name(self) -> str:
        self.count += 1
        return f"batch{self.count}"

    def _build(
        self,
        writer: int,
        ids: list[int],
        operation: Operation,
        apply: Callable[[Model, frozenset[int]], None],
    ) -> None:
        self.count += 1
        key = Key(f"writer-{writer}", self.count)
        self.pending[writer] = self._built(operation, key, apply, frozenset(ids))

    def _built(
        self,
        operation: Operation,
        key: Key,
        apply: Callable[[Model, frozenset[int]], None],
        ids: frozenset[int],
    ) -> Batch | None:
        """The batch on the newest version. Rows that it doesn't find there stay, whatever is added later."""
        envelope = self.folding.build(operation, key)
        known = frozenset(self.model)
        return None if envelope is None else Batch(operation, key, envelope, apply, known, ids)


Histories.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
test_a_table_has_the_rows_of_its_history = Histories.TestCase
