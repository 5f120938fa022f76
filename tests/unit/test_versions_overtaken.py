"""A place that is free may have been taken before: what is put there must follow the newest version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import RetryError, StopError
from lakefold_table.format import Publication
from lakefold_table.lance.manifests.naming import Scheme, detect
from lakefold_table.storage.memory import Hold, MemoryStorage
from lakefold_table.versions import HINT, PROVEN_SECONDS, Published, Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "overtaken"
URI = f"memory://{NAME}/t"


@dataclass
class Clock:
    """Stands still unless it is moved on."""

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

    def there(self) -> list[int]:
        """What a look at the store shows, unnoticed by `versions`."""
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
    found = Line(store, clock, Versions(store, "_versions", detect, clock=clock))
    assert found.publish(1) is Published.OURS
    assert found.publish(2) is Published.OURS
    yield found
    MemoryStorage.forget(NAME)


def cleaned_up(line: Line) -> None:
    line.others(3, 4)
    line.remove(1, 2, 3)


def cleaned_up_but_for_a_tag(line: Line) -> None:
    """It is long ago, and nobody has left a note."""
    line.others(3, 4)
    line.remove(1, 3)
    line.clock.now += PROVEN_SECONDS + 1


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
def test_nothing_is_put_where_the_line_went_on_without(line: Line, act: Callable[[Line], None]) -> None:
    act(line)
    before = line.there()
    with pytest.raises(StopError, match="versions missing between them"):
        line.publish(3)
    assert line.there() == before


@pytest.mark.parametrize("act", [cleaned_up, cleaned_up_but_for_a_tag, cleaned_up_but_for_a_tag_a_moment_ago])
def test_what_was_put_late_is_not_told_as_published(line: Line, act: Callable[[Line], None]) -> None:
    """The process stood still between its last look and the put."""
    hold = Hold(suffix=Scheme.V2.path(3))
    line.store.faults.plan(hold)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(line.publish, 3)
        assert hold.reached.wait(30)
        act(line)
        hold.release.set()
        with pytest.raises(StopError, match="version 3 was put, but the newest is 4"):
            put.result(30)


def test_where_no_version_is_left_it_is_tried_again(line: Line) -> None:
    line.remove(1, 2)
    for _ in range(2):
        with pytest.raises(RetryError, match="now there is none"):
            line.publish(3)
    assert line.there() == []
    line.others(1, 2)
    assert line.publish(3) is Published.OURS


def test_a_first_version_is_put_only_where_there_never_was_one() -> None:
    store = MemoryStorage(URI)
    first = Versions(store, "_versions", detect)
    assert first.latest() == 0
    store.put(Scheme.V2.path(7), [b"theirs"])
    with pytest.raises(StopError, match="now it is 7"):
        first.publish(Publication(1, Scheme.V2.path(1), [b"ours"]))
    MemoryStorage.forget(NAME)


@pytest.mark.parametrize("hint", [b'{"version":2}', b"", b"[]", b'{"version":"x"}', b'{"version":99}'])
def test_no_note_keeps_a_version_from_being_put_that_may_be(line: Line, hint: bytes) -> None:
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


def test_a_place_that_is_free_again_is_not_taken(line: Line) -> None:
    """Within the time for which nothing is listed: the answer itself says that somebody was there."""
    versions = Versions(CleanedUpBetween(URI), "_versions", detect, clock=line.clock)
    assert versions.latest() == 2
    line.others(3, 4)
    with pytest.raises(StopError, match="version 3 was there, and is gone again"):
        versions.publish(Publication(3, Scheme.V2.path(3), [b"ours", b"rest"]))
    assert line.there() == [1, 2, 4]


def test_others_that_come_first_are_met_by_the_put(line: Line) -> None:
    line.others(3, 4)
    line.remove(1, 2)
    assert line.publish(3) is Published.THEIRS
