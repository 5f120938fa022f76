"""Which tests `make test` leaves to `make test-all`, so that it takes minutes for everybody.

The gate (`pytest --gate`) keeps at least one test of each promise in `docs/operations/promises.md`
(`tests/repository/test_tiers.py`). It leaves out two kinds:

- the files and tests in `SECOND`, which repeat for long what others hold for a part: pages of the documents,
  examples, images, storms, further verdicts of delta-spark;
- half of the points in the files of `POINTS`, which inject a fault at each call of a store, request of a
  broker or step of a committer. It is the other half each day, so that two days have them all. `--day`
  repeats a run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

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

POINTS: Final = frozenset(
    {
        "tests/faults/broker/test_cut_connections.py",
        "tests/faults/broker/test_questions.py",
        "tests/faults/test_disk.py",
        "tests/faults/test_links.py",
        "tests/integration/test_external_faults.py",
        "tests/integration/test_log_cut_short.py",
        "tests/integration/test_s3_delta.py",
        "tests/oracle/test_drop_while_cleaning.py",
        "tests/oracle/test_refs_while_cleaning.py",
        "tests/scenarios/test_power_cuts.py",
        "tests/simulation/test_delta_format.py",
        "tests/simulation/test_each_step.py",
        "tests/simulation/test_seeds.py",
    }
)
"""Files whose parametrized tests are points: of each test the first one and half of the others are played."""

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


def in_gate(test_ids: Iterable[str], day: int) -> set[str]:
    """Returns the ids of the tests that the gate runs on this day, out of these, which are in order."""
    chosen, functions = set[str](), set[str]()
    for test_id in test_ids:
        function, file = test_id.partition("[")[0], test_id.partition("::")[0]
        if file in SECOND or function in SECOND:
            continue
        is_first = function not in functions
        functions.add(function)
        if file not in POINTS or is_first or (crc32(test_id.encode()) + day) % 2 == 0:
            chosen.add(test_id)
    return chosen


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the tests that the gate doesn't run, if `--gate` is given, and reports them as deselected."""
    if not config.option.gate:
        return
    chosen = in_gate([item.nodeid for item in items], config.option.day)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
