"""Rewrites that fail: what may pass is tried again in later rounds, what lasts is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_maintenance.rewriting.engines import InProcess
from lakefold_maintenance.scheduling.failed_fragments import MOST_ROUNDS, TRIES
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    NoMemoryError,
    NotATableError,
    PreconditionError,
    RetryError,
    StopError,
    VersionExpiredError,
)
from tests.oracle.test_compacting import made
from tests.oracle.test_upkeep import Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_table.errors import LakefoldError

PASSING = [
    RetryError("no space left on device"),
    NoMemoryError("no memory"),
    StopError("another process"),
    VersionExpiredError("another maintainer has removed the version", oldest=2),
]
LASTING = [
    DamagedError("not a file of Lance"),
    InvalidError("may not write"),
    PreconditionError("is dropped"),
    NotATableError("is gone"),
]
ROUNDS = 31


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    return Surroundings(made(tmp_path / "t", stable=False, version="2.1"))


@pytest.mark.parametrize("error", [*PASSING, *LASTING], ids=lambda error: type(error).__name__)
def test_what_may_pass_is_tried_again_in_rounds_that_become_rarer(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, error: LakefoldError
) -> None:
    def ended(_: InProcess, __: TableSurvey, tasks: Sequence[RewriteTask]) -> Iterator[object]:
        yield from ((task, error) for task in tasks)

    monkeypatch.setattr(InProcess, "ended", ended)
    upkeep = around.upkeep(target_rows="40", cleanup="false")
    tried, shown = list[int](), list[float | None]()
    for number in range(ROUNDS):
        tried += [number] if upkeep.round().compaction.failed else []
        shown.append(around.metric("passed_over_fragments"))
    assert tried[:TRIES] == list(range(TRIES))
    pauses = [after - before - 1 for before, after in zip(tried[TRIES - 1 :], tried[TRIES:], strict=False)]
    if error in LASTING:
        assert pauses == []
        assert around.metric("passed_over_fragments") == 8
        return
    assert pauses == [1, 2, 4, MOST_ROUNDS, MOST_ROUNDS]
    assert set(shown[TRIES:]) == {8}
    monkeypatch.undo()
    done = [upkeep.round().compaction.tasks for _ in range(MOST_ROUNDS + 1)]
    assert sum(done) == 2
    upkeep.round()
    assert around.metric("passed_over_fragments") == 0


def test_the_next_round_does_the_work_after_a_failure_that_has_passed(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = around.upkeep(target_rows="40", cleanup="false")
    for _ in range(TRIES - 1):
        with monkeypatch.context() as patch:
            patch.setattr(InProcess, "ended", lambda *given: ((task, PASSING[0]) for task in given[2]))
            assert len(upkeep.round().compaction.failed) == 2
    assert upkeep.round().compaction.tasks == 2
