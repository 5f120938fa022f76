"""What is particular to the store in memory: its names are shared, and a test can plan its faults."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import RetryError
from lakefold_table.storage.base import DoubtfulPutError, Put
from tests.memory_storage import Hold, LoseAnswer, MemoryStorage, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store() -> Iterator[MemoryStorage]:
    yield MemoryStorage("memory://faults/t")
    MemoryStorage.forget("faults")


def test_a_name_is_shared_until_it_is_forgotten(store: MemoryStorage) -> None:
    store.put("x", [b"x"])
    store.faults.plan(Refuse())
    other = MemoryStorage("memory://FAULTS/t/")
    assert other.get("x") == b"x"
    assert other.faults is store.faults
    MemoryStorage.forget("faults")
    assert MemoryStorage("memory://faults/t").size("x") is None
    assert store.get("x") == b"x"


@pytest.mark.parametrize("stored", [True, False])
def test_a_lost_answer_is_doubtful_whether_stored_or_not(store: MemoryStorage, *, stored: bool) -> None:
    store.faults.plan(LoseAnswer(stored=stored))
    with pytest.raises(DoubtfulPutError):
        store.put_if_absent("v/1", [b"mine"])
    assert store.size("v/1") == (4 if stored else None)
    assert store.put_if_absent("v/1", [b"again"]) is (Put.EXISTS if stored else Put.STORED)


def test_a_lost_answer_never_overwrites(store: MemoryStorage) -> None:
    store.put("v/1", [b"theirs"])
    store.faults.plan(LoseAnswer(stored=True))
    with pytest.raises(DoubtfulPutError):
        store.put_if_absent("v/1", [b"mine"])
    assert store.get("v/1") == b"theirs"


@pytest.mark.parametrize("stored", [True, False])
def test_a_lost_answer_of_a_plain_put_is_put_again(store: MemoryStorage, *, stored: bool) -> None:
    store.put("tag", [b"old"])
    store.faults.plan(LoseAnswer(stored=stored))
    with pytest.raises(RetryError):
        store.put("tag", [b"new"])
    assert store.get("tag") == (b"new" if stored else b"old")


def test_a_refused_put_stores_nothing(store: MemoryStorage) -> None:
    store.faults.plan(Refuse("the store sleeps"), Refuse())
    with pytest.raises(RetryError, match="the store sleeps"):
        store.put_if_absent("v/1", [b"x"])
    with pytest.raises(RetryError, match="can't be reached"):
        store.put("v/1", [b"x"])
    assert not store.anything_at_root()
    assert store.put_if_absent("v/1", [b"x"]) is Put.STORED


def test_a_fault_waits_for_a_path_that_fits(store: MemoryStorage) -> None:
    store.faults.plan(Refuse(suffix=".manifest"), Refuse(suffix=".txn"))
    assert store.put_if_absent("data/x.lance", [b"x"]) is Put.STORED
    with pytest.raises(RetryError):
        store.put_if_absent("_transactions/1.txn", [b"x"])
    assert store.faults.left == 1
    assert store.put_if_absent("_transactions/1.txn", [b"x"]) is Put.STORED
    with pytest.raises(RetryError):
        store.put_if_absent("_versions/1.manifest", [b"x"])
    assert store.faults.left == 0


def test_another_overtakes_a_put_that_is_held(store: MemoryStorage) -> None:
    hold = Hold()
    store.faults.plan(hold)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.put_if_absent, "v/1", [b"slow"])
        assert hold.reached.wait(120)
        assert store.put_if_absent("v/1", [b"fast"]) is Put.STORED
        assert not slow.done()
        hold.release.set()
        assert slow.result(120) is Put.EXISTS
    assert store.get("v/1") == b"fast"


def test_a_slow_put_is_a_hold_that_nobody_releases(store: MemoryStorage) -> None:
    store.faults.plan(Hold(seconds=0.01))
    assert store.put_if_absent("v/1", [b"x"]) is Put.STORED
