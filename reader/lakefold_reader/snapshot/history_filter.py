"""Chooses versions of a history: those of an app, an operation, a time, or those that changed a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lakefold_reader.format.changes import Misfits, Rewritten
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    import pyarrow as pa

    from lakefold_reader.format.source import Source
    from lakefold_reader.snapshot.history import HistoryRow


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which versions of a history are listed: those for which all of it holds.

    `app`: an app id of which the version has batches. `operation`: what the version or one of its entries
    did. `since`: the earliest time. `row`: values as texts by column; the version inserted, changed or
    deleted a row that has them, e.g. `{"id": "7"}`. `most`: how many are listed, None for all.
    """

    app: str | None = None
    operation: str | None = None
    since: datetime | None = None
    row: Mapping[str, str] = field(default_factory=dict)
    most: int | None = None

    def chosen(self, source: Source, rows: Iterable[HistoryRow]) -> Iterator[HistoryRow]:
        """Returns the versions that are chosen from `rows`, which are the newest first.

        For `row` the changed rows of each version are read, in these columns. Raises `InvalidError` if a
        value can't be one of its column, `VersionExpiredError` if the version before the oldest one is gone,
        so that it is not known what that one changed.
        """
        return islice(self._chosen(source, rows), self.most)

    def _chosen(self, source: Source, rows: Iterable[HistoryRow]) -> Iterator[HistoryRow]:
        since = self.since
        if since is not None:
            rows = takewhile(lambda row: row.timestamp >= since, rows)
        for row in rows:
            if self._is_of(row) and (not self.row or _changes(source, row.version, self.row)):
                yield row

    def _is_of(self, row: HistoryRow) -> bool:
        is_of_app = self.app is None or any(app.app_id == self.app for app in row.apps)
        sought, done = self.operation, (row.operation, *row.operations)
        does = sought is None or sought.lower() in map(str.lower, done)
        return is_of_app and does


def row_of(text: str) -> dict[str, str]:
    """Returns the columns and values of a text such as `day=2026-05-01,id=7`. Raises `InvalidError`."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        message, hint = f"{text!r} names no row", "write COLUMN=VALUE, and commas between several"
        raise InvalidError(message, hint=hint)
    return {name.strip(): value for name, _, value in pairs}


def _changes(source: Source, version: int, row: Mapping[str, str]) -> bool:
    """Returns whether a version inserted, changed or deleted a row with these values."""
    feed = source.format.feed
    end = feed.end(source, version)
    fields = {field.name: field.type for field in end.schema.arrow}
    if not row.keys() <= fields.keys():
        return False
    wanted = {name: _value(text, name, fields[name]) for name, text in row.items()}
    try:
        shown = feed.columns(end.schema, list(row))
        reader = feed.reader(source, shown, Misfits.NULL)
        parts = feed.plan(source, version - 1, end, Rewritten.ROWS)
        return any(_has(batch, wanted) for part in parts for batch in reader.read(part))
    except VersionExpiredError as error:
        message = f"what version {version} changed is not known, since the version before it is gone"
        hint = "list the versions after it only"
        raise VersionExpiredError(message, oldest=version, where=source.uri, hint=hint) from error


def _value(text: str, name: str, kind: pa.DataType) -> pa.Scalar:
    import pyarrow as pa

    try:
        return pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message, hint = f"{text!r} is no value of the column {name}, whose type is {kind}", "write one"
        raise InvalidError(message, hint=hint) from error


def _has(batch: pa.RecordBatch, wanted: Mapping[str, pa.Scalar]) -> bool:
    import pyarrow.compute as pc

    matches = [pc.equal(batch.column(name), value) for name, value in wanted.items()]
    return bool(pc.any(reduce(pc.and_, matches)).as_py())
