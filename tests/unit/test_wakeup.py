"""What wakes a tail: a reported version, the begin or end of listening; and polling if no broker answers."""

from __future__ import annotations

import gc
import itertools
import queue
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_reader.formats import source_on
from lakefold_reader.tail.tail import tail, tail_of
from lakefold_reader.tail.wakeup import OutcomesListener, OutcomesTopic, Pace
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.packages import MissingPackageError
from lakefold_table.storage import open_storage
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_reader.tail.wakeup import News

COUNTER = itertools.count()
PATIENCE_S = 120.0


class PlannedNews:
    """Reports of versions that a test makes."""

    def __init__(self) -> None:
        self.connected = True
        self.last_error = "the broker is away"
        self.reported: queue.Queue[int] = queue.Queue()
        self.closed = threading.Event()

    def wait(self, seconds: float) -> int:
        try:
            return self.reported.get(timeout=min(seconds, 0.02))
        except queue.Empty:
            return 0

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def news() -> PlannedNews:
    return PlannedNews()


@pytest.fixture
def waker(news: PlannedNews) -> Iterator[OutcomesListener]:
    made = OutcomesListener(lambda: news)
    yield made
    made.close()


def waits(waker: OutcomesListener, beyond: int) -> threading.Thread:
    """A tail that waits for a version after this version."""
    thread = threading.Thread(target=waker.wait, args=(beyond, PATIENCE_S))
    thread.start()
    return thread


def listening(waker: OutcomesListener) -> None:
    """Returns when it listens and the waiting thread has been woken for that."""
    until(lambda: waker.listening, "the listener")
    waker.wait(0, 0.0)


def test_news_of_a_later_version_ends_the_waiting(news: PlannedNews, waker: OutcomesListener) -> None:
    listening(waker)
    waiting = waits(waker, 7)
    news.reported.put(7)
    news.reported.put(6)
    until(news.reported.empty, "both to be heard")
    assert waiting.is_alive()
    news.reported.put(8)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_news_from_before_the_waiting_counts(news: PlannedNews, waker: OutcomesListener) -> None:
    listening(waker)
    news.reported.put(3)
    waiting = waits(waker, 2)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_a_waiter_checks_again_when_listening_begins_or_ends(news: PlannedNews) -> None:
    begin = threading.Event()

    def connect() -> News:
        begin.wait(PATIENCE_S)
        return news

    waker = OutcomesListener(connect)
    waiting = waits(waker, 0)
    begin.set()
    waiting.join(PATIENCE_S)
    assert waker.listening
    waiting = waits(waker, 0)
    with capture_logs() as lines:
        news.connected = False
        waiting.join(PATIENCE_S)
        until(lambda: lines, "the warning")
    assert not waiting.is_alive()
    assert [line["error"] for line in lines] == ["the broker is away"]
    waker.close()
    assert news.closed.is_set()


def test_a_broker_that_comes_and_goes_is_logged_once(news: PlannedNews, waker: OutcomesListener) -> None:
    listening(waker)
    with capture_logs() as lines:
        for connected in (False, True, False, True):
            news.connected = connected
            until(lambda now=connected: waker.listening is now, "the change")  # type: ignore[misc]
    assert len(lines) == 1


def test_a_waker_that_nobody_holds_any_more_ends(news: PlannedNews) -> None:
    waker = OutcomesListener(lambda: news)
    listening(waker)
    del waker
    gc.collect()
    assert news.closed.wait(PATIENCE_S)


def test_if_no_broker_answers_the_table_is_polled_and_it_is_logged_once() -> None:
    table = Folded(MemoryStorage(f"memory://waking-{next(COUNTER)}/t"))
    tries = itertools.count()

    class NoBroker(OutcomesTopic):
        def news(self, uri: str, branch: str, partition: int | None) -> News:
            next(tries)
            raise RetryError(f"no broker for {uri}, {branch!r}, {partition}")

    begun = tail_of(source_on(table.versions.storage), pace=Pace(longest=0.01))
    begun.wake_by(NoBroker("127.0.0.1:1"))
    with capture_logs() as lines:
        assert begun.step(timeout=0.05) == []
        until(lambda: next(tries) > 1 and lines, "a try to connect")
        table.fold(fragments_only(table.uri, 1))
        assert [change.version for change in begun.step(timeout=PATIENCE_S)] == [2]
    begun.close()
    assert [line["log_level"] for line in lines] == ["warning"]
    assert lines[0]["error"] == f"no broker for {table.uri}, '', 0"


def test_options_that_can_not_be_are_refused_at_once() -> None:
    table = Folded(MemoryStorage(f"memory://waking-{next(COUNTER)}/t"))
    with pytest.raises(InvalidError, match="fixed by Lakefold"):
        tail(table.uri, wake=OutcomesTopic("127.0.0.1:1", {"acks": "0"}))


def test_without_kafka_installed_a_table_is_opened_and_followed(tmp_path: Path) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    table.append_ids([1, 2])
    table.append_ids([3])
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "import lakefold\n"
        "print(sorted(lakefold.open(sys.argv[1]).to_arrow().column(0).to_pylist()))\n"
        "changes = lakefold.tail(sys.argv[1], 'earliest')\n"
        "print([change.inserted().column(0).to_pylist() for change in changes if change.rows])\n"
    )
    command = [sys.executable, "-c", code, table.uri]
    read = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (read.stdout, read.stderr) == ("[1, 2, 3]\n[[1, 2], [3]]\n", "")


def test_without_kafka_installed_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in [name for name in sys.modules if name.startswith("lakefold_log.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingPackageError, match=r"lakefold\[kafka\]"):
        OutcomesTopic("127.0.0.1:1").check()
