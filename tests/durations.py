"""How long the tests of each file take: kept from run to run, so that the longest begin first.

`make test-all` measures all files and writes `tests/durations.json`, which is committed with the change. A
file that isn't in it takes less than a second, or is new.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

KEPT: Final = Path(__file__).with_name("durations.json")


def kept() -> dict[str, int]:
    """Returns the seconds of each file of tests in the last whole run, by its path below the repository."""
    seconds: dict[str, int] = json.loads(KEPT.read_text(encoding="utf-8"))
    return seconds


def merged(before: Mapping[str, int], seconds: Mapping[str, float]) -> dict[str, int]:
    """Returns the seconds of `before` with those of the files that ran now, whole and without zeros."""
    now = {**before} | {file: round(each) for file, each in seconds.items()}
    return {file: now[file] for file in sorted(now) if now[file]}


class Stopwatch:
    """Adds up how long the tests of each file take, in all processes of a run, and writes that at its end."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a test, its fixtures too. In a run of several processes the first one gets all reports."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes the seconds of the files that ran, and those of the others as they were."""
        text = json.dumps(merged(kept(), self._seconds), indent=0)
        KEPT.write_text(text + "\n", encoding="utf-8")
