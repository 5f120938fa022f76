"""Which tests `make test` leaves to `make test-all`, so that it takes minutes for everybody.

The gate (`pytest --gate`) keeps more than nine tests of ten, and at least one of each promise in
`docs/operations/promises.md` (`tests/repository/test_tiers.py`). It leaves out two kinds:

- the files and tests in `SECOND`, which repeat for long what others hold for a part: pages of the documents,
  examples, images, storms, further verdicts of delta-spark;
- of the other files that take long, e.g. those that inject a fault at each call of a store or request of a
  broker, two thirds of the tests. Each day it is another third. `--day` repeats a run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tests import durations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

SECOND: Final = frozenset(
    {
        "tests/integration/test_demo.py::test_a_demo_that_is_killed_leaves_nothing_running",
        "tests/integration/test_demo.py::test_ctrl_c_at_the_terminal_leaves_nothing_running",
        "tests/integration/test_delta_spark.py::test_a_table_of_committers_and_delta_spark_is_what_the_model_says",
        "tests/integration/test_delta_spark.py::test_its_verdicts_on_operations_are_the_recorded_ones",
        "tests/integration/test_delta_spark.py::test_its_verdicts_on_pairs_are_the_recorded_ones",
        "tests/integration/test_examples.py",
        "tests/integration/test_image.py",
        "tests/integration/test_operations.py",
        "tests/integration/test_pages.py",
        "tests/integration/test_retried_tasks.py",
        "tests/integration/test_s3_race.py",
    }
)
"""Files, or tests with all their parameters, that only `make test-all` runs."""

LONG_S: Final = 15
"""Of files that take longer than so many seconds, by `tests/durations.json`, each day has a part."""

PARTS: Final = 3
"""In so many days all tests of such a file are played."""

SECONDS_A_DAY: Final = 86_400


def add_options(parser: pytest.Parser) -> None:
    """Adds `--gate` and `--day`."""
    parser.addoption("--gate", action="store_true", help="leave out what only `make test-all` runs")
    parser.addoption(
        "--day",
        type=int,
        metavar="N",
        help="with --gate: play the points of this day, as an earlier run has printed it (else of today)",
    )


def choose_day(config: pytest.Config) -> None:
    """Sets the day if none was given. The processes of pytest-xdist get it from the first one."""
    if config.option.day is None:
        config.option.day = int(time.time()) // SECONDS_A_DAY


def in_gate(test_ids: Iterable[str], seconds: Mapping[str, int], day: int) -> set[str]:
    """Returns the ids of the tests that the gate runs on this day, out of these.

    `seconds`: how long the tests of each file take.
    """
    of_files: dict[str, list[str]] = {}
    for test_id in test_ids:
        file, function = test_id.partition("::")[0], test_id.partition("[")[0]
        if file not in SECOND and function not in SECOND:
            of_files.setdefault(file, []).append(test_id)
    chosen = set[str]()
    for file, tests in of_files.items():
        due = [each for each in tests if (crc32(each.encode()) + day) % PARTS == 0]
        chosen.update(tests if seconds.get(file, 0) <= LONG_S else due or tests[:1])
    return chosen


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the tests that the gate doesn't run, if `--gate` is given, and reports them as deselected."""
    if not config.option.gate:
        return
    chosen = in_gate([item.nodeid for item in items], durations.kept(), config.option.day)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
