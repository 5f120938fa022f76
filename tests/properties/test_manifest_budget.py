"""The budget of manifest bytes, for every table and every stream of entries."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from lakefold_committer.fold.manifest_budget import WINDOW_SECONDS, ManifestBudget, ManifestLimits

limits_of_any_size = st.builds(
    ManifestLimits, st.integers(1, 10**9), st.floats(0.01, 5.0, allow_nan=False, allow_infinity=False)
)
sizes = st.integers(1, 10**9)
pauses = st.floats(0.0, 30.0, allow_nan=False, allow_infinity=False)


@dataclass(frozen=True)
class Written:
    """A version: when it was written, its bytes, how long it waited, whether for too long."""

    at: float
    size: int
    waited: float
    is_forced: bool


def written(limits: ManifestLimits, versions: list[tuple[float, int]]) -> list[Written]:
    """Writes versions, each as soon as it may be: some seconds after the version before, of some bytes."""
    budget, now, all_written = ManifestBudget(), 0.0, []
    for pause, size in versions:
        now += pause
        # The bytes of the next manifest are known here: a real one differs from the last by some fragments.
        expected = ManifestBudget(budget.used, budget.at, size)
        wait = expected.wait_s(now, limits)
        now += wait
        forced = expected.wait_s(now, limits) > 1e-6 * limits.max_wait_s
        budget = expected.spent(size, now, limits)
        all_written.append(Written(now, size, wait, forced))
    return all_written


@given(limits_of_any_size, st.lists(st.tuples(pauses, sizes), max_size=60))
@example(ManifestLimits(1000, 1.0), [(0.0, 900)] * 60)
def test_no_minute_has_more_than_the_rate_gives(
    limits: ManifestLimits, versions: list[tuple[float, int]]
) -> None:
    ended = written(limits, versions)
    for index, first in enumerate(ended):
        minute = [each for each in ended[index:] if each.at < first.at + WINDOW_SECONDS]
        if any(each.is_forced or each.size > limits.stock for each in minute):
            continue
        assert sum(each.size for each in minute) <= limits.bytes_per_second * WINDOW_SECONDS * (1 + 1e-6)


@given(limits_of_any_size, st.lists(st.tuples(pauses, sizes), max_size=30))
def test_no_version_waits_longer_than_it_may(
    limits: ManifestLimits, versions: list[tuple[float, int]]
) -> None:
    assert all(each.waited <= limits.max_wait_s for each in written(limits, versions))


@given(st.integers(1, 10**6), st.lists(sizes, min_size=1, max_size=30))
def test_a_table_that_owes_much_has_its_pace_again_after_one_manifest(rate: int, large: list[int]) -> None:
    limits = ManifestLimits(rate, 1.0)
    last = written(limits, [(0.0, size) for size in large])[-1]
    budget, now = ManifestBudget(), 0.0
    for size in large:
        now += budget.wait_s(now, limits)
        budget = budget.spent(size, now, limits)
    recovered = now + last.size / limits.refill
    small = ManifestBudget(budget.used, budget.at, 0)
    assert small.wait_s(recovered, limits) <= 1e-6


@given(sizes, pauses)
def test_without_a_limit_nothing_waits(size: int, pause: float) -> None:
    limits = ManifestLimits(0, 1.0)
    assert ManifestBudget(used=1e12, at=0.0, size=size).wait_s(pause, limits) == 0
