"""On a store where each read waits, versions are read ahead: in order, once each, and not too many."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import pytest

from lakefold_reader.formats import source_on
from lakefold_reader.tail.tail import tail_of
from lakefold_reader.tail.wakeup import Pace
from lakefold_reader.versions.prefetch import MOST_AT_ONCE, FirstRead, PrefetchedVersions
from lakefold_table.errors import RetryError, VersionExpiredError
from lakefold_table.format import VersionSummary
from lakefold_table.versions.heads import HEAD_BYTES
from tests.memory_storage import MemoryStorage
from tests.storage_wrapper import StorageWrapper
from tests.tables import Folded, fragments_only
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTER = itertools.count()
MANY = 200


class Far(StorageWrapper):
    """A store that is not a local disk: it counts its reads, and calls `before` each of them."""

    cheap_size = False

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._lock = threading.Lock()
        self.reads: list[str] = []
        self.missed = 0
        self.at_once = self.most_at_once = 0
        self.before: Callable[[str], object] = lambda _: None

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._lock:
            self.reads.append(path)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.before(path)
            return self._storage.get_range(path, start, length)
        except FileNotFoundError:
            self.missed += 1
            raise
        finally:
            with self._lock:
                self.at_once -= 1


@pytest.fixture(scope="module")
def long_table() -> Folded:
    made = Folded(MemoryStorage(f"memory://catching-up-{next(COUNTER)}/t"))
    for _ in range(MANY):
        made.fold(fragments_only(made.uri, 1))
    return made


@pytest.fixture
def short_table() -> Folded:
    made = Folded(MemoryStorage(f"memory://catching-up-{next(COUNTER)}/t"))
    for _ in range(10):
        made.fold(fragments_only(made.uri, 1))
    return made


def far(table: Folded) -> Far:
    storage = table.versions.storage
    assert isinstance(storage, MemoryStorage)
    return Far(storage)


def test_versions_come_in_order_and_each_is_read_once(long_table: Folded) -> None:
    store = far(long_table)
    later = threading.Event()

    def out_of_order(_: str) -> None:
        """The second read waits for the fourth, which is that of a later version."""
        if len(store.reads) == 2:
            later.wait(120)
        elif len(store.reads) == 4:
            later.set()

    store.before = out_of_order
    assert [change.version for change in tail_of(source_on(store), 1)] == [*range(2, MANY + 2)]
    # Only the version after the newest is requested twice: before that version is returned, and after.
    twice = [path for path in {*store.reads} if store.reads.count(path) > 1]
    assert twice == [long_table.versions.path(MANY + 2)]
    assert len(store.reads) == MANY + 2
    assert store.missed == 2


def test_reads_are_under_way_together_up_to_a_bound(long_table: Folded) -> None:
    store = far(long_table)
    gate = threading.Event()
    store.before = lambda _: gate.wait(120)
    begun = tail_of(source_on(store), 1)
    numbers: list[int] = []
    reader = threading.Thread(target=lambda: numbers.extend(change.version for change in begun))
    reader.start()
    until(lambda: store.at_once > 1, "reads to be under way together")
    gate.set()
    reader.join()
    assert numbers == [*range(2, MANY + 2)]
    assert 1 < store.most_at_once <= MOST_AT_ONCE


def test_a_reader_that_does_not_know_how_far_behind_it_is_requests_little_in_vain(long_table: Folded) -> None:
    store, first, second = far(long_table), *map(long_table.versions.path, (MANY + 2, MANY + 3))

    def together(path: str) -> None:
        """The first version that doesn't exist is missed only once the next one is requested too."""
        if path == first:
            until(lambda: second in store.reads, "another request in vain")

    store.before = together
    following = PrefetchedVersions(source_on(store))
    taken = list(itertools.takewhile(lambda step: step is not None, map(following.take, itertools.count(2))))
    assert len(taken) == MANY
    following.close()
    assert 2 < store.missed <= 2 + MANY // 20


def test_a_reader_that_keeps_up_reads_nothing_beforehand(short_table: Folded) -> None:
    store = far(short_table)
    begun = tail_of(source_on(store), "latest", pace=Pace(clock=lambda: 0.0))
    for _ in range(20):
        short_table.fold(fragments_only(short_table.uri, 1))
        assert [change.version for change in begun] == [short_table.owned.table.version]
    assert (len(store.reads), store.missed) == (40, 20)


def test_an_error_comes_at_its_place_and_can_be_requests_again(short_table: Folded) -> None:
    store = far(short_table)
    broken = {short_table.versions.path(5)}

    def away(path: str) -> None:
        if path in broken:
            raise RetryError("the store is away")

    store.before = away
    begun = tail_of(source_on(store), 1)
    assert [next(begun).version for _ in range(3)] == [2, 3, 4]
    for _ in range(2):
        with pytest.raises(RetryError):
            next(begun)
    broken.clear()
    assert [change.version for change in begun] == [*range(5, 12)]
    again = {path for path in store.reads if store.reads.count(path) > 1}
    assert again == {short_table.versions.path(5), short_table.versions.path(12)}
    assert store.reads.count(short_table.versions.path(5)) == 3


def test_a_version_that_vanishes_while_others_are_read(short_table: Folded) -> None:
    store = far(short_table)
    source = source_on(store)
    begun = tail_of(source, 1)
    for number in (2, 3, 4, 6):
        short_table.versions.storage.delete(short_table.versions.path(number))
    with pytest.raises(VersionExpiredError, match="version 2 is gone") as caught:
        next(begun)
    assert caught.value.oldest == 7
    begun = tail_of(source, 4)
    assert next(begun).version == 5
    for _ in range(2):
        with pytest.raises(VersionExpiredError, match="version 6 is gone"):
            next(begun)


def test_a_version_that_came_after_it_was_requested_is_returned(short_table: Folded) -> None:
    for _ in range(20):
        short_table.fold(fragments_only(short_table.uri, 1))
    store = far(short_table)
    following = PrefetchedVersions(source_on(store))
    taken = [following.take(number) for number in range(2, 32)]
    assert None not in taken
    until(lambda: store.missed, "a read beyond the newest version")
    short_table.fold(fragments_only(short_table.uri, 1))
    assert [following.take(number) is not None for number in (32, 33)] == [True, False]
    following.close()


def test_a_version_after_a_gap_is_known_to_exist(short_table: Folded) -> None:
    for _ in range(60):
        short_table.fold(fragments_only(short_table.uri, 1))
    store, gone, removed = far(short_table), short_table.versions.path(66), threading.Event()
    store.before = lambda path: path != gone or removed.wait(120)
    following = PrefetchedVersions(source_on(store))
    assert None not in [following.take(number) for number in range(2, 64)]
    short_table.versions.storage.delete(gone)
    removed.set()
    assert None not in [following.take(number) for number in (64, 65)]
    until(lambda: short_table.versions.path(67) in store.reads, "a read of the version after the gap")
    assert following.take(66) is None
    assert following.seen > 66
    following.close()


def test_no_more_is_read_beforehand_than_may_be_held(long_table: Folded) -> None:
    store = far(long_table)
    begun = tail_of(source_on(store), 1)
    for _ in range(60):
        next(begun)
    assert 1 < len(begun._versions._requests) <= MOST_AT_ONCE
    begun.close()


def step_of(size: int) -> VersionSummary:
    return VersionSummary(1, "append", {}, begins_clone=False, footprint=None, size=size)


def test_the_first_read_takes_after_the_last_versions() -> None:
    first = FirstRead()
    lengths = []
    for size in (100, 100_000, 100, 9_000_000, 100, 9_000_000, 9_000_000, 100):
        first.learn(step_of(size))
        lengths.append(first.length)
    small, medium, large = HEAD_BYTES, 1 << 17, 1 << 24
    assert lengths == [small, medium, medium, medium, medium, medium, large, medium]


def test_groups_larger_than_the_first_read_cost_one_read_each() -> None:
    table = Folded(MemoryStorage(f"memory://catching-up-{next(COUNTER)}/t"))
    for _ in range(30):
        table.fold(*(fragments_only(table.uri, 20) for _ in range(50)))
    store = far(table)
    assert sum(change.rows or 0 for change in tail_of(source_on(store), 1)) == 30_000
    # The few requests that began before the first version's size was known were too short.
    assert len(store.reads) <= 30 + 1 + 4


def test_large_versions_are_held_few_at_a_time() -> None:
    first = FirstRead()
    assert first.room(1 << 26) == 2
    for _ in range(20):
        first.learn(step_of(9_000_000))
    assert first.room(1 << 26) == 4
