"""A process that ends before its `lakefold.Writer` was closed keeps its exit code and its rows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import running_committer
from tests.integration.own_log import PATIENCE_S, OwnLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import TopicNames

PROGRAM = """
import atexit, os, signal, sys
import numpy, pyarrow
import lakefold

kept = []
{before}
writer = lakefold.Writer(
    sys.argv[1], max_delay={max_delay}, bootstrap_servers=sys.argv[2], transactions_topic=sys.argv[3],
    outcomes_topic=sys.argv[4], timeout={timeout}
)
kept.append(writer)
rows = pyarrow.table({{"n": range(3)}})
future = writer.append(rows)
{after}
"""
WAITS = "waits up to {timeout:g} s for the outcomes of {rows} more rows (appends: 1)"
FORKED = """
child = os.fork()
if child == 0:
    signal.alarm(60)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.fixture
def arguments(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> Iterator[list[str]]:
    """The table, and the log, which a committer folds."""
    OwnLog.make(bootstrap, topic_names)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        yield [str(tmp_path / "t"), bootstrap, topic_names.transactions, topic_names.outcomes]
    close_clients()


def end_of(
    arguments: list[str], after: str = "", before: str = "", max_delay: float = 600
) -> tuple[int, str]:
    """Returns the exit code and what was logged."""
    program = PROGRAM.format(before=before, after=after, max_delay=max_delay, timeout=PATIENCE_S)
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return process.returncode, process.stderr


@pytest.mark.parametrize(
    ("after", "code"), [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1)], ids=["end", "exit", "error"]
)
def test_the_rows_are_committed_with_a_warning(arguments: list[str], after: str, code: int) -> None:
    actual, logged = end_of(arguments, after)
    assert actual == code, logged
    assert logged.rstrip().endswith(WAITS.format(timeout=PATIENCE_S, rows=3))
    assert lance.dataset(arguments[0]).count_rows() == 3


def test_an_exit_handler_that_began_before_the_writer_may_close_it(arguments: list[str]) -> None:
    """Python calls it after the writer's own."""
    close = "atexit.register(lambda: (kept[0].close(), print(future.result(0).kind, file=sys.stderr)))"
    code, logged = end_of(arguments, before=close)
    assert (code, logged.split()[-1]) == (0, "committed")
    assert lance.dataset(arguments[0]).count_rows() == 3


def test_a_thread_that_writes_a_large_file_does_not_abort_the_process(arguments: list[str]) -> None:
    large = "future.result(); writer.append(pyarrow.table({'n': numpy.arange(20_000_000)}))"
    code, logged = end_of(arguments, large, max_delay=0)
    assert code == 0, logged
    assert logged.rstrip().endswith(WAITS.format(timeout=PATIENCE_S, rows=20_000_000))
    assert lance.dataset(arguments[0]).count_rows() == 20_000_003


@pytest.mark.parametrize("max_delay", [600, 0], ids=["before it has sent", "after it has sent"])
def test_a_forked_process_leaves_the_rows_to_its_parent(arguments: list[str], max_delay: float) -> None:
    wait = "" if max_delay else "future.result()"
    code, logged = end_of(arguments, wait + FORKED + "writer.close()", max_delay=max_delay)
    assert code == 0, logged
    assert "Writer" not in logged
    assert lance.dataset(arguments[0]).count_rows() == 3
