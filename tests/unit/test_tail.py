"""A tail returns each version once, in order, and says what it can't know."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lakefold_reader.formats import source_on
from lakefold_reader.tail.tail import tail_of
from lakefold_reader.tail.wakeup import Pace
from lakefold_reader.versions.cursor import Cursor
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, RetryError, VersionExpiredError
from lakefold_table.position import Position
from lakefold_table.storage.local import LocalStorage
from lakefold_table.version_mark import mark_of
from lakefold_table.versions.heads import HEAD_BYTES
from tests.memory_storage import MemoryStorage
from tests.tables import LOG, START_US, TOPIC, Folded, Recording, fragments_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakefold_reader.format.source import Source
    from lakefold_reader.tail.change import Change
    from lakefold_reader.tail.tail import Tail

COUNTER = itertools.count()


class Clock:
    """A clock that only waiting moves; `then` is called at each wait."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.then = then

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.then()

    def pace(self) -> Pace:
        return Pace(wait=self.wait, clock=self, chance=lambda: 0.0)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(f"memory://tail-{next(COUNTER)}/t")


@pytest.fixture
def source(storage: MemoryStorage) -> Source:
    return source_on(storage)


def table_of_three(storage: MemoryStorage) -> Folded:
    table = Folded(storage)
    table.fold(fragments_only(storage.uri, 2), fragments_only(storage.uri, 3))
    table.fold(fragments_only(storage.uri, 1))
    return table


def versions(changes: Iterator[Change]) -> list[int]:
    return [change.version for change in changes]


def remove(storage: MemoryStorage, source: Source, *numbers: int) -> None:
    for number in numbers:
        storage.delete(source.versions.path(number))


def test_a_version_of_our_own_is_described_completely(storage: MemoryStorage, source: Source) -> None:
    table = table_of_three(storage)
    change = next(tail_of(source, 1))
    assert (change.version, change.operation, change.rows, change.only_inserts) == (2, "append", 5, True)
    assert change.position == Position(LOG, 2, TOPIC)
    assert change.timestamp == datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(milliseconds=2)
    mark = mark_of(change.summary)
    assert (
        change.cursor
        == Cursor(table.owned.table.marks.table_id, "", 2, mark)
        == Cursor.parse(str(change.cursor))
    )
    whole = source.summary(2, whole=True)
    assert whole is not None
    assert mark_of(whole) == mark


def test_where_a_tail_can_start(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    assert versions(tail_of(source, "earliest")) == [1, 2, 3]
    assert versions(tail_of(source, "latest")) == []
    assert versions(tail_of(source, 0)) == [1, 2, 3]
    assert versions(tail_of(source, 2)) == [3]
    assert versions(tail_of(source, 3)) == []
    cursor = next(tail_of(source, 1)).cursor
    assert versions(tail_of(source, cursor)) == versions(tail_of(source, str(cursor))) == [3]


def test_latest_is_settled_by_the_call_not_by_the_first_look(storage: MemoryStorage, source: Source) -> None:
    table = table_of_three(storage)
    begun = tail_of(source, "latest")
    table.fold(fragments_only(storage.uri, 1))
    assert versions(begun) == [4]


def test_the_cursor_of_a_tail_goes_on_where_it_stopped(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    begun = tail_of(source, 0)
    next(begun)
    assert begun.cursor.version == 1
    assert versions(tail_of(source_on(storage), begun.cursor)) == [2, 3]


def test_the_oldest_version_left_comes_whole(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    remove(storage, source, 1, 2)
    (change,) = tail_of(source, "earliest")
    assert (change.version, change.rows, change.only_inserts) == (3, 6, True)


def test_a_group_larger_than_the_first_read(storage: MemoryStorage, source: Source) -> None:
    table = Folded(storage)
    table.fold(*(fragments_only(storage.uri, 20) for _ in range(100)))
    assert len(storage.get(source.versions.path(2))) > 2 * HEAD_BYTES
    recording = Recording(storage)
    begun = tail_of(source_on(recording), 1)
    recording.calls.clear()
    assert next(begun).rows == 2000
    # The second read fetches the rest, the third reads the version after it.
    assert recording.calls == ["get_range"] * 3


def test_what_may_change_the_schema_is_read_whole(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    creation, append = source.summary(1), source.summary(2)
    assert creation is not None
    assert append is not None
    assert (creation.own, creation.metadata is None) == (True, False)
    assert (append.own, append.metadata is None) == (True, True)
    assert source.summary(4) is None


def test_a_takeover_that_folds_nothing_has_no_position(storage: MemoryStorage, source: Source) -> None:
    table = Folded(storage)
    entry = table.entry(fragments_only(storage.uri, 1))
    table.owned.fold([entry])
    table.take_over()
    table.owned.fold([entry])
    assert [(change.rows, change.position is None) for change in tail_of(source, 1)] == [
        (1, False),
        (0, True),
    ]


def test_a_file_that_says_another_version_than_its_name_is_damaged(
    storage: MemoryStorage, source: Source
) -> None:
    table_of_three(storage)
    storage.put(source.versions.path(4), [storage.get(source.versions.path(3))])
    with pytest.raises(DamagedError, match="says that it is version 3"):
        next(tail_of(source, 3))


def test_a_step_is_one_read_of_the_head_and_lists_nothing(storage: MemoryStorage) -> None:
    table = Folded(storage)
    recording = Recording(storage)
    begun = tail_of(source_on(recording), "latest", follow=True)
    recording.calls.clear()
    for _ in range(5):
        table.fold(fragments_only(storage.uri, 1))
        assert next(begun).rows == 1
    assert recording.calls == ["get_range"] * 5


def test_waiting_asks_for_the_next_version_ever_more_seldom(storage: MemoryStorage) -> None:
    table = Folded(storage)
    recording = Recording(storage)
    clock = Clock()
    clock.then = lambda: len(clock.waits) == 10 and table.fold(fragments_only(storage.uri, 1))
    begun = tail_of(source_on(recording), "latest", follow=True, pace=clock.pace())
    recording.calls.clear()
    assert next(begun).version == 2
    assert clock.waits == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, *[0.05] * 4]
    assert set(recording.calls) == {"get_range"}


def test_many_readers_do_not_ask_at_once() -> None:
    waits: list[float] = []
    for part in (0.0, 0.5, 0.999):
        Pace(first=0.02, wait=waits.append, chance=lambda part=part: part).pause(1)  # type: ignore[misc]
    assert waits == pytest.approx([0.02, 0.015, 0.01], abs=1e-4)


def test_following_ends_when_it_is_stopped(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    clock = Clock()
    begun = tail_of(source, 1, follow=True, pace=clock.pace(), stop=lambda: len(clock.waits) > 3)
    assert versions(begun) == [2, 3]


def test_a_version_cleaned_up_before_it_was_read(storage: MemoryStorage, source: Source) -> None:
    table = table_of_three(storage)
    begun = tail_of(source, 1)
    remove(storage, source, 1, 2)
    with pytest.raises(VersionExpiredError, match=r"version 2 is gone.*oldest one left is 3") as caught:
        next(begun)
    assert caught.value.oldest == 3
    with pytest.raises(VersionExpiredError, match="version 2 is gone"):
        tail_of(source, 1)
    assert versions(tail_of(source, 2)) == [3]
    assert table.owned.table.version == 3


def test_versions_made_and_cleaned_up_while_it_waited(storage: MemoryStorage, source: Source) -> None:
    table = table_of_three(storage)
    clock = Clock()

    def away() -> None:
        if table.owned.table.version == 3:
            table.fold(fragments_only(storage.uri, 1))
            table.fold(fragments_only(storage.uri, 1))
            remove(storage, source, 1, 2, 3, 4)

    clock.then = away
    with pytest.raises(VersionExpiredError, match="version 4 is gone"):
        next(tail_of(source, "latest", follow=True, pace=clock.pace()))
    assert 1 < clock.now < 2


def test_a_distant_store_is_asked_once_a_minute_whether_versions_were_cleaned_up(
    storage: MemoryStorage, source: Source
) -> None:
    table = table_of_three(storage)
    clock = Clock()

    class Distant(Recording):
        cheap_size = False

    begun = tail_of(source_on(Distant(storage)), "latest", follow=True, pace=clock.pace())

    def clean_up() -> None:
        if table.owned.table.version == 3:
            table.fold(fragments_only(storage.uri, 1))
            table.fold(fragments_only(storage.uri, 1))
            remove(storage, source, 1, 2, 3, 4)

    clock.then = clean_up
    with pytest.raises(VersionExpiredError, match="version 4 is gone"):
        next(begun)
    assert 60 < clock.now < 61


@pytest.mark.parametrize("is_distant", [False, True])
def test_a_table_that_is_removed_while_it_is_followed_ends_the_tail(
    storage: MemoryStorage, source: Source, *, is_distant: bool
) -> None:
    table_of_three(storage)
    clock = Clock(lambda: remove(storage, source, 1, 2, 3))

    class Store(Recording):
        cheap_size = not is_distant

    begun = tail_of(source_on(Store(storage)), "latest", follow=True, pace=clock.pace())
    with pytest.raises(
        NotATableError, match="it has no version; version 3 was the last one that was read"
    ) as caught:
        next(begun)
    assert str(begun.cursor) in caught.value.hint
    # It was noticed at the first check, and waited for.
    assert 10 < clock.now - (60 if is_distant else 1) < 12


def test_a_table_whose_store_is_away_for_a_moment_is_followed_on(
    storage: MemoryStorage, source: Source
) -> None:
    table = table_of_three(storage)
    held = {number: storage.get(source.versions.path(number)) for number in (1, 2, 3)}

    def come_and_go() -> None:
        if clock.now < 5:
            remove(storage, source, 1, 2, 3)
        elif not storage.names("_versions"):
            for number, data in held.items():
                storage.put(source.versions.path(number), [data])
        elif clock.now > 30 and table.owned.table.version == 3:
            table.fold(fragments_only(storage.uri, 1))

    clock = Clock(come_and_go)
    begun = tail_of(source, "latest", follow=True, pace=clock.pace())
    assert next(begun).version == 4


def test_what_is_known_to_have_been_there_is_not_waited_for(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    begun = tail_of(source, 1)
    remove(storage, source, 1, 2, 3)
    with pytest.raises(NotATableError, match="the table was removed"):
        next(begun)


@pytest.mark.parametrize("kind", ["a folder", "a symbolic link to no file", "a device, a pipe or a socket"])
def test_what_has_the_name_of_the_next_version_and_is_none_ends_the_tail(tmp_path: Path, kind: str) -> None:
    storage = LocalStorage(tmp_path)
    Folded(storage)
    source = source_on(storage)

    def obstruct() -> None:
        name = tmp_path / source.versions.path(2)
        if kind == "a folder":
            name.mkdir(exist_ok=True)
        elif not name.is_symlink() and not name.is_fifo():
            name.symlink_to("nothing") if "link" in kind else os.mkfifo(name)

    clock = Clock(obstruct)
    with pytest.raises(DamagedError, match=f"{kind} has the name of the next version") as caught:
        next(tail_of(source, "latest", follow=True, pace=clock.pace()))
    assert caught.value.where.endswith(source.versions.path(2))
    assert clock.now < 2


def test_a_cursor_whose_version_is_gone_goes_on_while_the_next_one_is_there(
    storage: MemoryStorage, source: Source
) -> None:
    table_of_three(storage)
    cursor = next(tail_of(source, 1)).cursor
    remove(storage, source, 1, 2)
    assert versions(tail_of(source, cursor)) == [3]


def test_a_cursor_of_another_table(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    remove(storage, source, 1)
    for cursor in (Cursor("other", "", 2), Cursor("", "", 2), Cursor("other", "", 1)):
        with pytest.raises(InvalidError, match="belongs to another table"):
            next(tail_of(source, cursor))
    here = tail_of(source, 2).cursor
    with pytest.raises(InvalidError, match=r"branch side, here main"):
        tail_of(source, replace(here, branch="side"))
    with pytest.raises(InvalidError, match=r"None is not the number of a version.*a cursor"):
        tail_of(source, None)  # type: ignore[arg-type]


def test_a_table_created_again_while_it_was_followed(storage: MemoryStorage, source: Source) -> None:
    table_of_three(storage)
    begun = tail_of(source, 3, follow=True, pace=Clock().pace())
    remove(storage, source, 1, 2, 3)
    Folded(storage)
    with pytest.raises(InvalidError, match="the table has no version 3; its newest version is 1"):
        next(begun)


def test_another_table_in_its_place_has_reached_the_next_version(
    storage: MemoryStorage, source: Source
) -> None:
    table_of_three(storage)
    begun = tail_of(source, 1)
    other = MemoryStorage(f"memory://tail-{next(COUNTER)}/t")
    Folded(other, first=100).fold(fragments_only(other.uri, 1))
    path = source.versions.path(2)
    storage.put(path, [other.get(path)])
    with pytest.raises(InvalidError, match="belongs to another table"):
        next(begun)


def test_starts_that_mean_nothing(storage: MemoryStorage, source: Source) -> None:
    with pytest.raises(NotATableError, match="no table here yet"):
        tail_of(source)
    table_of_three(storage)
    with pytest.raises(InvalidError, match="not a cursor"):
        tail_of(source, "yesterday")
    with pytest.raises(InvalidError, match="not the number of a version"):
        tail_of(source, -1)
    with pytest.raises(InvalidError, match="the table has no version 9; its newest version is 3"):
        tail_of(source, 9)


def test_after_a_store_was_away_the_tail_can_be_asked_again(storage: MemoryStorage) -> None:
    table = table_of_three(storage)

    class Away(Recording):
        broken = False

        def get_range(self, path: str, start: int, length: int) -> bytes:
            if self.broken:
                raise RetryError("the store is away")
            return storage.get_range(path, start, length)

    away = Away(storage)
    begun: Tail = tail_of(source_on(away), 1)
    assert next(begun).version == 2
    away.broken = True
    # It was read already, to find out whether version 2 is a late version.
    assert next(begun).version == 3
    with pytest.raises(RetryError):
        next(begun)
    away.broken = False
    table.fold(fragments_only(storage.uri, 1))
    assert next(begun).version == 4
