"""Finds what a table's own versions record about a proposal, without a broker.

The marks say which keys were folded and, for the newest keys, into which version. The record in each version
says what became of the positions that it covers. When a version is cleaned up its record is lost, but not the
marks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.positions import PositionQuery, printed
from lakefold_reader.versions.times import time_of
from lakefold_table.entry import Duplicate, Outcome, Result
from lakefold_table.errors import InvalidError
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.record import Record, decode_record, position_at
from lakefold_table.marks.rollbacks import rolled_back
from lakefold_table.roots import above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from lakefold_reader.format.source import Source
    from lakefold_table.author import Author
    from lakefold_table.format import VersionSummary
    from lakefold_table.position import LogId, Position

_KEY: Final = re.compile(r"(.+):([0-9]{1,20})", re.DOTALL)
MOST_FOREIGN: Final = 30
"""So many versions of other clients may follow the marks that count for what was undone."""
_BATCH_LIMIT: Final = 2**64
_HOW: Final = (
    "name it by its transaction's uuid, by its offset in the log (or TOPIC/PARTITION@OFFSET), or as "
    "APP_ID:BATCH_ID"
)


@dataclass(frozen=True, slots=True)
class ProposalName:
    """How a proposal is named: by its offset, by app and batch id, or by its transaction's uuid.

    `log`: what is known of the log that has the offset.
    """

    text: str
    offset: int | None = None
    uuid: str = ""
    app_id: str = ""
    batch_id: int | None = None
    log: PositionQuery | None = None

    def may_lie_in(self, position: Position) -> bool:
        """Returns whether the proposal may be in the log of this position."""
        return self.log is None or self.log.is_in(position)

    def is_of(self, outcome: Outcome) -> bool:
        """Returns whether the outcome is one of this proposal."""
        if self.offset is not None:
            return outcome.position.offset == self.offset and self.may_lie_in(outcome.position)
        if self.batch_id is not None:
            return (outcome.app_id, outcome.batch_id) == (self.app_id, self.batch_id)
        return outcome.uuid == self.uuid


@dataclass(frozen=True, slots=True)
class RecordingVersion:
    """The version that records a proposal. `first` and `last` are the offsets answered with it.

    `operation`: what the version did; `operations`: what its entries did, and how many did that. `log`: the
    log of the entries; `last_digest`: the digest of the entry at `last` (`Record.last_digest`). `author_of`:
    who sent each entry, by offset, as far as that was said.
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
    author_of: Mapping[int, Author]


@dataclass(frozen=True, slots=True)
class RecordedProposal:
    """What the table records. `branch` is its newest version's, `marks` those that count (positions-grow).

    `outcomes` are recorded in versions, newest first; at most the last is not a Duplicate. `version` is the
    version that contains the proposal or records its refusal, if it still exists. `committed_in`: a version
    that the marks name (0: they say that it was folded, not where), None if they have no such key. `first`
    and `last` are the versions that were read, `oldest` is the oldest version left.
    """

    uri: str
    branch: str
    marks: Marks | None
    oldest: int
    first: int
    last: int
    outcomes: tuple[Outcome, ...] = ()
    version: RecordingVersion | None = None
    committed_in: int | None = None

    @property
    def decisive(self) -> Outcome | None:
        """The newest outcome that is not a Duplicate, else the newest. Returns None if none is recorded."""
        others = (outcome for outcome in self.outcomes if not isinstance(outcome.result, Duplicate))
        return next(others, self.outcomes[0] if self.outcomes else None)


@dataclass
class _VersionSearch:
    """A walk over the versions from the newest back, until nothing more can be found."""

    sought: ProposalName
    uri: str
    branch: str
    outcomes: list[Outcome] = field(default_factory=list)
    version: RecordingVersion | None = None
    committed_in: int | None = None
    settled: bool = False
    logs: set[LogId | str] | None = None

    def look(self, summary: VersionSummary, record: Record) -> None:
        """Adds what a version records."""
        for outcome in self._outcomes_in(summary, record):
            self.outcomes.append(outcome)
            if not isinstance(outcome.result, Duplicate):
                self.version, self.settled = _recorded_version(summary, record), True
        if summary.version == self.committed_in or self._is_among(record):
            self.version, self.settled, self.committed_in = (
                _recorded_version(summary, record),
                True,
                summary.version,
            )
        if self.sought.offset is not None and self.logs is not None:
            if record.first_offset <= min(self.sought.offset, record.last_offset):
                self.logs.discard(_log_name(record.log))
            self.settled = self.settled or not self.logs

    def _outcomes_in(self, summary: VersionSummary, record: Record) -> Iterator[Outcome]:
        offset = self.sought.offset
        if offset is not None:
            answer = record.answer(offset)
            if answer is not None and self.sought.may_lie_in(position_at(record, offset)):
                yield self._outcome(summary, record, offset, answer)
            return
        yield from (
            outcome for outcome in reversed(list(record.refused.values())) if self.sought.is_of(outcome)
        )
        if self._is_alone(summary, record):
            ((only, result),) = record.committed.items()
            yield self._outcome(summary, record, only, result)

    def _is_alone(self, summary: VersionSummary, record: Record) -> bool:
        """Returns whether this version contains the proposal and no other, so that its position is known."""
        is_named = summary.version == self.committed_in or self._is_among(record)
        return len(record.committed) == 1 and is_named

    def _is_among(self, record: Record) -> bool:
        """Returns whether the batches of this version have no gap and include the one that is sought."""
        batch = self.sought.batch_id
        if batch is not None and record.has_promoted(self.sought.app_id, batch):
            return True
        return batch is not None and any(
            batches.app_id == self.sought.app_id
            and batches.first <= batch <= batches.last
            and batches.count == batches.last - batches.first + 1
            for batches in record.apps
        )

    def _outcome(self, summary: VersionSummary, record: Record, offset: int, result: Result) -> Outcome:
        if offset in record.refused:
            return record.refused[offset]
        app_id, batch_id = self.sought.app_id, self.sought.batch_id
        if len(record.committed) == 1 and len(record.apps) == 1:
            app_id, batch_id = record.apps[0].app_id, record.apps[0].first
        if record.promotes is not None:
            # The entry at this position is the promote, and its key isn't that of the batch.
            app_id, batch_id = "", None
        return Outcome(
            position_at(record, offset),
            self.uri,
            result,
            self.sought.uuid,
            app_id,
            batch_id,
            summary.table_id,
            self.branch,
        )


def sought_of(text: str) -> ProposalName:
    """Returns the proposal that a text of a person names. Raises `InvalidError`."""
    if text.isascii() and text.isdigit():
        return ProposalName(text, offset=int(text))
    position = printed(text)
    if position is not None:
        return ProposalName(text, offset=position.offset, log=position)
    key = _KEY.fullmatch(text)
    if key is not None and int(key[2]) < _BATCH_LIMIT:
        return ProposalName(text, app_id=key[1], batch_id=int(key[2]))
    if not text.strip() or key is not None:
        raise InvalidError(f"{text!r} names no proposal", hint=_HOW)
    return ProposalName(text, uuid=text)


def find(source: Source, sought: ProposalName, *, at_most: int) -> RecordedProposal:
    """Returns what the newest `at_most` versions and the marks record of a proposal.

    Raises `NotATableError` if the table does not exist, `DamagedError` if a record can't be read.
    """
    numbers = numbers_of(source)
    newest = source.summary(numbers[-1], whole=True)
    branch = "" if newest is None else newest.branch or ""
    marks = counting_marks(source, numbers[-at_most:])
    uri = above(source.uri, source.format.branch_root(branch)) if branch else source.uri
    committed_in = _marked(sought, marks)
    search = _VersionSearch(sought, uri, branch, committed_in=committed_in, logs=_logs(marks))
    lowest = numbers[-1]
    for number in _order(numbers, committed_in, at_most):
        summary = source.summary(number)
        record = (
            decode_record(summary.properties, source.uri) if summary is not None and summary.own else None
        )
        if summary is not None and record is not None:
            search.look(summary, record)
        lowest = min(lowest, number)
        if search.settled:
            break
    result = tuple(search.outcomes), search.version, search.committed_in
    return RecordedProposal(uri, branch, marks, numbers[0], lowest, numbers[-1], *result)


def kind_of_undoing(source: Source, version: int) -> str:
    """Returns "restore", "revert" or "promote", whichever this version is; empty if it is gone."""
    summary = source.summary(version)
    if summary is None:
        return ""
    record = decode_record(summary.properties, source.uri) if summary.own else None
    if record is not None and record.promotes is not None:
        return "promote"
    return "revert" if summary.restored is None else "restore"


def counting_marks(source: Source, numbers: Sequence[int]) -> Marks | None:
    """Returns the marks of the newest version that a committer made.

    Another client may have changed them since.

    Returns None if no committer made a version; the marks in a clone are those of the branch that it was made
    from and don't count. The keys that another client's Restore after that version left out of the table are
    in them.
    """
    restores: list[VersionSummary] = []
    for number in reversed(numbers):
        # The newest version is mostly a committer's, and then it is needed whole.
        summary = source.summary(number, whole=number == numbers[-1])
        if summary is not None and summary.own:
            whole = source.summary(number, whole=True) if summary.metadata is None else summary
            metadata = None if whole is None else whole.metadata
            marks = None if metadata is None else decode_marks(metadata, source.uri)
            for restore in reversed(restores):
                marks = None if marks is None else _rolled_back(source, marks, restore)
            return marks
        if summary is not None and summary.begins_clone:
            return None
        if summary is not None and summary.restored is not None:
            restores.append(summary)
    return None


def newest_marks(source: Source, newest: int) -> Marks | None:
    """Returns the marks that count, of the newest version or of one of some before it; None without any."""
    return counting_marks(source, range(max(newest - MOST_FOREIGN, source.versions.first), newest + 1))


def _rolled_back(source: Source, marks: Marks, restore: VersionSummary) -> Marks:
    whole: VersionSummary | None = restore
    if restore.metadata is None and not restore.keeps_metadata:
        whole = source.summary(restore.version, whole=True)
    if restore.restored is None or whole is None or (whole.metadata is None and not whole.keeps_metadata):
        return marks
    metadata = None if whole.keeps_metadata else whole.metadata
    return rolled_back(marks, restore.version, restore.restored, metadata)


def _order(numbers: list[int], committed_in: int | None, at_most: int) -> Iterator[int]:
    """Yields the version that the marks name, if it exists; else all versions from the newest back."""
    if committed_in and committed_in in numbers:
        yield committed_in
    elif not committed_in:
        yield from reversed(numbers[-at_most:])


def _marked(sought: ProposalName, marks: Marks | None) -> int | None:
    """Returns the version that the marks name for a key, 0 if they only say that it was folded.

    None: not folded.
    """
    if marks is None:
        return None
    if sought.batch_id is not None:
        mark = marks.apps.get(sought.app_id)
        return mark.version_of(sought.batch_id) if mark is not None and mark.has(sought.batch_id) else None
    return dict(marks.uuids).get(sought.uuid)


def _logs(marks: Marks | None) -> set[LogId | str] | None:
    """Returns the logs whose positions the versions record. Returns None if the marks don't show them."""
    if marks is None:
        return None
    positions = (marks.position, *(move.before for move in marks.moves))
    bound = [_log_name(position.log) for position in positions if position is not None]
    return {*bound, *(name for name, _ in marks.file_logs)}


def _log_name(log: LogId) -> LogId | str:
    return log.topic_id if log.is_file else log


def _recorded_version(summary: VersionSummary, record: Record) -> RecordingVersion:
    return RecordingVersion(
        summary.version,
        time_of(summary.time_us),
        summary.operation,
        record.base_version,
        len(record.committed),
        record.topic or record.log.topic_id,
        record.log.partition,
        record.first_offset,
        record.last_offset,
        record.operations(summary.operation),
        record.log,
        record.last_digest,
        record.author_of,
    )
