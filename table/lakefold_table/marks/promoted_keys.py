"""The batches that one branch has and another one lacks, as ranges, for a promote.

An entry without an app id is sent to one branch alone, so it needs no key on another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lakefold.log_pb2 import BatchKey
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.intervals import Interval, joined, less

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_protos.lakefold.log_pb2 import Promotes
    from lakefold_table.marks.marks import Marks

NONE = AppMark()


def add_keys(promotes: Promotes, before: Marks, now: Marks) -> None:
    """Adds the keys that marks of a branch have now and had not before, and those that were undone since."""
    for app_id, mark in sorted(now.apps.items()):
        then = before.apps.get(app_id, NONE)
        live, undone = _live(mark), joined(part[:2] for part in mark.rolled_back)
        promotes.keys.extend(_ranges(app_id, less(live, _live(then))))
        gone = less(_live(then), less(_live(then), undone))
        promotes.undone.extend(_ranges(app_id, gone))
        promotes.left_out.extend(_ranges(app_id, less(less(undone, then.folded), less(undone, mark.folded))))


def last_of(key: BatchKey) -> int:
    """Returns the last batch that a key names, which may name a range of them."""
    return max(key.last_batch_id, key.batch_id)


def lacking(marks: Marks, key: BatchKey) -> Iterator[BatchKey]:
    """Yields the parts of a key that are known not to be folded, or that were undone."""
    mark = marks.apps.get(key.app_id, NONE)
    forgotten = [(0, mark.forgotten_below - 1)] if mark.forgotten_below else []
    known = joined([*forgotten, *_live(mark)])
    yield from _ranges(key.app_id, less([(key.batch_id, last_of(key))], known))


def folded_on_both(marks: Marks, promotes: Promotes) -> Iterator[str]:
    """Yields promoted keys that a branch with these marks has as well: their rows would be there twice.

    Of a range it yields the first batch of each part.
    """
    for key in promotes.keys:
        parts = lacking(marks, key)
        sent = [(key.batch_id, last_of(key))]
        both = less(sent, [(part.batch_id, last_of(part)) for part in parts])
        yield from (f"{key.app_id}:{first}" for first, _ in both)


def _live(mark: AppMark) -> list[Interval]:
    return less(mark.folded, joined(part[:2] for part in mark.rolled_back))


def _ranges(app_id: str, parts: Sequence[Interval]) -> Iterator[BatchKey]:
    for first, last in parts:
        yield BatchKey(app_id=app_id, batch_id=first, last_batch_id=last if last > first else None)
