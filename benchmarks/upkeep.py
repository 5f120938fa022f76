"""What a maintainer takes to look at a large table: its survey, the plan, and what waits in the log.

The table has many small fragments. No committer runs, so everything that is sent for it waits.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from benchmarks.commits import makers_of
from benchmarks.ground import mould_of
from benchmarks.producing import AHEAD, producers
from lakefold_committer.observability.gc_tuning import collect_seldom
from lakefold_maintenance.planning.plan import plan
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_maintenance.scheduling.waiting_proposals import read_waiting
from lakefold_reader.formats import open_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.ground import Ground

T = TypeVar("T")
REPEATS = 5
PRODUCERS = 4


def measure(ground: Ground, fragments: int, waiting: int) -> dict[str, float]:
    """Plans a table of `fragments`, then reads `waiting` Appends that wait for it."""
    collect_seldom()
    mould = mould_of(ground, "large", fragments)
    surveyor = Surveyor(open_source(ground.uri("large")))
    first, survey = _timed(surveyor.survey)
    again = median(_timed(surveyor.survey)[0] for _ in range(REPEATS))
    plans: dict[str, float] = {}
    for name, full in (("plan, ms", False), ("full plan, ms", True)):
        planned = partial(plan, survey.figures, survey.policy, full=full)
        plans[name] = median(_timed(planned)[0] for _ in range(REPEATS)) * 1000
    with producers(ground, makers_of(mould, PRODUCERS, waiting)) as ready:
        sent = ready.send().count + AHEAD * PRODUCERS
    read = partial(read_waiting, survey, ground.config, ground.topics, ground.group)
    measured = [_timed(read) for _ in range(REPEATS)]
    for _, waits in measured:
        if (waits.count, len(waits.files)) != (sent, sent):
            raise AssertionError(f"{waits.count} of {sent} proposals wait, with {len(waits.files)} files")
    return {
        "fragments": survey.figures.count,
        "survey, ms": first * 1000,
        "survey again, ms": again * 1000,
        **plans,
        "waiting entries": sent,
        "reading what waits, s": median(seconds for seconds, _ in measured),
    }


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """Returns the seconds that the work takes, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
