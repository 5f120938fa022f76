"""Random histories: a batch that is undone leaves the table as it would be without it, if none depends on it.

Promise: a-revert-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

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
from lakefold_table.entry import Committed
from lakefold_table.errors import PreconditionError
from tests.reverting import KINDS, Tables, words

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def may_be_undone(history: list[Step], number: int, *, standing: set[int], since: int) -> bool:
    """Whether what is done to a batch concerns no batch from `since` on that stands.

    Rows that a batch added may have been deleted since.
    """
    step = history[number]
    return not any(
        set(later.ids) & set(step.ids) and not (step.what == "append" and later.what == "delete")
        for at, later in enumerate(history[since:], since)
        if at in standing
    )


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=HISTORIES,
    undoing=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 6)), min_size=2, max_size=5),
)
def test_batches_that_were_undone_one_after_the_other_were_never_there(
    kind: str,
    together: bool,  # noqa: FBT001 - a parameter
    history: list[Step],
    undoing: list[tuple[int, int]],
) -> None:
    """Some are undone before others are written, and some of these are had again."""
    history = numbered(history)
    with TemporaryDirectory() as folder:
        table, other = (Tables.made(kind, Path(folder) / name) for name in ("undone", "without"))
        table.append(words(*FIRST))
        undone: dict[int, int] = {}
        begin = 0
        for end in sorted({*(min(at, len(history)) for at, _ in undoing), len(history)}):
            played_on(table, history, range(begin, end), together=together)
            begin = end
            for at, chosen in undoing:
                number = chosen % len(history)
                standing = set(range(end)) - undone.keys()
                if min(at, len(history)) != end or number >= end or not history[number].ids:
                    continue
                # A batch that changed nothing was not sent.
                is_folded = table.batches.view().folded(Key("h", number)) is not None
                if not is_folded or not may_be_undone(history, number, standing=standing, since=number + 1):
                    continue
                if number not in undone:
                    undone[number] = table.revert(batches=(("h", number),))
                    continue
                # One that others were built on is not undone before them.
                with suppress(PreconditionError, RevertConflictError):
                    table.revert(version=undone[number])
                    del undone[number]
        other.append(words(*FIRST))
        left = [number for number in range(len(history)) if number not in undone]
        played_on(other, history, left, together=together)
        assert table.rows() == other.rows()
