"""Turns what a reader returns into plain values, which `--json` prints and scripts may rely on.

Numbers are numbers, times are ISO 8601 in UTC, bytes are base64. Values that JSON has no form for are text:
decimals, and the floats NaN, Infinity and -Infinity (as protobuf's JSON mapping writes them).
"""

from __future__ import annotations

import base64
import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakefold_reader.versions.times import nearest_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakefold_reader.consumers.consumers import Lag
    from lakefold_reader.consumers.kept_versions import KeptFor
    from lakefold_reader.snapshot.history import HistoryRow
    from lakefold_reader.snapshot.snapshot import Table
    from lakefold_reader.tail.change import Change
    from lakefold_table.author import Author
    from lakefold_table.marks.batches import AppMark
    from lakefold_table.marks.marks import Marks, Rebinding
    from lakefold_table.marks.record import Batches
    from lakefold_table.position import Position

Plain = dict[str, Any]


def iso(moment: datetime) -> str:
    """Returns a time as ISO 8601 in UTC, with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def plain_table(table: Table) -> Plain:
    """Returns a version, as `lakefold show` prints it."""
    marks = table.marks
    return {
        "table": table.uri,
        "format": table.format,
        "branch": table.branch,
        "version": table.version,
        "timestamp": iso(table.timestamp),
        "fragments": table.fragment_count,
        "rows": table.count_rows(),
        "deleted_rows": table.deleted_rows,
        "schema": [
            {"name": column.name, "type": str(column.type), "nullable": column.nullable}
            for column in table.schema
        ],
        "indices": [
            {
                "name": item.name,
                "columns": list(item.columns),
                "type": item.type,
                "segments": item.segments,
                "covered_fragments": item.covered,
            }
            for item in table.indices
        ],
        "roots": [
            {"id": item.id, "name": item.name, "path": item.path, "is_table": item.is_table}
            for item in table.roots
        ],
        "storage_version": table.storage_version,
        "config": table.config,
        "metadata": table.metadata,
        "commit_properties": table.commit_properties,
        "features": [
            {"flag": item.flag, "meaning": item.meaning, "readers": item.readers, "writers": item.writers}
            for item in table.features
        ],
        "marks": None if marks is None else plain_marks(marks),
    }


def plain_marks(marks: Marks) -> Plain:
    """Returns the marks of a version as JSON has them."""
    return {
        "table_id": marks.full_id,
        "version": marks.version,
        "epoch": marks.epoch,
        "rules": marks.rules,
        "position": None if marks.position is None else plain_position(marks.position),
        "moves": [plain_move(move) for move in marks.moves],
        "file_logs": dict(marks.file_logs),
        "apps": {app_id: _plain_app(mark) for app_id, mark in sorted(marks.apps.items())},
        "uuids": dict(marks.uuids),
    }


def plain_consumer(lag: Lag) -> Plain:
    """Returns a named consumer and how far behind it is, as `lakefold consumers` prints it."""
    consumer = lag.consumer
    return {
        "name": consumer.name,
        "format": lag.format,
        "branch": consumer.branch,
        "version": consumer.version,
        "cursor": None if consumer.at is None else str(consumer.at),
        "unread_versions": lag.versions,
        "created_at": iso(consumer.created_at),
        "updated_at": iso(consumer.updated_at),
        "by": consumer.by,
    }


def plain_kept(kept: KeptFor) -> Plain:
    """Returns old versions with one reason to be kept, as `lakefold cleanup --kept` prints them."""
    return {
        "reason": kept.reason,
        "names": list(kept.names),
        "versions": kept.versions,
        "files": kept.files,
        "bytes": kept.bytes,
    }


def plain_move(move: Rebinding) -> Plain:
    """Returns how a table was bound to another position, as JSON has it."""
    return {
        "why": str(move.why),
        "text": str(move),
        "before": None if move.before is None else plain_position(move.before),
        "after": None if move.after is None else plain_position(move.after),
        "time": iso(nearest_time(move.time_us)),
    }


def plain_position(position: Position) -> Plain:
    """Returns a log position as JSON has it, with the fields of `lakefold.log.v1.Position`."""
    return {
        "cluster_id": position.log.cluster_id,
        "topic_id": position.log.topic_id,
        "topic": position.topic,
        "partition": position.log.partition,
        "offset": position.offset,
    }


def plain_history(row: HistoryRow) -> Plain:
    """Returns a version of the history, as `lakefold log` prints it."""
    positions = row.positions
    return {
        "version": row.version,
        "format": row.format,
        "timestamp": iso(row.timestamp),
        "operation": row.operation,
        "own": row.own,
        "positions": None
        if positions is None
        else {
            "cluster_id": positions.log.cluster_id,
            "topic_id": positions.log.topic_id,
            "topic": positions.topic,
            "partition": positions.log.partition,
            "first_offset": positions.first,
            "last_offset": positions.last,
        },
        "entries": row.entries,
        "operations": dict(row.operations),
        "refused": row.refused,
        "apps": [_plain_batches(batches) for batches in row.apps],
        "rows_in": row.rows_in,
        "rows_out": row.rows_out,
        "files_in": row.files_in,
        "files_out": row.files_out,
        "seconds_to_visible": row.seconds_to_visible,
        "move": None if row.move is None else plain_move(row.move),
        "undone": [
            {"app_id": each.app_id, "first": each.first, "last": each.last, "by": each.by}
            for each in row.undone
        ],
        "properties": dict(row.properties),
        "authors": [plain_author(author) for author in row.authors],
    }


def plain_author(author: Author) -> Plain:
    """Returns who sent a proposal as JSON has it."""
    return asdict(author)


def plain_change(change: Change) -> Plain:
    """Returns a change, as `lakefold tail` prints it."""
    return {
        "version": change.version,
        "format": change.format,
        "timestamp": iso(change.timestamp),
        "operation": change.operation,
        "operations": dict(change.operations),
        "rows": change.rows,
        "only_inserts": change.only_inserts,
        "position": None if change.position is None else plain_position(change.position),
        "cursor": str(change.cursor),
        "authors": [plain_author(author) for author in change.authors],
    }


def plain_rows(batch: pa.RecordBatch) -> Iterator[Plain]:
    """Yields the rows of a batch, each by column name."""
    columns = [_plain_column(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _plain_app(mark: AppMark) -> Plain:
    return {
        "batches": [list(interval) for interval in mark.intervals],
        "forgotten_below": mark.forgotten_below,
        "versions": {str(batch): version for batch, version in mark.recent},
        "time": iso(nearest_time(mark.time_us)) if mark.time_us else None,
    }


def _plain_batches(batches: Batches) -> Plain:
    return {
        "app_id": batches.app_id,
        "first_batch": batches.first,
        "last_batch": batches.last,
        "batches": batches.count,
    }


def _plain_column(column: pa.Array) -> list[Any]:
    """Returns the values of a column; temporal ones by Arrow's own text, which keeps nanoseconds."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_column(column.storage)
    if pa.types.is_dictionary(kind):
        return _plain_column(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        utc = column.cast(pa.timestamp(kind.unit, "UTC" if kind.tz else None))
        return [text and text.replace(" ", "T") for text in utc.cast(pa.string()).to_pylist()]
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_duration(kind):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_nested(kind):
        return _plain_nested(column)
    convert = _converter(kind)
    return [None if value is None else convert(value) for value in column.to_pylist()]


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    import pyarrow as pa

    if pa.types.is_floating(kind):
        return _plain_float
    if pa.types.is_decimal(kind):
        return str
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    return lambda value: value


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _plain_nested(column: pa.Array) -> list[Any]:
    """Returns structs as objects, lists as lists, maps as lists of [key, value]."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        names = [column.type.field(number).name for number in range(column.type.num_fields)]
        columns = [_plain_column(column.field(number)) for number in range(len(names))]
        valid = column.is_valid().to_pylist()
        return [
            {name: values[row] for name, values in zip(names, columns, strict=True)} if is_valid else None
            for row, is_valid in enumerate(valid)
        ]
    rows: list[Any] = []
    for scalar in column:
        if not scalar.is_valid:
            rows.append(None)
        elif pa.types.is_map(column.type):
            rows.append([list(pair.values()) for pair in _plain_column(scalar.values)])
        else:
            rows.append(_plain_column(scalar.values))
    return rows
