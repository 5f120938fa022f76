"""Lists what each version did, newest first, as `lakefold log` prints it. Each is read on request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from lakefold_reader.versions.late_versions import is_late, missing
from lakefold_reader.versions.listing import newest_of, numbers_of
from lakefold_reader.versions.proposals import newest_marks
from lakefold_reader.versions.times import time_of
from lakefold_table.errors import InvalidError
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.marks import PREFIX, Marks, Rebinding
from lakefold_table.marks.record import MOVE, Batches, Record, decode_record
from lakefold_table.whole_numbers import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from lakefold_reader.format.source import Source
    from lakefold_table.author import Author
    from lakefold_table.format import VersionSummary
    from lakefold_table.position import LogId

MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Positions:
    """The offsets of a log whose entries were answered by a version: `first` to `last`, both included."""

    log: LogId
    topic: str
    first: int
    last: int

    def __str__(self) -> str:
        offsets = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.topic or self.log.topic_id}/{self.log.partition}@{offsets}"


@dataclass(frozen=True, slots=True)
class UndoneBatches:
    """Batches of an app, from the first id to the last, that version `by` left out of the table or undid."""

    app_id: str
    first: int
    last: int
    by: int


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A version. If a committer made it from the log (`own`), the fields from `positions` on are set.

    `entries` were folded into it, `refused` got another outcome in the same range; `operations`: what those
    entries did, and how many did that (an insert is an update that only inserts). `apps`: the batches folded,
    by app. Rows and files in and out: None if they are not known, as the version before is gone. A row
    that an update moved counts as removed and as added, a row that a compaction moved as neither; of a clone
    all rows are added. `seconds_to_visible`: from the log time of the last entry until the version's file was
    stored; None if the store doesn't record that. `move`: how the table was bound to its log, if this version
    did that. `undone`: those of its batches that a later version undid. `properties`: what its writer had it
    record, of Delta tables `userMetadata`. `authors`: who sent the entries, or who made the version
    of another client, as far as they said it.
    """

    version: int
    timestamp: datetime
    operation: str
    own: bool
    rows_in: int | None
    rows_out: int | None
    files_in: int | None
    files_out: int | None
    positions: Positions | None = None
    entries: int | None = None
    operations: Mapping[str, int] = field(default_factory=dict)
    refused: int | None = None
    apps: tuple[Batches, ...] = ()
    seconds_to_visible: float | None = None
    move: Rebinding | None = None
    format: str = ""
    undone: tuple[UndoneBatches, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    authors: tuple[Author, ...] = ()


def history_of(
    source: Source, from_version: int | None = None, to_version: int | None = None
) -> Iterator[HistoryRow]:
    """Returns versions, the newest first.

    They begin at `to_version` (None: the newest) and end at `from_version` (None: the oldest left).

    Raises at once `InvalidError` for a range that is empty, `VersionExpiredError` if none of its versions
    exists; ends at a version that is cleaned up while it runs.
    """
    numbers = numbers_of(source)
    last = numbers[-1] if to_version is None else within("to_version", to_version)
    first = numbers[0] if from_version is None else within("from_version", from_version)
    if first > last:
        hint = "name the oldest version to list as from, and the newest as to"
        raise InvalidError(f"there is no version between {first} and {last}", hint=hint)
    chosen = [number for number in reversed(numbers) if first <= number <= last]
    if not chosen:
        raise missing(source, last)
    return _rows(source, chosen, newest=numbers[-1])


def history_page(source: Source, last: int | None, most: int) -> list[HistoryRow]:
    """Returns at most `most` versions from `last` (None: the newest) on down, newest first.

    Lists all versions only if one of these is gone, so that a page of a long history is as cheap as one of a
    short history. Raises `NotATableError` if no version exists.
    """
    newest = newest_of(source)
    start = newest if last is None else min(last, newest)
    rows = list(islice(_rows(source, range(start, -1, -1), newest=newest), most))
    rest = rows[-1].version - 1 if rows else start
    if len(rows) == most or rest < 0:
        return rows
    older = [number for number in reversed(numbers_of(source)) if number <= rest]
    return [*rows, *islice(_rows(source, older, newest=newest), most - len(rows))]


def _rows(source: Source, numbers: Iterable[int], *, newest: int) -> Iterator[HistoryRow]:
    after: VersionSummary | None = None
    marks: Marks | None = None
    for number in numbers:
        summary = source.summary(number)
        if summary is None:
            return
        if number < newest and (after is None or after.version != number + 1):
            after = source.summary(number + 1)
        following, after = after, summary
        if following is None or not is_late(source, summary, following):
            row = _row(source, summary)
            if row.apps and marks is None:
                marks = newest_marks(source, newest) or Marks()
            yield replace(row, undone=_undone(row.apps, marks)) if row.apps and marks is not None else row


def _undone(apps: Iterable[Batches], marks: Marks) -> tuple[UndoneBatches, ...]:
    """Returns those of the batches of a version that the marks know to be undone."""
    return tuple(
        UndoneBatches(app.app_id, max(first, app.first), min(last, app.last), by)
        for app in apps
        for first, last, by in marks.apps.get(app.app_id, AppMark()).rolled_back
        if first <= app.last and last >= app.first
    )


def _row(source: Source, summary: VersionSummary) -> HistoryRow:
    record = decode_record(summary.properties, source.uri) if summary.own else None
    counts = source.format.counts(source, summary, record)
    plain = HistoryRow(
        summary.version,
        time_of(summary.time_us),
        summary.operation,
        summary.own,
        counts.rows_in,
        counts.rows_out,
        counts.files_in,
        counts.files_out,
        format=source.format.name,
        authors=() if summary.author is None else (summary.author,),
        properties={name: text for name, text in summary.properties.items() if not name.startswith(PREFIX)},
    )
    if record is None:
        return plain
    move = Rebinding.decode(summary.properties[MOVE]) if MOVE in summary.properties else None
    return replace(_with_record(plain, record, _seconds(source, summary, record)), move=move)


def _with_record(row: HistoryRow, record: Record, seconds: float | None) -> HistoryRow:
    folded = record.last_offset >= record.first_offset
    positions = (
        Positions(record.log, record.topic, record.first_offset, record.last_offset) if folded else None
    )
    return replace(
        row,
        positions=positions,
        entries=len(record.committed),
        operations=record.operations(row.operation),
        refused=record.refusals,
        apps=record.apps,
        seconds_to_visible=seconds,
        authors=tuple(dict.fromkeys(record.author_of.values())),
    )


def _seconds(source: Source, summary: VersionSummary, record: Record) -> float | None:
    """Returns the seconds from the log time of the last entry until the version's file was stored.

    Returns None if no entry was folded.

    A file's time is precise to some milliseconds and may be before the log's: then the result is 0.
    """
    if not record.committed or not record.last_time_us:
        return None
    stored = source.storage.stored_at(source.versions.path(summary.version))
    return None if stored is None else max(0, stored - record.last_time_us) / MICROS
