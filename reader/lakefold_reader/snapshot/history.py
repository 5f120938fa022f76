"""What each version did, newest first: the rows of `lakefold log`.

A version that only added fragments is told by its own transaction. For any other the fragments before and
after are compared, so the numbers say what happened, not what was meant. Nothing is read before it is asked
for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_reader.feed.sides import unlike
from lakefold_reader.versions.effect import NO_ROWS, effect_of
from lakefold_reader.versions.source import counts_rows, numbers_of, read_state, read_step, time_of
from lakefold_reader.versions.stray_files import is_stray, missing
from lakefold_table.errors import InvalidError
from lakefold_table.lance.manifests.fragments import Fragments
from lakefold_table.lance.operations import Kind
from lakefold_table.marks.marks import Rebinding
from lakefold_table.marks.record import MOVE, decode_record
from lakefold_table.whole import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.versions.source import Source, Step
    from lakefold_table.marks.record import Batches, Record
    from lakefold_table.position import LogId

MICROS = 1_000_000
COUNTED_ALIKE = frozenset({Kind.DELETE, Kind.OVERWRITE, Kind.REWRITE, Kind.UPDATE})
"""Of these the outcomes count rows as they came and went. Those of a Restore count all rows, old and new."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The range of offsets of one log whose entries were answered by a version, both ends included."""

    log: LogId
    topic: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.topic or self.log.topic_id}/{self.log.partition}@{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One version. `own`: a committer made it from the log, and the fields from `positions` on are told.

    `entries` were folded into it, `refused` answered otherwise in the same range; `operations`: what those
    entries did, and how many did that (an insert is an update that only inserts). `apps`: the batches
    folded, by app. Rows and files in and out: None where the version before is gone, so that it can't be
    told. A row that an update moved went and came, one that a compaction moved did neither; to a clone all
    rows came. `seconds_to_visible`: from the log time of the last entry until the version's file was stored;
    None where the store doesn't say. `move`: how the table came to its log, where this version says so.
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


@dataclass(frozen=True, slots=True)
class _Traffic:
    rows_in: int | None = None
    rows_out: int | None = None
    files_in: int | None = None
    files_out: int | None = None


def history_of(
    source: Source, from_version: int | None = None, to_version: int | None = None
) -> Iterator[HistoryRow]:
    """The versions from `to_version` (None: the newest) down to `from_version` (None: the oldest left).

    Raises `InvalidError` for a range that is empty, `VersionExpiredError` where nothing of it is left, at
    once; a version that is cleaned up while it runs ends it.
    """
    numbers = numbers_of(source)
    last = numbers[-1] if to_version is None else within("to_version", to_version)
    first = numbers[0] if from_version is None else within("from_version", from_version)
    if first > last:
        raise InvalidError(
            f"no version lies between {first} and {last}", hint="from is the older end, to the newer"
        )
    chosen = [number for number in reversed(numbers) if first <= number <= last]
    if not chosen:
        raise missing(source, last)
    return _rows(source, chosen, newest=numbers[-1])


def _rows(source: Source, numbers: Iterable[int], *, newest: int) -> Iterator[HistoryRow]:
    after: Step | None = None
    for number in numbers:
        step = read_step(source, number)
        if step is None:
            return
        if number < newest and (after is None or after.version != number + 1):
            after = read_step(source, number + 1)
        behind, after = after, step
        if behind is None or not is_stray(source, step, behind):
            yield _row(source, step)


def _row(source: Source, step: Step) -> HistoryRow:
    record = decode_record(step.properties, source.uri) if step.own else None
    traffic = _traffic(source, step, record)
    plain = HistoryRow(
        step.version,
        time_of(step.time_us),
        step.operation,
        step.own,
        traffic.rows_in,
        traffic.rows_out,
        traffic.files_in,
        traffic.files_out,
    )
    if record is None:
        return plain
    move = Rebinding.decode(step.properties[MOVE]) if MOVE in step.properties else None
    return replace(_with_record(plain, record, _seconds(source, step, record)), move=move)


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
        refused=len(record.refused),
        apps=record.apps,
        seconds_to_visible=seconds,
    )


def _seconds(source: Source, step: Step, record: Record) -> float | None:
    """From the log time of the last entry until the version's file was stored, where an entry was folded.

    A file's time is some milliseconds coarse and may lie before the log's: then it was at once.
    """
    if not record.committed or not record.last_time_us:
        return None
    stored = source.storage.stored_at(source.versions.path(step.version))
    return None if stored is None else max(0, stored - record.last_time_us) / MICROS


def _traffic(source: Source, step: Step, record: Record | None) -> _Traffic:
    """Rows and files that came and went."""
    kind = step.kind
    if kind in NO_ROWS - {Kind.REWRITE}:
        return _Traffic(0, 0, 0, 0)
    effect = effect_of(step)
    if effect.only_inserts and effect.fragments is not None and kind is not Kind.REWRITE:
        return _Traffic(effect.rows, 0, sum(len(one.files) for one in effect.fragments), 0)
    try:
        before = Fragments() if kind is Kind.CLONE else read_state(source, step.version - 1).fragments
        after = read_state(source, step.version).fragments
    except InvalidError:
        return _as_recorded(_Traffic(), kind, record)
    old, new = unlike(before, after)
    files_before, files_after = _files(old.values()), _files(new.values())
    files = len(files_after - files_before), len(files_before - files_after)
    if not all(counts_rows(one) for one in (*old.values(), *new.values())):
        return _as_recorded(_Traffic(None, None, *files), kind, record)
    return _Traffic(*_rows_between(old, new, kind), *files)


def _as_recorded(traffic: _Traffic, kind: Kind, record: Record | None) -> _Traffic:
    """The rows by what the committer answered, where that says the same as the fragments would."""
    if record is None or kind not in COUNTED_ALIKE:
        return traffic
    committed = record.committed.values()
    rows_in, rows_out = (sum(one.rows_added for one in committed), sum(one.rows_deleted for one in committed))
    return replace(traffic, rows_in=rows_in, rows_out=rows_out)


def _rows_between(
    before: Mapping[int, DataFragment], after: Mapping[int, DataFragment], kind: Kind
) -> tuple[int, int]:
    """The rows that came and went. A fragment that stays counts by the difference, a compaction whole."""
    old, new = ({number: _rows_of(one) for number, one in side.items()} for side in (before, after))
    if kind is Kind.REWRITE:
        more = sum(new.values()) - sum(old.values())
        return max(0, more), max(0, -more)
    differences = [new.get(number, 0) - old.get(number, 0) for number in old.keys() | new.keys()]
    return sum(one for one in differences if one > 0), -sum(one for one in differences if one < 0)


def _files(fragments: Iterable[DataFragment]) -> set[tuple[int, str]]:
    return {
        (file.base_id if file.HasField("base_id") else -1, file.path)
        for one in fragments
        for file in one.files
    }


def _rows_of(fragment: DataFragment) -> int:
    deleted = fragment.deletion_file.num_deleted_rows if fragment.HasField("deletion_file") else 0
    return fragment.physical_rows - deleted
