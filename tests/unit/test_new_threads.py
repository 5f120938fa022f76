"""A thread that the system refuses is an error of its own; tasks wait for the threads that exist."""

from __future__ import annotations

import threading

import pytest

from lakefold_committer.loop.threads import Threads
from lakefold_committer.process.watch_threads import watching
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_table.errors import NoThreadsError, RetryError
from lakefold_table.new_threads import check_room, new_threads, start_thread
from lakefold_table.storage.concurrently import begun, together
from tests.waiting import until


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many more threads the system allows: the only number in the list."""
    left = [0]
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return left


def test_a_refused_thread_is_an_error_that_says_what_to_raise(allowed: list[int]) -> None:
    assert not allowed[0]
    with pytest.raises(NoThreadsError, match="no more threads") as caught:
        start_thread(threading.Thread())
    assert "ulimit -u" in caught.value.hint
    assert isinstance(caught.value, RetryError)


def test_another_error_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="threads can only be started once"), new_threads():
        raise RuntimeError("threads can only be started once")


def test_room_is_checked_by_threads_that_have_ended_again(allowed: list[int]) -> None:
    before = set(threading.enumerate())
    allowed[0] = 8
    check_room(8)
    assert set(threading.enumerate()) <= before
    allowed[0] = 7
    with pytest.raises(NoThreadsError):
        check_room(8)
    assert set(threading.enumerate()) <= before


def test_a_client_of_the_brokers_is_not_created_without_room_for_its_threads(allowed: list[int]) -> None:
    """The client library would end the process."""
    allowed[0] = 3
    with pytest.raises(NoThreadsError):
        Admin(KafkaConfig("127.0.0.1:1"))


def test_requests_of_a_store_name_the_limit(allowed: list[int]) -> None:
    assert together(str, [1], 4) == ["1"], "it needs no thread"
    with pytest.raises(NoThreadsError):
        together(str, [1, 2], 4)
    with pytest.raises(NoThreadsError):
        begun(dict)
    assert not allowed[0]


def test_tasks_wait_for_the_threads_that_exist(allowed: list[int]) -> None:
    tasks, results = Threads(), list[object]()
    with pytest.raises(NoThreadsError):
        tasks.start(lambda: 0, results.append)
    allowed[0] = 1
    for number in range(3):
        tasks.start(lambda number=number: number, results.append)  # type: ignore[misc]
    while tasks.running:
        tasks.wait(10.0)
    assert results == [0, 1, 2]
    tasks.close()


def test_checks_end_if_one_of_them_can_not_begin(allowed: list[int]) -> None:
    allowed[0] = 1
    ends = list[threading.Event]()
    both = [ends.append, ends.append]
    with pytest.raises(NoThreadsError), watching("check", both):
        pytest.fail("the block is not run")
    until(lambda: [end.is_set() for end in ends] == [True], "the check that began")
