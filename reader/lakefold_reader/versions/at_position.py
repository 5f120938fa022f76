"""Which version holds the log up to a position: found by halving, as a time is.

Positions grow from version to version that a committer made (invariant positions-grow), and each of these
says at its head which offsets it answered. What others made in between says nothing of its own: it may carry
the marks of an older version, or none. So the answer is always a committer's version, and it is proven by the
range that it covers, or by the committer's version before it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_reader.versions.positions import Asked, asked_of, place_of, reached
from lakefold_reader.versions.proposals import proven_marks
from lakefold_reader.versions.source import numbers_of, read_step
from lakefold_reader.versions.stray_files import in_line, is_stray_at
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.lance.operations import Kind
from lakefold_table.marks.marks import decode_marks
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.versions.source import Source, Step
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import LogId, Position


def version_at_position(source: Source, position: object) -> int:
    """The oldest version that counts this position of the log as folded, whatever became of its entry.

    Where the entry shares its version with others, it holds those too; where the offset belongs to another
    table, it is the first one that was folded from beyond it. The number of versions looked at is the
    logarithm of all. Raises as `positions.asked_of` and `place_of` do, `InvalidError` where no committer made
    a version of this line, `VersionExpiredError` where that version was cleaned up.
    """
    asked = asked_of(position)
    numbers = numbers_of(source)
    try:
        found = _oldest_with(source, numbers, asked)
    except VersionExpiredError:
        return _oldest_with(source, in_line(source, numbers), asked)
    if found != numbers[-1] and is_stray_at(source, found):
        return _oldest_with(source, in_line(source, numbers), asked)
    return found


def _oldest_with(source: Source, numbers: Sequence[int], asked: Asked) -> int:
    marks = proven_marks(source, numbers)
    if marks is None:
        raise InvalidError(
            "no committer made any of the versions here, so no position of a log is known",
            where=source.uri,
            hint="name a version or a time",
        )
    return _Search(source, numbers, marks, place_of(asked, marks, source.uri)).oldest()


@dataclass(frozen=True, slots=True)
class _Told:
    """What is kept of a version.

    `first` and `last`: the offsets of `log` that it answered, if a committer made it. `carried`: the version
    whose marks are in one that others made, 0 where that tells nothing.
    """

    log: LogId | None = None
    first: int = 0
    last: int = -1
    carried: int = 0
    is_clone: bool = False

    @property
    def own(self) -> bool:
        """Whether a committer made it."""
        return self.log is not None


_NOTHING = _Told()


@dataclass
class _Search:
    """The versions, the newest marks that count, and a position that they count as folded."""

    source: Source
    numbers: Sequence[int]
    marks: Marks
    place: Position
    _kept: dict[int, _Told] = field(default_factory=dict)

    def oldest(self) -> int:
        """The version wanted."""
        low, high = -1, bisect_left(self.numbers, self.marks.version)
        while high - low > 1:
            middle = (low + high) // 2
            own = self._own_at(middle, low)
            if own is not None and self._holds(own):
                high = own
            else:
                low = middle
        return self._proven(high)

    def _proven(self, found: int) -> int:
        """The version found, or an older one that holds the position as well.

        Halving took others' versions for such that don't hold it.
        """
        while not self._answers(found):
            before = self._own_before(found)
            if before is None:
                self._check_begins()
                break
            if not self._holds(before):
                break
            found = before
        return self.numbers[found]

    def _own_at(self, at: int, low: int) -> int | None:
        """The place of a committer's version at `at`, or of the one whose marks others carry on there."""
        told = self._told(at)
        if told.own:
            return at
        own = bisect_left(self.numbers, told.carried)
        there = low < own < at and self.numbers[own] == told.carried
        return own if there and self._told(own).own else None

    def _own_before(self, at: int) -> int | None:
        return next((place for place in range(at - 1, -1, -1) if self._told(place).own), None)

    def _holds(self, at: int) -> bool:
        """Whether a committer's version counts the position as folded."""
        told = self._told(at)
        if told.log == self.place.log:
            return told.last >= self.place.offset
        whole = read_step(self.source, self.numbers[at], whole=True)
        marks = None if whole is None else _marks_in(whole)
        return marks is not None and reached(marks, self.place.log) >= self.place.offset

    def _answers(self, at: int) -> bool:
        """Whether the position lies in the range that a version answered."""
        told = self._told(at)
        return told.log == self.place.log and told.first <= self.place.offset <= told.last

    def _check_begins(self) -> None:
        """Raises `VersionExpiredError` where older versions than the ones that are left are gone."""
        if self.numbers[0] == 1 or self._told(0).is_clone:
            return
        raise VersionExpiredError(
            f"the version that first held {self.place} is gone: it was cleaned up",
            oldest=self.numbers[0],
            where=self.source.uri,
            hint=f"the oldest one left is {self.numbers[0]}",
        )

    def _told(self, at: int) -> _Told:
        if at not in self._kept:
            step = read_step(self.source, self.numbers[at])
            self._kept[at] = _NOTHING if step is None else self._kept_of(step)
        return self._kept[at]

    def _kept_of(self, step: Step) -> _Told:
        is_clone = step.kind is Kind.CLONE
        record = decode_record(step.properties, self.source.uri) if step.own else None
        if record is not None:
            return _Told(record.log, record.first_offset, record.last_offset, is_clone=is_clone)
        marks = _marks_in(step)
        is_ours = marks is not None and (marks.table_id, marks.branch) == (
            self.marks.table_id,
            self.marks.branch,
        )
        return _Told(carried=marks.version if marks is not None and is_ours else 0, is_clone=is_clone)


def _marks_in(step: Step) -> Marks | None:
    """The marks in a version, whatever they are worth: others may have broken them."""
    try:
        return None if step.head is None else decode_marks(step.head.table_metadata)
    except DamagedError:
        return None
