"""Plans which fragments are rewritten together: a pure function of their figures and the policy.

Fragments have a weight: their live rows and bytes as a share of the target, the larger of the two. Weights
fall into size classes, each `growth` times larger than the next: class 0 has reached the target, class 1 has
at least a `growth`-th of it, and so on. Adjacent fragments are joined only if the result is in a larger class
than each of them. So every rewrite moves a row to a larger class, and a row is rewritten at most once for
each class between its first fragment and the target: about log(target / first size) to the base `growth`.

Fragments are adjacent if no other is between them in the table. Fragments that are covered by different
indices are not joined, as in Lance's own compaction (Lance fact 10.3). A fragment of which many rows are
deleted is rewritten alone if it can't be joined. Of very many tiny fragments only some are joined at once
(`MOST_JOINED`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_maintenance.planning.fragments import FragmentFigures
    from lakefold_maintenance.planning.policy import MaintenancePolicy

SMALLEST_CLASS = 62
"""The class of fragments without live rows, and the smallest one."""

MOST_JOINED = 4096
"""How many fragments a task joins at most. Its proposal names all of them: of a Delta table 64,000 would take
more memory than committers have for one, and the line that says where their rows went may have 8 MB."""

ROUNDING = 1e-9
"""Sums of weights may be off by this much: ten tenths are less than 1."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Adjacent fragments that are rewritten together, in their order.

    `rows`: the live rows, which are in the new fragment. `bytes`: those of the data files that are read.
    """

    fragment_ids: tuple[int, ...]
    rows: int
    deleted: int
    bytes: int


def plan(
    fragments: FragmentFigures,
    policy: MaintenancePolicy,
    *,
    passed_over: Collection[int] = (),
    full: bool = False,
) -> list[RewriteTask]:
    """Returns the tasks, those that join the most fragments first. No fragment is in two of them.

    `passed_over`: ids of fragments that stay as they are. `full`: join all adjacent small fragments, whatever
    their size class, as a compaction by hand should; then a row may be rewritten more often.
    """
    if not fragments.count:
        return []
    weights = weights_of(fragments, policy)
    free = ~np.isin(fragments.ids, np.fromiter(passed_over, np.int64, len(passed_over)))
    planned = _Planning(fragments, weights, free)
    classes = classes_of(weights, policy.growth)
    sizes = [1] if full else [number for number in np.unique(classes).tolist() if number]
    # The largest class first: what it takes is not rewritten for a smaller class before.
    for number in sizes:
        least = 0.0 if full else float(policy.growth) ** (1 - number)
        planned.join(classes >= number, least)
    planned.rewrite_alone(fragments.deleted_share >= policy.deleted_share)
    return list(planned.tasks())


def weights_of(fragments: FragmentFigures, policy: MaintenancePolicy) -> NDArray[np.float64]:
    """Returns the size of each fragment as a share of the target, from 0 on."""
    live = fragments.live
    live_bytes = fragments.bytes * (live / np.maximum(fragments.rows, 1))
    weights: NDArray[np.float64] = np.maximum(live / policy.target_rows, live_bytes / policy.target_bytes)
    return weights


def classes_of(weights: NDArray[np.float64], growth: int) -> NDArray[np.int64]:
    """Returns the size class of each weight: 0 from the target on, and higher for smaller weights."""
    bounds = float(growth) ** -np.arange(SMALLEST_CLASS, -1, -1.0)
    return SMALLEST_CLASS + 1 - np.searchsorted(bounds, weights, side="right").clip(1)


class _Planning:
    """The parts that are rewritten so far, and which fragments are still free: one that isn't ends a run."""

    def __init__(
        self, fragments: FragmentFigures, weights: NDArray[np.float64], free: NDArray[np.bool_]
    ) -> None:
        self._fragments = fragments
        self._weights = weights
        self._free = free
        self._sums = _sums(weights)
        self._parts: list[tuple[int, int]] = []

    def join(self, chosen: NDArray[np.bool_], least: float) -> None:
        """Joins runs of chosen fragments to at least this weight, and to the target if it is reached."""
        least *= 1 - ROUNDING
        parts = [
            part for begin, end in self._runs(chosen, least) for part in _parts(self._sums, begin, end, least)
        ]
        self._parts += parts
        if parts:
            begins, ends = np.array(parts).T
            steps = np.bincount(begins, minlength=len(self._free) + 1)
            steps -= np.bincount(ends, minlength=len(self._free) + 1)
            self._free &= np.cumsum(steps)[:-1] == 0

    def rewrite_alone(self, chosen: NDArray[np.bool_]) -> None:
        """Rewrites each of the chosen fragments that is still free."""
        alone = np.flatnonzero(chosen & self._free).tolist()
        self._parts.extend((index, index + 1) for index in alone)

    def tasks(self) -> Iterator[RewriteTask]:
        """Yields the tasks, those that join the most fragments first."""
        fragments = self._fragments
        ids = fragments.ids.tolist()
        live, deleted, size = map(_sums, (fragments.live, fragments.deleted, fragments.bytes))
        parts = np.array(self._parts, np.int64).reshape(-1, 2)
        order = np.lexsort((parts[:, 0], parts[:, 0] - parts[:, 1]))
        for begin, end in parts[order].tolist():
            yield RewriteTask(
                tuple(ids[begin:end]),
                live[end] - live[begin],
                deleted[end] - deleted[begin],
                size[end] - size[begin],
            )

    def _runs(self, chosen: NDArray[np.bool_], least: float) -> Iterator[tuple[int, int]]:
        """Yields the first index and the end of each run of adjacent fragments that can be joined."""
        indices = np.flatnonzero(chosen & self._free)
        if not len(indices):
            return
        coverages = self._fragments.coverages[indices]
        breaks = np.flatnonzero((np.diff(indices) > 1) | (np.diff(coverages) != 0)) + 1
        starts = np.concatenate(([0], breaks))
        lengths = np.diff(starts, append=len(indices))
        worth = (lengths > 1) & (np.add.reduceat(self._weights[indices], starts) >= least)
        begins = indices[starts[worth]]
        yield from zip(begins.tolist(), (begins + lengths[worth]).tolist(), strict=True)


def _sums(column: NDArray[np.int64] | NDArray[np.float64]) -> list[Any]:
    """Returns the sum of the first n values for each n from 0 on."""
    sums: list[Any] = np.concatenate(([0], np.cumsum(column))).tolist()
    return sums


def _parts(sums: Sequence[float], begin: int, end: int, least: float) -> Iterator[tuple[int, int]]:
    """Yields the parts into which a run is divided: each ends once it has reached the target, or is full.

    `sums`: those of the first n weights, for each n. The rest behind the last part is left out if it has less
    than `least`, or is a single fragment.
    """
    while begin < end:
        most = min(begin + MOST_JOINED, end)
        last = min(bisect_left(sums, sums[begin] + 1.0 - ROUNDING, begin + 1, most), most)
        if last - begin > 1 and sums[last] - sums[begin] >= least:
            yield begin, last
        begin = last
