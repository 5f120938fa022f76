"""A drop of a table in a bucket is run again while the first run is suspended, before each of its requests.

The second run ends, and another table is created at the path, whose files have the names of the old ones. The
first run removes none of them; a request to remove an object that is on its way can't be stopped. Promise:
dropped-by-a-version (docs/operations/promises.md).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from lakefold.binding.drop_table import publish_dropped, removal_stopped, remove
from lakefold.cli import run
from lakefold_table.errors import LakefoldError
from lakefold_table.storage import OPENERS
from lakefold_table.versions import removal
from lakefold_table.versions.drop_note import read_dropped
from lakefold_table.versions.table_address import TableAddress
from tests.folding import append, creation, fold_at, opened
from tests.memory_storage import MemoryStorage
from tests.unit.test_dropping import HERE, NAME, bound, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_table.versions.drop_note import DroppedBranch

MOST = 200
CALLS = ("get", "get_range", "get_tail", "size", "put", "put_if_absent", "list", "names")
LATER = 10
"""Offsets of the other table's entries."""
DROPPED: list[DroppedBranch] = []
"""The branches of the table that is dropped now."""


class Suspended(MemoryStorage):
    """Acts once before the call of a number, counted from 1 over all stores."""

    left = 0
    act: Callable[[], object] = staticmethod(lambda: None)
    _lock = threading.RLock()


def _counting(call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(storage: Suspended, *given: object, **named_too: object) -> object:
        with Suspended._lock:
            Suspended.left -= 1
            if not Suspended.left:
                Suspended.act()
        return call(storage, *given, **named_too)

    return counted


for _name in CALLS:
    setattr(Suspended, _name, _counting(getattr(MemoryStorage, _name)))


def objects() -> dict[str, bytes]:
    storage = MemoryStorage(HERE)
    return {path: storage.get(path) for path in storage.everything()}


def make_table(first: int) -> None:
    fold_at(opened(HERE), [named(creation())], first)
    for offset in (1, 2):
        fold_at(opened(HERE), [named(append(f"f{offset}"))], first + offset)
    storage = MemoryStorage(HERE)
    for path in ("data/f1-0.lance", "data/f2-0.lance", "_refs/tags/x.json"):
        storage.put(path, [str(first).encode()])


def played(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[tuple[int, bool]]:
    """Drops a table; `act` comes before one more request each time. Yields its number, and if all went."""
    monkeypatch.setattr(removal, "CHECKED_S", -1)

    def acting() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(OPENERS, "memory", MemoryStorage)
            act()

    for number in range(1, MOST):
        MemoryStorage.forget(NAME)
        make_table(0)
        assert run(["detach", HERE, "--unanswered"]) == 0
        DROPPED[:] = publish_dropped(TableAddress(HERE))
        Suspended.left, Suspended.act = number, staticmethod(acting)
        with monkeypatch.context() as patch:
            patch.setitem(OPENERS, "memory", Suspended)
            try:
                remove(TableAddress(HERE), tuple(DROPPED), lambda _: None)
            except LakefoldError:
                ended = False
            else:
                ended = True
        if Suspended.left > 0:
            break
        yield number, ended
    assert number > 30
    MemoryStorage.forget(NAME)


def test_a_run_that_was_suspended_removes_nothing_of_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    others = list[dict[str, bytes]]()

    def another_begins() -> None:
        remove(TableAddress(HERE), tuple(DROPPED), lambda _: None)
        make_table(LATER)
        others.append(objects())

    results = set[bool]()
    for number, ended in played(monkeypatch, another_begins):
        noted = read_dropped(TableAddress(HERE))
        assert (objects(), noted is not None and noted.removing) == (others[-1], False), number
        results.add(ended)
    assert results == {True, False}


def test_a_run_removes_nothing_more_of_a_table_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[dict[str, bytes]]()

    def keep() -> None:
        kept.append({})
        with suppress(LakefoldError), removal_stopped(TableAddress(HERE)):
            bound(HERE, keep=True)
            kept[-1] = objects()

    results = set[bool]()
    for number, _ in played(monkeypatch, keep):
        results.add(bool(kept[-1]))
        if kept[-1]:
            assert objects() == kept[-1], number
        else:
            assert not objects() or run(["drop", HERE, "--yes"]) == 0
            assert not MemoryStorage(HERE).anything_at_root()
    assert results == {True, False}
