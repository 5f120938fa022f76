"""Readers in a process that was forked while their threads were at work: they make their own."""

from __future__ import annotations

import os
import signal

from lakefold_reader.format.source import Source
from lakefold_reader.lance.reader import LanceReader
from lakefold_reader.tail.wakeup import OutcomesListener
from lakefold_reader.versions.prefetch import PrefetchedVersions
from lakefold_table.errors import RetryError
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only
from tests.waiting import until

NAME = "forked_readers"
ENOUGH_S = 60


def in_fork(does: object) -> int:
    """The exit code of a forked process: 0 if `does` returned true. It ends by a signal if it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
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
