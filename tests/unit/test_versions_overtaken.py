"""A name may have been used by a version that was removed: what is put there must follow the newest version.

Promise: in-the-line (docs/operations/promises.md).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import RetryError, StopError
from lakefold_table.format import Publication
from lakefold_table.lance.manifests.naming import Scheme, detect
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.lost_answers import Published
from lakefold_table.versions.versions import (
    CHECK_SECONDS,
    CONFIRMED_SECONDS,
    HINT,
    RECENT_SECONDS,
    Versions,
    seconds,
)
from tests.memory_storage import Hold, MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from lakefold_table.storage.base import Buffer, Put

NAME = "overtaken"
URI = f"memory://{NAME}/t"


@dataclass
class Clock:
    """A clock that stops unless a test moves it."""

    now: float = 0

    def __call__(self) -> float:
        return self.now


@dataclass
class Line:
    """A version line that knows versions up to `newest`, its store, and its clock."""

    store: MemoryStorage
    clock: Clock
    versions: Versions

    def publish(self, version: int) -> Published:
        return self.versions.publish(Publication(version, Scheme.V2.path(version), [b"ours", b"rest"]))

    def stored_numbers(self) -> list[int]:
        """What the store contains, unnoticed by `versions`."""
        return Versions(self.store, "_versions", detect).numbers()

    def others(self, *numbers: int) -> None:
        """Others commit these."""
        for number in numbers:
            self.store.put(Scheme.V2.path(number), [b"theirs"])

    def remove(self, *numbers: int) -> None:
        """Others remove these."""
        for number in numbers:
            self.store.delete(Scheme.V2.path(number))


@pytest.fixture
def line() -> Iterator[Line]:
    store, clock = MemoryStorage(URI), Clock()
    line = Line(store, clock, Versions(store, "_versions", detect, clock=clock))
    assert line.publish(1) is Published.OURS
    assert line.publish(2) is Published.OURS
    yield line
    MemoryStorage.forget(NAME)


@contextmanager
def stopped_at_the_put(line: Line, version: int) -> Iterator[Future[Published]]:
    """A process publishes this version, is suspended between its last check and the put, and continues."""
    hold = Hold(suffix=Scheme.V2.path(version))
    line.store.faults.plan(hold)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(line.publish, version)
        try:
            assert hold.reached.wait(120)
            yield put
        finally:
            hold.release.set()


def cleaned_up(line: Line) -> None:
    line.others(3, 4)
    line.remove(1, 2, 3)


def cleaned_up_but_for_a_tag(line: Line) -> None:
    """It is long ago, and no client has left a note."""
    line.others(3, 4)
    line.remove(1, 3)
    line.clock.now += CONFIRMED_SECONDS + 1


def cleaned_up_but_for_a_tag_a_moment_ago(line: Line) -> None:
    line.others(3, 4)
    line.remove(1, 3)
    line.store.put(f"_versions/{HINT}", [b'{"version":4}'])


def restored_from_a_backup(line: Line) -> None:
    line.remove(2)


@pytest.mark.parametrize(
    "act",
    [
        cleaned_up,
        cleaned_up_but_for_a_tag,
        cleaned_up_but_for_a_tag_a_moment_ago,
        restored_from_a_backup,
    ],
)
def test_nothing_is_put_if_others_went_on_and_removed_versions(
    line: Line, act: Callable[[Line], None]
) -> None:
    act(line)
    before = line.stored_numbers()
    with pytest.raises(StopError, match="versions missing between them"):
        line.publish(3)
    assert line.stored_numbers() == before


def test_on_a_local_disk_what_was_put_a_moment_late_is_not_reported_either(line: Line) -> None:
    with stopped_at_the_put(line, 3) as put:
        cleaned_up(line)
    with pytest.raises(StopError, match="version 3 was put, but the newest is 4"):
        put.result(120)


def test_a_version_is_reported_although_others_clean_up_right_after_it(line: Line) -> None:
    with stopped_at_the_put(line, 3) as put:
        line.remove(1, 2)
    assert put.result(120) is Published.OURS


@pytest.mark.parametrize("act", [cleaned_up, cleaned_up_but_for_a_tag, cleaned_up_but_for_a_tag_a_moment_ago])
def test_what_was_put_late_is_not_reported_as_published(line: Line, act: Callable[[Line], None]) -> None:
    with stopped_at_the_put(line, 3) as put:
        act(line)
        line.clock.now += CHECK_SECONDS + 1
    with pytest.raises(StopError, match="version 3 was put, but the newest is 4"):
        put.result(120)


@pytest.mark.parametrize("later", [0, CONFIRMED_SECONDS + 1])
def test_nothing_is_put_after_another_version_of_the_same_number(line: Line, later: float) -> None:
    """The table was dropped and created again while the process was suspended."""
    line.remove(1, 2)
    line.others(1, 2)
    line.clock.now += later
    with pytest.raises(StopError, match="version 2 is not the one that was read here"):
        line.publish(3)
    assert line.stored_numbers() == [1, 2]


@pytest.mark.parametrize("read", [False, True])
def test_another_version_of_the_same_size_is_noticed_on_a_disk(tmp_path: Path, *, read: bool) -> None:
    store = LocalStorage(tmp_path)
    line = Line(MemoryStorage(URI), Clock(), Versions(store, "_versions", detect))
    assert [line.publish(1), line.publish(2)] == [Published.OURS] * 2
    if read:
        line.versions = Versions(store, "_versions", detect)
        assert line.versions.read(line.versions.latest()) == b"oursrest"
    store.put(Scheme.V2.path(2), [b"theirs, "])
    with pytest.raises(StopError, match="version 2 is not the one that was read here"):
        line.publish(3)
    assert Versions(store, "_versions", detect).numbers() == [1, 2]


def test_a_table_created_again_between_check_and_put_is_noticed_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was suspended right before it opened the folder."""
    store = LocalStorage(tmp_path)
    line = Line(MemoryStorage(URI), Clock(), Versions(store, "_versions", detect))
    assert [line.publish(1), line.publish(2)] == [Published.OURS] * 2
    put = store.put_once_sure

    def paused(path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        store.delete(Scheme.V2.path(2))
        return put(path, buffers, sure)

    monkeypatch.setattr(store, "put_once_sure", paused)
    with pytest.raises(StopError, match="version 2 was the newest, now it is 1"):
        line.publish(3)
    assert Versions(store, "_versions", detect).numbers() == [1]


def test_a_repeated_put_shows_nothing_about_later_versions(tmp_path: Path) -> None:
    """It finds its own version at its path, without a check of later versions."""
    store, clock = LocalStorage(tmp_path), Clock()
    line = Line(MemoryStorage(URI), clock, Versions(store, "_versions", detect, clock=clock))
    assert [line.publish(number) for number in (1, 2, 3)] == [Published.OURS] * 3
    clock.now += CONFIRMED_SECONDS + 1
    for number in (4, 5):
        store.put(Scheme.V2.path(number), [b"theirs"])
    store.delete(Scheme.V2.path(4))
    with pytest.raises(StopError, match="version 3 was put, but the newest is 5"):
        line.publish(3)


def test_if_no_version_is_left_it_is_tried_again(line: Line) -> None:
    line.remove(1, 2)
    for _ in range(2):
        with pytest.raises(RetryError, match="all versions of the table are missing"):
            line.publish(3)
    assert line.stored_numbers() == []
    for number in (1, 2):
        line.store.put(Scheme.V2.path(number), [b"ours", b"rest"])
    assert line.publish(3) is Published.OURS


def test_a_first_version_is_put_only_if_there_never_was_one() -> None:
    store = MemoryStorage(URI)
    first = Versions(store, "_versions", detect)
    assert first.latest() == 0
    store.put(Scheme.V2.path(7), [b"theirs"])
    with pytest.raises(StopError, match="now it is 7"):
        first.publish(Publication(1, Scheme.V2.path(1), [b"ours"]))
    MemoryStorage.forget(NAME)


@pytest.mark.parametrize(
    "hint", [b'{"version":2}', b"", b"[]", b'{"version":"x"}', b'{"version":99}', b"[" * 100_000]
)
def test_no_hint_prevents_a_version_from_being_put_that_may_be(line: Line, hint: bytes) -> None:
    line.store.put(f"_versions/{HINT}", [hint])
    assert line.publish(3) is Published.OURS


def test_a_store_that_is_asked_over_a_network_is_asked_too(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStorage, "cheap_size", False)
    cleaned_up(line)
    with pytest.raises(StopError, match="versions missing between them"):
        line.publish(3)


class CleanedUpBetween(MemoryStorage):
    """A store where others clean up as soon as a put has found its place taken."""

    def get_range(self, path: str, start: int, length: int) -> bytes:
        self.delete(path)
        return super().get_range(path, start, length)


def test_a_name_that_is_free_again_is_not_taken(line: Line) -> None:
    """Within the time for which nothing is listed: the answer itself shows that another client wrote."""
    versions = Versions(CleanedUpBetween(URI), "_versions", detect, clock=line.clock)
    assert versions.latest() == 2
    line.others(3, 4)
    with pytest.raises(StopError, match="version 3 existed, and was removed"):
        versions.publish(Publication(3, Scheme.V2.path(3), [b"ours", b"rest"]))
    assert line.stored_numbers() == [1, 2, 4]


def test_others_that_come_first_are_met_by_the_put(line: Line) -> None:
    line.others(3, 4)
    line.remove(1, 2)
    assert line.publish(3) is Published.THEIRS


class Counting(MemoryStorage):
    """A store that notes what it is asked."""

    lists_in_order = False

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.asked: list[str] = []

    def size(self, path: str) -> int | None:
        self.asked.append("size")
        return super().size(path)

    def get(self, path: str) -> bytes:
        self.asked.append("hint" if path.endswith(HINT) else "get")
        return super().get(path)

    def names(self, prefix: str) -> Sequence[str]:
        self.asked.append("list")
        return super().names(prefix)

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        self.asked.append("first")
        return sorted(super().names(prefix))[:count]

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        self.asked.append("put")
        return super().put_if_absent(path, buffers)


@pytest.fixture
def counting() -> Iterator[Counting]:
    yield Counting(URI)
    MemoryStorage.forget(NAME)


@pytest.mark.parametrize("in_order", [False, True])
def test_a_table_that_is_written_to_all_the_time_is_checked_once_a_version(
    counting: Counting, monkeypatch: pytest.MonkeyPatch, *, in_order: bool
) -> None:
    """However long that lasts. Hints of other clients are read on stores where they leave some.

    After the put a store that is reached over a network lists its first names. A local disk, which doesn't
    list in order, checks the version before once more, and never lists again.
    """
    counting.lists_in_order = in_order
    monkeypatch.setattr(MemoryStorage, "cheap_size", not in_order)
    line = Line(counting, Clock(), Versions(counting, "_versions", detect))
    line.versions._clock = line.clock
    line.publish(1)
    counting.asked.clear()
    for version in range(2, 10):
        line.clock.now += CONFIRMED_SECONDS - 1
        assert line.publish(version) is Published.OURS
    each = ["size", "put", "first"] if in_order else ["size", "hint", "put", "size"]
    assert counting.asked == each * 8
    counting.asked.clear()
    line.clock.now += CONFIRMED_SECONDS + 1
    assert line.publish(10) is Published.OURS
    last = ["first", "size", "put", "first"] if in_order else ["list", "size", "put", "size"]
    assert counting.asked == last


def test_the_listing_after_a_put_replaces_the_check_before_the_next(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.lists_in_order = True
    monkeypatch.setattr(MemoryStorage, "cheap_size", False)
    clock = Clock()
    line = Line(counting, clock, Versions(counting, "_versions", detect, clock=clock))
    line.publish(1)
    counting.asked.clear()
    assert [line.publish(version) for version in (2, 3)] == [Published.OURS] * 2
    assert counting.asked == ["put", "first"] * 2
    clock.now += RECENT_SECONDS + 0.01
    counting.asked.clear()
    assert line.publish(4) is Published.OURS
    assert counting.asked == ["size", "put", "first"]


@pytest.fixture
def far(line: Line, monkeypatch: pytest.MonkeyPatch) -> Line:
    """The same line on a store that is reached over a network."""
    monkeypatch.setattr(MemoryStorage, "cheap_size", False)
    line.versions = Versions(line.store, "_versions", detect, clock=line.clock)
    assert line.versions.latest() == 2
    return line


def test_what_took_a_name_that_was_freed_is_not_published(far: Line) -> None:
    """Others commit twice between look and put, and remove the first; a tag keeps the version before."""
    with stopped_at_the_put(far, 3) as put:
        far.others(3, 4)
        far.remove(3)
    with pytest.raises(StopError, match="version 3 was put, but the newest is 4"):
        put.result(120)


@pytest.mark.parametrize("follows", [True, False])
def test_whether_later_versions_follow_ours_is_for_the_caller_to_say(far: Line, *, follows: bool) -> None:
    far.others(4)
    publication = Publication(3, Scheme.V2.path(3), [b"ours", b"rest"])
    far.store.put(publication.path, publication.buffers)
    if follows:
        assert far.versions.publish(publication, follows=lambda: True) is Published.OURS
    else:
        with pytest.raises(StopError, match="version 3 was put, but the newest is 4"):
            far.versions.publish(publication, follows=lambda: False)


def test_a_store_that_records_versions_elsewhere_is_not_listed_after_a_put(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStorage, "cheap_size", False)
    monkeypatch.setattr(Counting, "records_versions", True)
    counting.lists_in_order = True
    line = Line(counting, Clock(), Versions(counting, "_versions", detect))
    line.publish(1)
    counting.asked.clear()
    assert line.publish(2) is Published.OURS
    assert counting.asked == ["size", "put"]


def test_a_table_in_doubt_is_listed_before_the_next_put(counting: Counting) -> None:
    line = Line(counting, Clock(), Versions(counting, "_versions", detect))
    line.versions._clock = line.clock
    line.publish(1)
    line.versions.doubt()
    counting.asked.clear()
    assert line.publish(2) is Published.OURS
    assert counting.asked == ["list", "size", "put", "size"]


def test_a_put_that_took_long_is_checked_afterwards(line: Line) -> None:
    with stopped_at_the_put(line, 3) as put:
        line.clock.now += CHECK_SECONDS + 1
    assert put.result(120) is Published.OURS
    assert line.publish(4) is Published.OURS


def test_a_version_of_ours_confirms_the_table_from_the_check_on_not_from_the_answer(line: Line) -> None:
    with stopped_at_the_put(line, 3) as put:
        line.clock.now += CHECK_SECONDS / 2
    assert put.result(120) is Published.OURS
    line.clock.now += CONFIRMED_SECONDS - CHECK_SECONDS / 4
    line.others(4, 5)
    line.remove(1, 2, 4)
    with pytest.raises(StopError):
        line.publish(4)
    assert line.stored_numbers() == [3, 5]


@pytest.mark.parametrize("later", [0, CHECK_SECONDS + 1, CONFIRMED_SECONDS + 1])
def test_a_version_of_ours_confirms_no_more_than_the_check_before_it(line: Line, later: float) -> None:
    """The process was suspended after the put: what happened to the branch is checked before the next."""
    assert line.publish(3) is Published.OURS
    line.clock.now += later
    line.others(4, 5)
    line.remove(1, 2, 3, 4)
    with pytest.raises(StopError):
        line.publish(4)
    assert line.stored_numbers() == [5]


@pytest.mark.parametrize(
    ("names", "newest", "asked"),
    [
        ([Scheme.V2.path(number) for number in range(1, 30)], 29, ["first"]),
        ([Scheme.V2.path(7), Scheme.V2.path(7) + "-uuid", "_versions/.tmp1", "_versions/x"], 7, ["first"]),
        ([f"_versions/.tmp{number}" for number in range(9)] + [Scheme.V2.path(3)], 3, ["first", "list"]),
        ([Scheme.V1.path(number) for number in range(1, 30)], 29, ["first", "list"]),
        ([], 0, ["first", "list"]),
    ],
)
def test_the_newest_is_found_by_the_first_names_if_a_store_lists_them_in_order(
    counting: Counting, names: list[str], newest: int, asked: list[str]
) -> None:
    counting.lists_in_order = True
    for name in names:
        counting._shared.objects[counting._below + name] = b"x"
    line = Versions(counting, "_versions", detect)
    assert line.latest() == newest
    assert counting.asked == asked
    if newest:
        assert line.path(newest) in names


def test_a_clock_goes_on() -> None:
    assert seconds() <= seconds()
