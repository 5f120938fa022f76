"""Plans of compactions: what holds for all fragments, and what a stream of appends costs."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_maintenance.planning.fragments import FragmentFigures, coverages_of
from lakefold_maintenance.planning.plan import MOST_JOINED, RewriteTask, classes_of, plan, weights_of
from lakefold_maintenance.planning.policy import MaintenancePolicy

POLICY = MaintenancePolicy(target_rows=1000, target_bytes=10_000, growth=4)


def figures(rows: list[tuple[int, int, int, int]]) -> FragmentFigures:
    """Fragments of these rows, deleted rows, bytes and coverages, with gaps between their ids."""
    columns = np.array(rows, np.int64).reshape(-1, 4)
    ids = np.arange(len(rows), dtype=np.int64) * 3 + 1
    return FragmentFigures(
        ids, columns[:, 0], np.minimum(columns[:, 1], columns[:, 0]), columns[:, 2], columns[:, 3]
    )


def same(count: int, rows: int, *, deleted: int = 0) -> list[tuple[int, int, int, int]]:
    return [(rows, deleted, rows * 10, 0)] * count


FRAGMENTS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 40), st.integers(0, 3000)),
        st.one_of(st.just(0), st.integers(0, 500)),
        st.integers(0, 20_000),
        st.integers(0, 1),
    ),
    max_size=120,
).map(figures)
POLICIES = st.builds(
    MaintenancePolicy,
    target_rows=st.integers(1, 3000),
    target_bytes=st.integers(1, 30_000),
    growth=st.integers(2, 20),
    deleted_share=st.floats(0.01, 1),
)


@given(FRAGMENTS, POLICIES, st.sets(st.integers(0, 400), max_size=20), st.booleans())
def test_each_task_rewrites_adjacent_free_fragments_of_one_coverage_in_their_order(
    fragments: FragmentFigures,
    policy: MaintenancePolicy,
    passed_over: set[int],
    full: bool,  # noqa: FBT001 - drawn by the test
) -> None:
    tasks = plan(fragments, policy, passed_over=passed_over, full=full)
    named = list(chain.from_iterable(task.fragment_ids for task in tasks))
    assert len(named) == len(set(named))
    assert not passed_over & set(named)
    index = {number: at for at, number in enumerate(fragments.ids.tolist())}
    for task in tasks:
        indices = [index[number] for number in task.fragment_ids]
        assert indices == list(range(indices[0], indices[0] + len(indices)))
        assert len(set(fragments.coverages[indices].tolist())) == 1
        assert task.rows == fragments.live[indices].sum()
        assert task.deleted == fragments.deleted[indices].sum()
        assert task.bytes == fragments.bytes[indices].sum()


@given(FRAGMENTS, POLICIES)
def test_each_joined_row_moves_to_a_larger_class(
    fragments: FragmentFigures, policy: MaintenancePolicy
) -> None:
    weights = weights_of(fragments, policy)
    classes = classes_of(weights, policy.growth)
    index = {number: at for at, number in enumerate(fragments.ids.tolist())}
    for task in plan(fragments, policy):
        indices = [index[number] for number in task.fragment_ids]
        if len(indices) == 1:
            assert fragments.deleted_share[indices[0]] >= policy.deleted_share
            continue
        # A little more than the sum, because sums of numbers with a point differ by their order.
        after = classes_of(np.array([weights[indices].sum() * (1 + 1e-9)]), policy.growth)[0]
        assert after < classes[indices].min()
        assert weights[indices[:-1]].sum() < 1 + 1e-9


@given(FRAGMENTS, POLICIES)
def test_a_full_plan_leaves_no_two_small_fragments_side_by_side(
    fragments: FragmentFigures, policy: MaintenancePolicy
) -> None:
    named = set(chain.from_iterable(task.fragment_ids for task in plan(fragments, policy, full=True)))
    small = weights_of(fragments, policy) < 1
    left = [
        bool(each) and number not in named for each, number in zip(small, fragments.ids.tolist(), strict=True)
    ]
    for first in range(fragments.count - 1):
        if left[first] and left[first + 1]:
            assert fragments.coverages[first] != fragments.coverages[first + 1]


def test_nothing_is_done_on_a_table_at_its_target() -> None:
    fragments = figures([*same(50, 1000), (1100, 50, 11_000, 0), (5, 0, 50, 0)])
    assert plan(fragments, POLICY) == []
    assert plan(fragments, POLICY, full=True) == []


def test_nothing_is_done_on_an_empty_table() -> None:
    assert plan(figures([]), POLICY) == []


def test_fragments_of_different_coverage_are_not_joined() -> None:
    covered = [(10, 0, 100, 1)] * 8
    fragments = figures([*covered, *same(8, 10)])
    assert [len(task.fragment_ids) for task in plan(fragments, POLICY, full=True)] == [8, 8]


def test_deleted_rows_are_removed_from_a_large_fragment() -> None:
    fragments = figures([*same(1, 2000), *same(1, 4000, deleted=400), *same(1, 4000, deleted=399)])
    assert plan(fragments, POLICY) == [RewriteTask((4,), 3600, 400, 40_000)]


def test_a_run_is_divided_where_the_target_is_reached() -> None:
    tasks = plan(figures(same(25, 100)), POLICY, full=True)
    assert [len(task.fragment_ids) for task in tasks] == [10, 10, 5]


@pytest.mark.parametrize("full", [False, True])
def test_very_many_tiny_fragments_are_joined_in_several_tasks(*, full: bool) -> None:
    """A single proposal would be too large for a committer, and the table could never be compacted."""
    count = 3 * MOST_JOINED + 1
    tasks = plan(figures([(1, 0, 700, 0)] * count), MaintenancePolicy(), full=full)
    assert [len(task.fragment_ids) for task in tasks] == [MOST_JOINED] * 3
    assert {*range(1, 3 * count - 2, 3)} == set(chain.from_iterable(task.fragment_ids for task in tasks))


def test_coverages_distinguish_any_number_of_indices() -> None:
    ids = np.arange(6, dtype=np.int64)
    indices = [{0, 1, 2}, {0, 1}, None, *([{0, 1, 2, 3}] * 80)]
    first, second, third, fourth, fifth, sixth = coverages_of(ids, indices).tolist()
    assert first == second
    assert fifth == sixth
    assert len({first, third, fourth, fifth}) == 4


def simulated(appends: int, rows: int, policy: MaintenancePolicy, every: int) -> tuple[float, int]:
    """A stream of equal appends, compacted after every few of them.

    Returns how often a row was rewritten on average, and the most fragments that there were.
    """
    sizes: list[int] = []
    rewritten = most = 0
    for number in range(1, appends + 1):
        sizes.append(rows)
        if number % every == 0:
            tasks = plan(figures([(size, 0, size, 0) for size in sizes]), policy)
            index = {3 * at + 1: at for at in range(len(sizes))}
            gone = {index[each] for task in tasks for each in task.fragment_ids}
            sizes = [size for at, size in enumerate(sizes) if at not in gone] + [task.rows for task in tasks]
            rewritten += sum(task.rows for task in tasks)
            most = max(most, len(sizes))
    return rewritten / (appends * rows), most


@pytest.mark.parametrize(("growth", "every"), [(4, 1), (4, 7), (8, 3), (16, 20)])
def test_a_row_of_a_stream_is_rewritten_about_log_n_times(growth: int, every: int) -> None:
    policy = replace(POLICY, target_rows=40_000, target_bytes=10**9, growth=growth)
    rewritten, most = simulated(2500, 50, policy, every)
    classes = math.ceil(math.log(policy.target_rows / 50, growth))
    assert 0.5 < rewritten <= classes
    full_ones = 2500 * 50 / policy.target_rows
    assert most <= full_ones + classes * growth * (1 + every / growth) + every


def test_a_plan_of_100_000_fragments_takes_less_than_200_milliseconds() -> None:
    random = np.random.default_rng(7)
    count = 100_000
    rows = random.choice([200, 3_000, 50_000, 900_000, 1_100_000], count)
    fragments = FragmentFigures(
        np.arange(count, dtype=np.int64),
        rows,
        (rows * random.choice([0, 0, 0.2], count)).astype(np.int64),
        rows * 100,
        random.integers(0, 2, count).cumsum() // 50,
    )
    seconds, tasks = [], list[RewriteTask]()
    for _ in range(10):
        begin = time.process_time()
        tasks = plan(fragments, MaintenancePolicy())
        seconds.append(time.process_time() - begin)
    assert len(tasks) > 1000
    assert min(seconds) < 0.2
