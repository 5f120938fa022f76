"""Random histories of a branch and its main branch: a promote equals the same batches sent to main.

Promise: a-promote-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefold_ingest.proposals.key import Key
from lakefold_ingest.revert.conflicts import PromoteConflictError
from lakefold_table.entry import Committed
from tests.promoting import Branched
from tests.properties.test_revert_histories import Step, maintain
from tests.reverting import Tables, words

EXAMPLES = 300 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 8
FIRST = range(12)
"""The ids that the table begins with; each side adds ids of its own."""
OWN = {"main": range(20, 26), "branch": range(30, 36)}


def steps(side: str, *, shared: bool) -> st.SearchStrategy[list[tuple[str, Step]]]:
    """Steps of a side: with ids of its own and half of the first ones, or with all of the first ones."""
    half = range(6) if side == "main" else range(6, 12)
    ids = st.lists(st.sampled_from([*(FIRST if shared else half), *OWN[side]]), min_size=1, max_size=4)
    batch = st.builds(
        Step, st.sampled_from(["upsert", "delete"]), ids.map(lambda each: tuple(sorted(set(each))))
    )
    append = st.builds(Step, st.just("append"), st.integers(1, 3).map(lambda count: tuple(range(count))))
    maintenance = st.builds(Step, st.sampled_from(["compact", "others"]))
    return st.lists(st.tuples(st.just(side), st.one_of(batch, batch, append, maintenance)), max_size=5)


def histories(*, shared: bool) -> st.SearchStrategy[list[tuple[str, Step]]]:
    """Steps of both sides in any order, with promotes in between."""
    promotes = st.lists(st.just(("promote", Step("promote"))), max_size=2)
    each = st.tuples(steps("main", shared=shared), steps("branch", shared=shared), promotes)
    return each.flatmap(lambda parts: st.permutations([step for part in parts for step in part]))


def applied(table: Tables, step: Step, number: int) -> None:
    """Applies a step; an append has ids that no other step has."""
    if not step.ids:
        maintain(table, step)
        return
    if step.what == "append":
        step = Step("append", tuple(100 * (number + 1) + each for each in step.ids))
    table.batches.put(step.operation(number, ["id", "word"]), Key("h", number))


def played(kind: str, folder: Path, history: list[tuple[str, Step]]) -> bool:
    """Plays a history and promotes at its end; returns whether no promote was refused.

    After each promote the main branch has the rows of a table that got the same batches then.
    """
    main, other = (Tables.made(kind, folder / name) for name in ("t", "u"))
    for each in (main, other):
        each.append(words(*FIRST))
    table, waiting = Branched.begun(main), list[tuple[Step, int]]()
    for number, (side, step) in enumerate([*history, ("promote", Step("promote"))]):
        if side == "promote":
            try:
                result = table.promote()
            except PromoteConflictError:
                return False
            assert result is None or isinstance(result, Committed), result
            for batch, at in waiting:
                applied(other, batch, at)
            waiting.clear()
            assert main.rows() == other.rows()
        elif side == "main":
            for each in (main, other):
                applied(each, step, number)
        else:
            applied(table.branch, step, number)
            waiting += [(step, number)] if step.ids else []
    return True


@pytest.mark.parametrize("kind", ["lance", "lance-ids"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(shared=False))
def test_it_equals_the_same_batches_if_rows_are_disjoint(kind: str, history: list[tuple[str, Step]]) -> None:
    with TemporaryDirectory() as folder:
        assert played(kind, Path(folder), history), "it is never refused"


@pytest.mark.parametrize("kind", ["lance", "lance-ids"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(shared=True))
def test_it_equals_the_same_batches_or_is_refused(kind: str, history: list[tuple[str, Step]]) -> None:
    with TemporaryDirectory() as folder:
        played(kind, Path(folder), history)
