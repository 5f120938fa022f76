"""What a table's own versions say about one proposal: no broker is asked.

The marks tell which keys were folded and, for the newest, into which version; the record in each version
tells what became of the positions it covers. A version that was cleaned up took its record with it, but not
the marks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_reader.versions.positions import printed
from lakefold_reader.versions.source import numbers_of, read_step, time_of
from lakefold_table.entry import Duplicate, Outcome
from lakefold_table.errors import InvalidError
from lakefold_table.lance.carrying import restored_by
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.refs.names import branch_root
from lakefold_table.marks.marks import decode_marks
from lakefold_table.marks.record import decode_record, position_at
from lakefold_table.marks.rollbacks import rolled_back
from lakefold_table.roots import above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from lakefold_reader.versions.positions import Asked
    from lakefold_reader.versions.source import Source, Step
    from lakefold_table.entry import Result
    from lakefold_table.marks.marks import Marks
    from lakefold_table.marks.record import Record
    from lakefold_table.position import LogId, Position

_KEY: Final = re.compile(r"(.+):([0-9]{1,20})", re.DOTALL)
_BATCH_LIMIT: Final = 2**64
_HOW: Final = (
    "name it by its transaction's uuid, by its offset in the log (or TOPIC/PARTITION@OFFSET), or as "
    "APP_ID:BATCH_ID"
)


@dataclass(frozen=True, slots=True)
class Sought:
    """How a proposal is named: by its offset, by app and batch id, or by its transaction's uuid.

    `place`: what is said of the log that the offset is in.
    """

    text: str
    offset: int | None = None
    uuid: str = ""
    app_id: str = ""
    batch_id: int | None = None
    place: Asked | None = None

    def may_lie_in(self, place: Position) -> bool:
        """Whether it may lie in the log of this position."""
        return self.place is None or self.place.is_in(place)

    def is_of(self, outcome: Outcome) -> bool:
        """Whether this is an outcome of it."""
        if self.offset is not None:
            return outcome.position.offset == self.offset and self.may_lie_in(outcome.position)
        if self.batch_id is not None:
            return (outcome.app_id, outcome.batch_id) == (self.app_id, self.batch_id)
        return outcome.uuid == self.uuid


@dataclass(frozen=True, slots=True)
class VersionTold:
    """The version that tells of a proposal. `first` and `last` are the offsets answered with it.

    `operation`: what the version did; `operations`: what its entries did, and how many did that. `log`: which
    log they stood in; `last_digest`: the digest of the entry at `last` (`Record.last_digest`).
    """

    version: int
    timestamp: datetime
    operation: str
    base_version: int
    entries: int
    topic: str
    partition: int
    first: int
    last: int
    operations: Mapping[str, int]
    log: LogId
    last_digest: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What the table knows. `branch` is its newest version's, `marks` those that count (positions-grow).

    `outcomes` are recorded in versions, newest first; at most the last one is no Duplicate. `version` is
    the one that holds the proposal or records its refusal, where it is there. `committed_in`: a version that
    the marks name (0: they say that it was folded, not where), None where they say nothing.
    `first` and `last` are the versions looked at, `oldest` is the oldest one left.
    """

    uri: str
    branch: str
    marks: Marks | None
    oldest: int
    first: int
    last: int
    outcomes: tuple[Outcome, ...] = ()
    version: VersionTold | None = None
    committed_in: int | None = None

    @property
    def decisive(self) -> Outcome | None:
        """The newest outcome that is no Duplicate, else the newest; None where none is recorded."""
        others = (one for one in self.outcomes if not isinstance(one.result, Duplicate))
        return next(others, self.outcomes[0] if self.outcomes else None)


@dataclass
class _Search:
    """A walk over the versions, from the newest back, until nothing more can be found."""

    sought: Sought
    uri: str
    branch: str
    outcomes: list[Outcome] = field(default_factory=list)
    version: VersionTold | None = None
    committed_in: int | None = None
    settled: bool = False
    logs: set[LogId | str] | None = None

    def look(self, step: Step, record: Record) -> None:
        """Take from one version what it says."""
        for outcome in self._told(step, record):
            self.outcomes.append(outcome)
            if not isinstance(outcome.result, Duplicate):
                self.version, self.settled = _told_by(step, record), True
        if step.version == self.committed_in or self._is_among(record):
            self.version, self.settled, self.committed_in = _told_by(step, record), True, step.version
        if self.sought.offset is not None and self.logs is not None:
            if record.first_offset <= min(self.sought.offset, record.last_offset):
                self.logs.discard(_log_name(record.log))
            self.settled = self.settled or not self.logs

    def _told(self, step: Step, record: Record) -> Iterator[Outcome]:
        offset = self.sought.offset
        if offset is not None:
            found = record.answer(offset)
            if found is not None and self.sought.may_lie_in(position_at(record, offset)):
                yield self._outcome(step, record, offset, found)
            return
        yield from (one for one in reversed(list(record.refused.values())) if self.sought.is_of(one))
        if self._is_alone(step, record):
            ((only, result),) = record.committed.items()
            yield self._outcome(step, record, only, result)

    def _is_alone(self, step: Step, record: Record) -> bool:
        """Whether this version holds the proposal and no other one, so that its position is known."""
        here = step.version == self.committed_in or self._is_among(record)
        return len(record.committed) == 1 and here

    def _is_among(self, record: Record) -> bool:
        """Whether the batches of this version have no gap, and the wanted one lies among them."""
        batch = self.sought.batch_id
        return batch is not None and any(
            one.app_id == self.sought.app_id
            and one.first <= batch <= one.last
            and one.count == one.last - one.first + 1
            for one in record.apps
        )

    def _outcome(self, step: Step, record: Record, offset: int, result: Result) -> Outcome:
        if offset in record.refused:
            return record.refused[offset]
        app_id, batch_id = self.sought.app_id, self.sought.batch_id
        if len(record.committed) == 1 and len(record.apps) == 1:
            app_id, batch_id = record.apps[0].app_id, record.apps[0].first
        return Outcome(
            position_at(record, offset),
            self.uri,
            result,
            self.sought.uuid,
            app_id,
            batch_id,
            step.table_id,
            self.branch,
        )


def sought_of(text: str) -> Sought:
    """The proposal that a person names so. Raises `InvalidError`."""
    if text.isascii() and text.isdigit():
        return Sought(text, offset=int(text))
    place = printed(text)
    if place is not None:
        return Sought(text, offset=place.offset, place=place)
    key = _KEY.fullmatch(text)
    if key is not None and int(key[2]) < _BATCH_LIMIT:
        return Sought(text, app_id=key[1], batch_id=int(key[2]))
    if not text.strip() or key is not None:
        raise InvalidError(f"{text!r} names no proposal", hint=_HOW)
    return Sought(text, uuid=text)


def find(source: Source, sought: Sought, *, at_most: int) -> Finding:
    """What the newest `at_most` versions and the marks say of a proposal.

    Raises `NotATableError` where there is no table, `DamagedError` where a record can't be read.
    """
    numbers = numbers_of(source)
    newest = read_step(source, numbers[-1], whole=True)
    head = None if newest is None else newest.head
    branch = "" if head is None else head.branch
    marks = proven_marks(source, numbers[-at_most:])
    uri = above(source.uri, branch_root(branch)) if branch else source.uri
    committed_in = _marked(sought, marks)
    search = _Search(sought, uri, branch, committed_in=committed_in, logs=_logs(marks))
    lowest = numbers[-1]
    for number in _order(numbers, committed_in, at_most):
        step = read_step(source, number)
        record = decode_record(step.properties, source.uri) if step is not None and step.own else None
        if step is not None and record is not None:
            search.look(step, record)
        lowest = min(lowest, number)
        if search.settled:
            break
    told = tuple(search.outcomes), search.version, search.committed_in
    return Finding(uri, branch, marks, numbers[0], lowest, numbers[-1], *told)


def proven_marks(source: Source, numbers: Sequence[int]) -> Marks | None:
    """The marks of the newest version that a committer made: a foreign one may have rolled them back.

    None where there is none; a clone bears the marks of the line that it was made of, which say nothing here.
    What a foreign Restore behind that version left out of the table is in them.
    """
    restore: Step | None = None
    for number in reversed(numbers):
        # The newest is a committer's mostly, and is wanted whole then.
        step = read_step(source, number, whole=number == numbers[-1])
        if step is not None and step.own:
            whole = read_step(source, number, whole=True) if step.head is None else step
            head = None if whole is None else whole.head
            marks = None if head is None else decode_marks(head.table_metadata, source.uri)
            return marks if marks is None or restore is None else _rolled_back(source, marks, restore)
        if step is not None and step.kind is Kind.CLONE:
            return None
        if step is not None and step.kind is Kind.RESTORE and restore is None:
            restore = step
    return None


def _rolled_back(source: Source, marks: Marks, restore: Step) -> Marks:
    whole = restore if restore.head is not None else read_step(source, restore.version, whole=True)
    to = restored_by(restore.transaction)
    if whole is None or whole.head is None or not to:
        return marks
    return rolled_back(marks, restore.version, to, whole.head.table_metadata)


def _order(numbers: list[int], committed_in: int | None, at_most: int) -> Iterator[int]:
    """The version that the marks name, where there is one; else the newest ones, from the newest back."""
    if committed_in and committed_in in numbers:
        yield committed_in
    elif not committed_in:
        yield from reversed(numbers[-at_most:])


def _marked(sought: Sought, marks: Marks | None) -> int | None:
    """The version that the marks name for a key; 0 where they only say that it was folded."""
    if marks is None:
        return None
    if sought.batch_id is not None:
        mark = marks.apps.get(sought.app_id)
        return mark.version_of(sought.batch_id) if mark is not None and mark.has(sought.batch_id) else None
    return dict(marks.uuids).get(sought.uuid)


def _logs(marks: Marks | None) -> set[LogId | str] | None:
    """The logs whose positions the versions record; None where the marks don't tell."""
    if marks is None:
        return None
    positions = (marks.position, *(move.before for move in marks.moves))
    bound = [_log_name(one.log) for one in positions if one is not None]
    return {*bound, *(name for name, _ in marks.file_logs)}


def _log_name(log: LogId) -> LogId | str:
    return log.topic_id if log.is_file else log


def _told_by(step: Step, record: Record) -> VersionTold:
    return VersionTold(
        step.version,
        time_of(step.time_us),
        step.operation,
        record.base_version,
        len(record.committed),
        record.topic or record.log.topic_id,
        record.log.partition,
        record.first_offset,
        record.last_offset,
        record.operations(step.operation),
        record.log,
        record.last_digest,
    )
