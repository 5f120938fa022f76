"""What every test has in common: its marker follows from its folder.

A test says by its place what it needs. Everything outside `tests/integration`, `tests/faults/broker`,
`tests/azure` and `tests/clients` runs with no server and no Spark, so that `make test-fast` stays under a
minute.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

import tests.memory_storage  # noqa: F401 - it opens `memory://`
from lakefold.local import ports
from tests import durations, tiers
from tests.distribution import in_order, is_integration, pytest_xdist_make_scheduler
from tests.scratch import Scratch, scratch_in_memory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = ["pytest_xdist_make_scheduler"]

TESTS = Path(__file__).parent
FAST = {
    "unit",
    "contracts",
    "spec",
    "properties",
    "oracle",
    "scenarios",
    "simulation",
    "golden",
    "repository",
    "deploy",
    "faults",
}
COMPUTING = {"properties", "simulation", "scenarios", "oracle", "faults", "contracts"}
# A broker or a Spark session may take many seconds to start on two busy cores. What a test waits for has a
# limit of its own, so that a test that hangs says where.
INTEGRATION_TIMEOUT_SECONDS = 600
# Tests that compute for seconds take minutes beside other work.
COMPUTING_TIMEOUT_SECONDS = 600
# The first test of a client installs it.
CLIENTS_TIMEOUT_SECONDS = 1200
# Tests that other test files take over.
pytest.register_assert_rewrite("tests.contracts.behaviour")
# How long an example takes says how busy the machine is; a test as a whole has its time limit. Each run plays
# the same examples, so that a change fails for what it does, and not for what a run happened to draw.
settings.register_profile(
    "usual", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("usual")
# `pytest --hypothesis-profile=long`: tests that can play more than a test run has time for do so.
settings.register_profile(
    "long", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)


SCRATCH = pytest.StashKey[Scratch]()
FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the run's files in memory, and lets tests send Ctrl-C to processes.

    Processes of a runner in the background ignore Ctrl-C from the start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if (worker := getattr(config, "workerinput", None)) is not None:
        # Two processes never choose the same port: neither while a server starts, nor while one is away. A
        # process that replaces a crashed one has a higher number than those before it: gw4 after gw0 to gw3.
        number, count = int(worker["workerid"].removeprefix("gw")), 2 * worker["workercount"]
        own = ports.below_outgoing()[number % count :: count]
        pytest.MonkeyPatch().setattr(ports, "below_outgoing", lambda: own)
    # A process of pytest-xdist has inherited the folder of its run.
    is_run = not hasattr(config, "workerinput")
    tiers.choose_day(config)
    if is_run and config.option.keep_durations:
        config.pluginmanager.register(durations.Stopwatch())
    if is_run and not config.option.basetemp and (scratch := scratch_in_memory()) is not None:
        config.stash[SCRATCH] = scratch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which tests run: the gate or all of them, every point of fault injection or some."""
    tiers.add_options(parser)
    parser.addoption(
        "--keep-durations", action="store_true", help="write how long each file takes to tests/durations.json"
    )
    parser.addoption(
        "--all-faults", action="store_true", help="play every point of the fault-injection tests"
    )
    parser.addoption(
        "--fault-points",
        default="1:",
        metavar="FIRST:LAST",
        help="with --all-faults: which points of an act to play, from 1 on (126: for all from the 126th on)",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says which tests the gate has run."""
    if config.option.gate:
        terminalreporter.write_line(
            f"the gate ran the tests of day {config.option.day}, as does --gate --day={config.option.day}"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its folder; a folder that is not known is an error, not an unmarked test."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if is_integration(item.path.relative_to(TESTS.parent)):
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))
        elif folder == "azure":
            item.add_marker(pytest.mark.azure)
            item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_SECONDS))
        elif folder == "clients":
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.timeout(CLIENTS_TIMEOUT_SECONDS))
        elif folder in FAST:
            item.add_marker(pytest.mark.fast)
            if folder in COMPUTING and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(COMPUTING_TIMEOUT_SECONDS))
        else:
            known = sorted(FAST | {"integration", "azure", "clients"})
            raise pytest.UsageError(f"{item.path}: tests lie in one of {known}")
    tiers.leave_out(config, items)
    in_order(items, durations.kept())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage meanwhile: almost nothing becomes any, and to look takes a seventh of the time.

    The process that pytest-xdist's processes report to collects nothing, but gets here as well.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keeps what was imported out of later garbage collections, which would visit all of it each time."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keeps the files of tests that failed."""
    session.config.stash[FAILED] = exitstatus != pytest.ExitCode.OK


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the run's files.

    DuckDB reports objects of its own that are left when the interpreter ends, so then that may collect
    everything. Else nothing does: that takes a second, and pytest's own last collections would take two.
    """
    if (scratch := config.stash.get(SCRATCH, None)) is not None:
        scratch.close(keep=config.stash.get(FAILED, False))
    if "duckdb" in sys.modules:
        atexit.register(gc.unfreeze)


@pytest.fixture(scope="session")
def all_faults(pytestconfig: pytest.Config) -> bool:
    """Whether races and random faults run for long, as in `make test-faults`, or for a part of that."""
    return bool(pytestconfig.getoption("--all-faults"))


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A test that runs the command line in this process sends all log lines to a stream that is its own."""
    yield
    structlog.reset_defaults()
