"""How long the tests took in earlier runs, so that the longest groups begin first.

Each run keeps the seconds of its tests in pytest's cache. A fresh clone has no such cache, and takes the
seconds of groups from `tests/durations.json`, which `python -m tests.durations` writes from the cache.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.distribution import group_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

KEPT: Final = Path(__file__).with_name("durations.json")
CACHE: Final = "lakefold/durations"
LEAST_S: Final = 1.0
"""Groups that take less don't need an order. Without them the file changes less from run to run."""


class Durations:
    """Notes how long each test of a run takes, with its fixtures.

    The processes of pytest-xdist have to collect tests in the same order, so they get the seconds of earlier
    runs from the process that started them.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._cache = config.cache
        self._seconds: dict[str, float] = defaultdict(float)
        self.before: dict[str, float] = kept_groups() | groups_of(self._kept())

    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401 - xdist's own
        """Gives the seconds of earlier runs to a process."""
        node.workerinput[CACHE] = self.before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a phase of a test."""
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Keeps the seconds of this run's tests, and those of earlier runs for the other tests."""
        self._cache.set(CACHE, self._kept() | self._seconds)

    def _kept(self) -> dict[str, float]:
        return dict(self._cache.get(CACHE, {}))


def kept_groups() -> dict[str, float]:
    """Returns the seconds of groups that the repository has."""
    return dict(json.loads(KEPT.read_text()))


def groups_of(tests: Mapping[str, float]) -> dict[str, float]:
    """Returns the sum of the seconds of the tests of each group."""
    groups: defaultdict[str, float] = defaultdict(float)
    for test_id, seconds in tests.items():
        groups[group_of(test_id)] += seconds
    return dict(groups)


def main() -> None:
    """Writes the seconds of the groups in pytest's cache to the repository's file, the longest first."""
    cached = json.loads(Path(".pytest_cache/v", CACHE).read_text())
    groups = kept_groups() | groups_of(cached)
    longest = sorted(groups, key=lambda group: (-groups[group], group))
    seconds = {group: round(groups[group]) for group in longest if groups[group] >= LEAST_S}
    KEPT.write_text(json.dumps(seconds, indent=1) + "\n")


if __name__ == "__main__":
    main()
