"""Readers in a process that was forked while their threads were at work: they make their own.

Locks that other threads held then are free there.

Promises: forked-processes, interrupted-calls (docs/operations/promises.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from lakefold_reader.format.source import Source
from lakefold_reader.lance.format import LanceReader
from lakefold_reader.lance.scan import scan
from lakefold_reader.tail.wakeup import OutcomesListener
from lakefold_reader.versions.prefetch import PrefetchedVersions
from lakefold_table.errors import RetryError
from lakefold_table.own_process import ProcessLock
from tests.interrupting import Interrupted, interrupt_at
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

NAME = "forked_readers"
FORKS = 8
SCRIPT = f"""
import os, signal, sys
import pyarrow as pa
import lance
import lakefold
from lakefold_ingest.rows.json_values import _check
from lakefold_maintenance.lance.rewriter import open_dataset
from lakefold_reader.formats import open_source
path = sys.argv[1] + "/t"
lance.write_dataset(pa.table({{"n": [1, 2]}}), path)
USE
uses = (
    lambda: lakefold.open(path).to_arrow(),
    lambda: open_dataset(open_source(path), 1),
    lambda: _check(pa.array(["1"]), pa.field("n", pa.string())),
)
for use in uses * {FORKS}:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            print("returned", use(), flush=True)
        except lakefold.InvalidError as error:
            print(error.message, error.hint, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Has pylance used by three ways in forked processes, after it was used in this one."""
ENOUGH_S = 60


def in_fork(does: object) -> int:
    """The exit code of a forked process: 0 if `does` returned true. It ends by a signal if it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # A handler of Python's would wait for a call that hangs.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(ENOUGH_S)
            code = 0 if does() else 2  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_versions_are_requested_by_threads_of_the_forked_process() -> None:
    MemoryStorage.forget(NAME)
    storage = MemoryStorage(f"memory://{NAME}/t")
    table = Folded(storage)
    for number in range(20):
        table.fold(fragments_only(table.uri, 1, number + 1))
    versions = PrefetchedVersions(Source.on(storage, LanceReader()))
    newest = table.versions.latest()
    assert all(versions.take(number, newest=newest) for number in (2, 3, 4))

    def reads_on() -> bool:
        return all(versions.take(number, newest=newest) for number in range(5, newest + 1))

    try:
        assert in_fork(reads_on) == 0
        assert reads_on()
    finally:
        versions.close()
        MemoryStorage.forget(NAME)


def test_a_listener_begins_again_in_the_forked_process() -> None:
    asked: list[int] = []

    def connect() -> object:
        asked.append(os.getpid())
        raise RetryError("no broker", where="nowhere")

    listener = OutcomesListener(connect)  # type: ignore[arg-type]
    until(lambda: bool(asked), "the listener connects")

    def listens() -> bool:
        listener.wait(0, 0.01)
        until(lambda: os.getpid() in asked, "the listener connects here")
        return not listener.listening

    try:
        assert in_fork(listens) == 0
    finally:
        listener.close()


def test_a_scan_waits_for_no_scan_of_the_other_process() -> None:
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with scan._ONE_AT_A_TIME.current:
            held.set()
            end.wait(2 * ENOUGH_S)

    def enters() -> bool:
        with scan._ONE_AT_A_TIME.current:
            return True

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(ENOUGH_S)
        assert in_fork(enters) == 0
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("used", ["here", "by others"])
def test_what_needs_pylance_says_at_once_that_its_threads_are_missing(used: str, tmp_path: Path) -> None:
    """In a process of its own: in this one other tests have used pylance."""
    script = SCRIPT.replace("USE", "" if used == "by others" else "lakefold.open(path).to_arrow()")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * ENOUGH_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 3 * FORKS
    for line in said:
        assert "the runtime of pylance was made before this process was forked" in line
        assert "spawn" in line


def test_a_block_that_was_entered_before_the_fork_ends_in_both_processes() -> None:
    lock = ProcessLock()

    def enters_again() -> bool:
        with lock.current:
            return True

    with lock.current:
        assert in_fork(enters_again) == 0
    assert enters_again()


def test_an_interrupt_leaves_no_lock_locked() -> None:
    lock = ProcessLock()

    def enter() -> None:
        with lock.current:
            pass

    points = 0
    while True:
        points += 1
        try:
            interrupt_at(points, enter, __file__)
        except Interrupted:
            assert not lock.current.locked()
        else:
            break
    assert points > 2
