"""Random histories: a batch that is undone leaves the table as it would be without it, if none depends on it.

Promise: a-revert-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.revert.conflicts import RevertConflictError
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError, PreconditionError
from tests.reverting import KINDS, Tables, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lakefold_ingest.writing.operation import Operation

EXAMPLES = 400 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 8
FIRST = range(8)
"""The ids that the table begins with."""


@dataclass(frozen=True)
class Step:
    """What a batch of a history does: "append", "upsert" or "delete", with these ids; or maintenance."""

    what: str
    ids: tuple[int, ...] = ()

    def operation(self, number: int, columns: list[str]) -> Operation:
        """The operation of the step with this number."""
        if self.what == "delete":
            return DeleteWhere(f"id in ({', '.join(map(str, self.ids))})")
        rows = self.rows(number, columns)
        return append_source(RowSource(rows)) if self.what == "append" else UpsertRows(rows, Merge(("id",)))

    def rows(self, number: int, columns: list[str]) -> pa.Table:
        """The rows of the step."""
        rows = words(*self.ids, word=f"step {number}")
        return rows.append_column("more", [[f"more {n}" for n in self.ids]]) if "more" in columns else rows


@dataclass
class Model:
    """The ids of the table, and which of them a step adds, changes or removes."""

    ids: set[int] = field(default_factory=lambda: set(FIRST))

    def apply(self, step: Step) -> tuple[set[int], set[int]]:
        """Applies a step; returns the ids that it added, and those of rows that it changed or removed."""
        given = set(step.ids)
        known = given & self.ids
        if step.what == "delete":
            self.ids -= given
            return set(), known
        self.ids |= given
        return given - known, known


IDS = st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True).map(tuple)
BATCH = st.one_of(
    st.builds(Step, st.just("append"), st.integers(1, 4).map(lambda n: tuple(range(n)))),
    st.builds(Step, st.sampled_from(["upsert", "delete"]), IDS),
)
MAINTENANCE = st.builds(Step, st.sampled_from(["compact", "others", "evolve"]))
HISTORIES = st.lists(st.one_of(BATCH, BATCH, BATCH, MAINTENANCE), min_size=2, max_size=7)


def numbered(history: list[Step]) -> list[Step]:
    """The history, in which each append has ids of its own."""
    return [
        Step(step.what, tuple(100 * (number + 1) + n for n in step.ids)) if step.what == "append" else step
        for number, step in enumerate(history)
    ]


def is_independent(history: list[Step], undone: int) -> bool:
    """Whether a batch changes anything, and no later one depends on it."""
    model = Model()
    for step in history[:undone]:
        model.apply(step)
    added, changed = model.apply(history[undone])
    if not added and not changed:
        return False
    for step in history[undone + 1 :]:
        touched = set(step.ids) & (added | changed)
        if touched & changed or (touched and step.what != "delete"):
            return False
    return True


def played(table: Tables, history: list[Step], *, without: int | None = None, together: bool = False) -> None:
    """Plays a history; `together`: each batch shares its version with the next one if it may."""
    table.append(words(*FIRST))
    played_on(table, history, range(len(history)), without=without, together=together)


def played_on(
    table: Tables,
    history: list[Step],
    numbers: Iterable[int],
    *,
    without: int | None = None,
    together: bool = False,
) -> None:
    """Plays these steps of a history."""
    waiting: list[tuple[int, Step]] = []
    count = 0
    for number in numbers:
        step = history[number]
        if step.ids:
            # A batch that is left out counts, so that the others are built on the same versions.
            waiting += [(number, step)] if number != without else []
            count += 1
            if not together or count % 2 == 0:
                fold(table, waiting)
            continue
        fold(table, waiting)
        count = 0
        maintain(table, step)
    fold(table, waiting)


def fold(table: Tables, waiting: list[tuple[int, Step]]) -> None:
    """Builds batches on one version and folds them as a group; one that is refused is built again."""
    while waiting:
        view, columns = table.batches.view(), table.columns
        built = [
            (
                number,
                step,
                step.operation(number, columns).build(view, Key("h", number), table.batches.settings()),
            )
            for number, step in waiting
        ]
        sent = [each for each in built if each[2] is not None]
        results = table.batches.fold(*(each[2] for each in sent if each[2] is not None)) if sent else []
        # Those that can't share the version are answered with the next group.
        done = {
            number
            for (number, *_), result in zip(sent, results, strict=False)
            if isinstance(result, Committed)
        }
        left = {number for number, *_ in sent} - done
        waiting[:] = [each for each in waiting if each[0] in left]


def maintain(table: Tables, step: Step) -> None:
    if step.what == "evolve":
        table.evolve()
    elif step.what == "compact" or table.kind == "delta-tracked":
        table.compact()
    else:
        table.compact_by_others()


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORIES, chosen=st.integers(0, 6))
def test_an_undone_batch_was_never_there(kind: str, together: bool, history: list[Step], chosen: int) -> None:  # noqa: FBT001 - a parameter
    history = numbered(history)
    batches = [number for number, step in enumerate(history) if step.ids]
    assume(bool(batches))
    undone = batches[chosen % len(batches)]
    assume(is_independent(history, undone))
    with TemporaryDirectory() as folder:
        table, other = (Tables.made(kind, Path(folder) / name) for name in ("undone", "without"))
        played(table, history, together=together)
        played(other, history, without=undone, together=together)
        table.revert(batches=(("h", undone),))
        assert table.rows() == other.rows()


NEVER = Duplicate(0)


@dataclass(eq=False)
class Played:
    """A batch of a history and what it did to rows; or a revert of `undoes`, or a Restore of `restored`."""

    key: Key
    version: int
    rows: dict[int, str | None] = field(default_factory=dict)
    undoes: tuple[Played, ...] = ()
    restored: int | None = None


def rows_of(history: Sequence[Played]) -> dict[int, str]:
    """The words by id after a history, as if what stands undone at its end had never been."""
    counting: list[Played] = []
    undone: set[Played] = set()
    end = sys.maxsize
    for each in reversed(history):
        if each in undone or each.version > end:
            continue
        counting.append(each)
        undone.update(each.undoes)
        end = end if each.restored is None else each.restored
    rows: dict[int, str | None] = {}
    for each in reversed(counting):
        rows |= each.rows
    return {number: word for number, word in rows.items() if word is not None}


@dataclass
class Program:
    """A table on which batches are written, undone and had again at random, beside what it has to be."""

    table: Tables
    played: list[Played] = field(default_factory=list)
    vanished: set[int] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=count)

    def write(self, steps: Sequence[Step]) -> None:
        """Writes batches as a group. Those that can't share its version are in later ones."""
        rows, waiting = rows_of(self.played), []
        for step in steps:
            number, ids = next(self.numbers), step.ids
            if step.what == "append":
                ids = tuple(100 * (number + 1) + n for n in ids)
            if step.what == "delete":
                # Of a row with the key of one that comes back nothing is promised.
                ids = tuple(n for n in ids if n in rows and n not in self.vanished)
            if ids:
                waiting.append((number, Step(step.what, ids)))
        written = list(waiting)
        fold(self.table, waiting)
        folded = {number: self.table.batches.view().folded(Key("h", number)) for number, _ in written}
        for number, step in sorted(written, key=lambda each: (folded[each[0]] or NEVER).version):
            done = folded[number]
            # A batch that changed nothing was not sent.
            if done is not None:
                rows = rows_of(self.played)
                changed: dict[int, str | None] = {n: f"step {number} {n}" for n in step.ids}
                if step.what == "delete":
                    changed = {n: None for n in step.ids if n in rows}
                self.note(Played(Key("h", number), done.version, changed))

    def undo(self, chosen: Sequence[Played], mode: str) -> None:
        """Undoes some of what was played, unless that is refused."""
        batches = tuple((each.key.app_id, each.key.batch_id) for each in chosen)
        named = {"batches": batches} if all(each.rows for each in chosen) else {"version": chosen[0].version}
        operation = self.table.operation(**named, keys=("id",), **({mode: True} if mode else {}))
        key = Key("r", next(self.numbers))
        try:
            version = self.table.put(operation, key)
        except (PreconditionError, RevertConflictError):
            return
        assert operation.plan is not None
        undone = {each.version: each.keys for each in operation.plan.entries}
        undoes = [
            each
            for each in self.played
            if each.version in undone
            and (not each.rows or each.key.batch_id in {name.batch_id for name in undone[each.version]})
        ]
        self.note(Played(key, version, undoes=tuple(undoes)))

    def write_again(self, batch: Played) -> None:
        """Writes an undone batch again under its key, as `on_rolled_back="again"` does."""
        envelope = UpsertRows(words(*batch.rows, word="again"), Merge(("id",))).build(
            self.table.batches.view(), batch.key, self.table.batches.settings()
        )
        assert envelope is not None
        envelope.after_revert = True
        (result,) = self.table.batches.fold(envelope)
        if isinstance(result, Committed):
            rows: dict[int, str | None] = {number: f"again {number}" for number in batch.rows}
            self.note(Played(batch.key, result.version, rows))

    def restore(self, chosen: Played) -> None:
        """Restores the version of what was played, unless the table is so already."""
        try:
            version = self.table.restore(chosen.version)
        except InvalidError:
            return
        self.note(Played(Key("restore", 0), version, restored=chosen.version))

    def note(self, played: Played) -> None:
        """Notes what was played, and which rows are gone, or are others after a Restore."""
        before = rows_of(self.played)
        self.played.append(played)
        now = rows_of(self.played)
        gone = (n for n in before if n not in now or (played.restored is not None and now[n] != before[n]))
        self.vanished.update(gone)


UNDO = st.tuples(
    st.lists(st.integers(0, 20), min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "keep_later", "with_dependents", "with_dependents"]),
)
ACTION = st.one_of(
    st.lists(BATCH, min_size=1, max_size=3),
    UNDO,
    UNDO,
    UNDO,
    MAINTENANCE,
    st.tuples(st.sampled_from(["again", "restore"]), st.integers(0, 20)),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=st.lists(ACTION, min_size=16, max_size=32))
def test_batches_that_were_undone_in_turn_were_never_there(kind: str, actions: list[Any]) -> None:
    """Also with those that were built on them; some are undone before others are written, or had again."""
    with TemporaryDirectory() as folder:
        program = Program(Tables.made(kind, Path(folder) / "t"))
        version = program.table.append(words(*FIRST), Key("first", 1))
        program.note(Played(Key("first", 1), version, {number: f"first {number}" for number in FIRST}))
        for action in actions:
            batches = [each for each in program.played if each.key.app_id == "h"]
            others = [each for each in program.played if not each.rows]
            match action:
                case Step():
                    maintain(program.table, action)
                case list():
                    program.write(action)
                case list(picks), str(mode):
                    among = batches if batches and (not others or picks[0] % 3) else others
                    chosen = {pick % len(among): among[-1 - pick % len(among)] for pick in picks if among}
                    some = [*chosen.values()] if among is batches else [*chosen.values()][:1]
                    if some:
                        program.undo(some, mode)
                case "again", int(pick) if batches:
                    program.write_again(batches[pick % len(batches)])
                case "restore", int(pick) if len(program.played) > 1:
                    program.restore(program.played[-1 - pick % len(program.played)])
            words_now = sorted((row[:2] for row in program.table.rows()), key=repr)
            assert words_now == sorted(rows_of(program.played).items(), key=repr)
