"""Consumers for single requests: each is closed after its request, unless a block keeps it for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from lakefold_log.client.consumer_pool import ConsumerPool

if TYPE_CHECKING:
    from confluent_kafka import Consumer


class Made:
    """A consumer of which only its closing matters."""

    def __init__(self, kind: tuple[str, str]) -> None:
        self.kind = kind
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Pool:
    """A pool, and all consumers that it made."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.pool = ConsumerPool(self._make)

    def _make(self, group: str, isolation: str) -> Consumer:
        self.made.append(Made((group, isolation)))
        return cast("Consumer", self.made[-1])

    def ask(self, group: str = "g", isolation: str = "read_committed") -> None:
        with self.pool.lend(group, isolation):
            pass

    def fail(self) -> None:
        with pytest.raises(RuntimeError, match="no answer"), self.pool.lend("g", "read_committed"):
            raise RuntimeError("no answer")

    @property
    def closed(self) -> list[int]:
        return [each.closed for each in self.made]


def test_each_request_gets_a_consumer_that_is_closed_after_it() -> None:
    pool = Pool()
    pool.ask()
    pool.ask()
    assert pool.closed == [1, 1]


def test_a_consumer_is_kept_within_a_block_for_requests_of_its_kind() -> None:
    pool = Pool()
    with pool.pool.keeping():
        for isolation in ("read_committed", "read_uncommitted", "read_committed"):
            pool.ask(isolation=isolation)
        pool.ask("another group")
        assert [each.kind for each in pool.made] == [
            ("g", "read_committed"),
            ("g", "read_uncommitted"),
            ("another group", "read_committed"),
        ]
        assert pool.closed == [0, 0, 0]
    assert pool.closed == [1, 1, 1]


def test_a_consumer_whose_request_failed_is_not_used_again() -> None:
    pool = Pool()
    with pool.pool.keeping():
        pool.fail()
        assert pool.closed == [1]
        pool.ask()
        pool.ask()
        assert pool.closed == [1, 0]
    assert pool.closed == [1, 1]


def test_two_requests_at_once_do_not_share_a_consumer() -> None:
    pool = Pool()
    with pool.pool.keeping():
        with pool.pool.lend("g", "read_committed"), pool.pool.lend("g", "read_committed"):
            assert len(pool.made) == 2
        # One of the two is kept.
        assert sorted(pool.closed) == [0, 1]
    assert pool.closed == [1, 1]


def test_a_request_that_outlasts_the_block_closes_its_consumer() -> None:
    pool = Pool()
    with pool.pool.keeping():
        lent = pool.pool.lend("g", "read_committed")
        lent.__enter__()
    assert pool.closed == [0]
    lent.__exit__(None, None, None)
    assert pool.closed == [1]


def test_blocks_of_several_threads_end_with_the_last() -> None:
    pool = Pool()
    with pool.pool.keeping():
        with pool.pool.keeping():
            pool.ask()
        assert pool.closed == [0]
        pool.ask()
    assert pool.closed == [1]
