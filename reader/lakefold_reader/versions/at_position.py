"""Finds the version that first contains the log up to a position, by bisection.

Positions grow from version to version that a committer made (invariant positions-grow), and each of these
records which offsets it answered. A version that another client made in between records nothing of its own:
it may carry the marks of an older version, or none. So the answer is always a committer's version, and it is
verified by the range that it answered, or by the committer's version before it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_reader.versions.late_versions import is_late_at, without_late
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.positions import PositionQuery, log_position, position_query, reached
from lakefold_reader.versions.proposals import counting_marks
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary
    from lakefold_table.position import LogId, Position


def version_at_position(source: Source, position: object) -> int:
    """Returns the oldest version that counts this position of the log as folded, whatever its outcome was.

    If the entry shares its version with others, the version contains these too. If the offset belongs to
    another table, it is the first version that was folded from beyond the offset. The number of versions that
    are read is the logarithm of all. Raises as `position_query` and `log_position`, `InvalidError` if no
    committer made a version of this branch, `VersionExpiredError` if that version was cleaned up.
    """
    query = position_query(position)
    numbers = numbers_of(source)
    try:
        version = _oldest_with(source, numbers, query)
    except VersionExpiredError:
        return _oldest_with(source, without_late(source, numbers), query)
    if version != numbers[-1] and is_late_at(source, version):
        return _oldest_with(source, without_late(source, numbers), query)
    return version


def _oldest_with(source: Source, numbers: Sequence[int], query: PositionQuery) -> int:
    marks = counting_marks(source, numbers)
    if marks is None:
        raise InvalidError(
            "none of the existing versions was made by a committer, so no position of a log is known",
            where=source.uri,
            hint="name a version or a time",
        )
    return _PositionSearch(source, numbers, marks, log_position(query, marks, source.uri)).oldest()


@dataclass(frozen=True, slots=True)
class _Answered:
    """What is kept of a version that was read.

    `first` and `last`: the offsets of `log` that it answered, if a committer made it. `carried`: for a
    version of another client the version whose marks it carries, -1 if that is not known.
    """

    log: LogId | None = None
    first: int = 0
    last: int = -1
    carried: int = -1
    is_clone: bool = False

    @property
    def own(self) -> bool:
        """Whether a committer made it."""
        return self.log is not None


_NOTHING = _Answered()


@dataclass
class _PositionSearch:
    """The versions, the newest marks that count, and a position that they count as folded."""

    source: Source
    numbers: Sequence[int]
    marks: Marks
    position: Position
    _kept: dict[int, _Answered] = field(default_factory=dict)

    def oldest(self) -> int:
        """Returns the oldest version that contains the position."""
        low, high = -1, bisect_left(self.numbers, self.marks.version)
        while high - low > 1:
            middle = (low + high) // 2
            own = self._own_at(middle, low)
            if own is not None and self._holds(own):
                high = own
            else:
                low = middle
        return self._verified(high)

    def _verified(self, index: int) -> int:
        """Returns the version at this index, or an older version that contains the position as well.

        The bisection counted versions of other clients as if they didn't contain it.
        """
        while not self._answers(index):
            before = self._own_before(index)
            if before is None:
                self._check_begins()
                break
            if not self._holds(before):
                break
            index = before
        return self.numbers[index]

    def _own_at(self, at: int, low: int) -> int | None:
        """Returns the index of a committer's version: `at`, or the version whose marks it carries."""
        answered = self._read(at)
        if answered.own:
            return at
        own = bisect_left(self.numbers, answered.carried)
        is_between = low < own < at and self.numbers[own] == answered.carried
        return own if is_between and self._read(own).own else None

    def _own_before(self, at: int) -> int | None:
        return next((index for index in range(at - 1, -1, -1) if self._read(index).own), None)

    def _holds(self, at: int) -> bool:
        """Returns whether a committer's version counts the position as folded."""
        answered = self._read(at)
        if answered.log == self.position.log:
            return answered.last >= self.position.offset
        whole = self.source.summary(self.numbers[at], whole=True)
        marks = None if whole is None else _marks_in(whole)
        return marks is not None and reached(marks, self.position.log) >= self.position.offset

    def _answers(self, at: int) -> bool:
        """Returns whether the position is in the range that a version answered."""
        answered = self._read(at)
        return answered.log == self.position.log and answered.first <= self.position.offset <= answered.last

    def _check_begins(self) -> None:
        """Raises `VersionExpiredError` if versions older than the existing ones are gone."""
        if self.numbers[0] == self.source.versions.first or self._read(0).is_clone:
            return
        raise VersionExpiredError(
            f"the version that first held {self.position} is gone: it was cleaned up",
            oldest=self.numbers[0],
            where=self.source.uri,
            hint=f"the oldest one left is {self.numbers[0]}",
        )

    def _read(self, at: int) -> _Answered:
        if at not in self._kept:
            summary = self.source.summary(self.numbers[at])
            self._kept[at] = _NOTHING if summary is None else self._kept_of(summary)
        return self._kept[at]

    def _kept_of(self, summary: VersionSummary) -> _Answered:
        is_clone = summary.begins_clone
        record = decode_record(summary.properties, self.source.uri) if summary.own else None
        if record is not None:
            return _Answered(record.log, record.first_offset, record.last_offset, is_clone=is_clone)
        marks = _marks_in(summary)
        is_ours = marks is not None and (marks.table_id, marks.branch) == (
            self.marks.table_id,
            self.marks.branch,
        )
        return _Answered(carried=marks.version if marks is not None and is_ours else -1, is_clone=is_clone)


def _marks_in(summary: VersionSummary) -> Marks | None:
    """Returns the marks in a version.

    Returns None if they can't be decoded: other clients may have broken them.
    """
    try:
        return None if summary.metadata is None else decode_marks(summary.metadata)
    except DamagedError:
        return None
