"""Chooses versions of a history: those of an app, an operation, a time, or those that changed a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lakefold_reader.format.changes import Misfits
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    import pyarrow as pa

    from lakefold_reader.format.source import FeedEnd, Source
    from lakefold_reader.snapshot.history import HistoryRow
    from lakefold_table.format import VersionSummary


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
        search = _RowSearch(source, self.row)
        for row in rows:
            if self._is_of(row) and (not self.row or search.changed(row.version)):
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


class _RowSearch:
    """Says which versions changed a row with these values, for versions from the newest on.

    The columns of a version are those of the one after, unless that may have others.
    """

    def __init__(self, source: Source, row: Mapping[str, str]) -> None:
        self._source = source
        self._feed = source.format.feed
        self._row = row
        self._end: FeedEnd | None = None
        self._after: VersionSummary | None = None

    def changed(self, version: int) -> bool:
        """Returns whether a version inserted, changed or deleted such a row."""
        end = self._end_at(version)
        fields = {field.name: field.type for field in end.schema.arrow}
        if not self._row.keys() <= fields.keys() or self._after is None:
            return False
        wanted = {name: _value(text, name, fields[name]) for name, text in self._row.items()}
        try:
            shown = self._feed.columns(end.schema, list(self._row))
            reader = self._feed.reader(self._source, shown, Misfits.NULL)
            parts = self._feed.plan_row(self._source, self._after, end, wanted)
            return any(reader.has_row(part, wanted) for part in parts)
        except VersionExpiredError as error:
            message = f"what version {version} changed is not known, since the version before it is gone"
            hint = "list the versions after it only"
            raise VersionExpiredError(message, oldest=version, where=self._source.uri, hint=hint) from error

    def _end_at(self, version: int) -> FeedEnd:
        after, end = self._after, self._end
        self._after = self._source.summary(version)
        is_next = after is not None and after.version == version + 1 and self._feed.keeps_columns(after)
        if end is None or self._after is None or not is_next:
            end = self._feed.end(self._source, version)
        else:
            end = self._feed.end_of([self._after], end.schema)
        self._end = end
        return end


def _value(text: str, name: str, kind: pa.DataType) -> pa.Scalar:
    import pyarrow as pa

    try:
        return pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message, hint = f"{text!r} is no value of the column {name}, whose type is {kind}", "write one"
        raise InvalidError(message, hint=hint) from error
