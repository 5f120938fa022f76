"""The toy format for readers: its tables are followed as those of any other format.

It has what following a table needs, and refuses the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, cast

import pyarrow as pa

from lakefold_reader.format.changes import ReadCost
from lakefold_reader.format.snapshots import VersionCounts
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.format import VersionSummary
from lakefold_table.marks.record import TABLE_ID, is_own
from lakefold_table.roots import below
from tests.toy_format.toy import FOLDER, HEAD_LINE, NAMING, file_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakefold_reader.format.changes import Misfits
    from lakefold_reader.format.source import ChangePart, FeedFormat, Schema, Source
    from lakefold_table.marks.record import Record
    from lakefold_table.storage.base import Storage
    from tests.toy_format.toy import ToyNaming


def append(storage: Storage, version: int, rows: Mapping[str, str], **more: object) -> None:
    """Publishes the version that appends these rows, as another client would."""
    head = {"version": version, "time_us": version * 1_000_000, "uuid": f"u{version}", "operation": "append"}
    file = file_of({**head, "metadata": {}, "properties": {}, **more}, [{"add": dict(rows)}])
    storage.put_if_absent(NAMING.path(version), file)


@dataclass(frozen=True)
class ToyContent:
    """What a version added and removed."""

    added: Mapping[str, str]
    removed: int


@dataclass(frozen=True)
class ToySchema:
    """See `Schema`."""

    names: list[str]

    @property
    def arrow(self) -> pa.Schema:
        """See `Schema.arrow`."""
        return pa.schema([(name, pa.string()) for name in self.names])

    def chosen(self, names: Sequence[str] | None) -> ToySchema:
        """See `Schema.chosen`."""
        return self if names is None else ToySchema(list(names))

    def forms(self) -> Mapping[str, object]:
        """See `Schema.forms`."""
        return dict.fromkeys(self.names)


@dataclass(frozen=True)
class ToyChange:
    """See `VersionChange`."""

    content: ToyContent
    schema: ToySchema

    @property
    def only_inserts(self) -> bool:
        """See `VersionChange.only_inserts`."""
        return not self.content.removed

    @property
    def rows(self) -> int:
        """See `VersionChange.rows`."""
        return len(self.content.added)

    @property
    def cost(self) -> ReadCost:
        """See `VersionChange.cost`."""
        return ReadCost(self.rows, 8 * self.rows)

    def inserted(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `VersionChange.inserted`."""
        rows = [{"key": key, "value": value} for key, value in self.content.added.items()]
        table = pa.Table.from_pylist(rows, schema=self.schema.chosen(columns).arrow)
        return cast("pa.RecordBatchReader", table.to_reader())

    def appended(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `VersionChange.appended`."""
        return self.inserted(columns)

    def feed(self, columns: Sequence[str] | None, misfits: Misfits) -> NoReturn:
        """See `VersionChange.feed`."""
        del columns, misfits
        raise refused()

    def is_appended(self) -> Callable[[ChangePart], bool]:
        """See `VersionChange.is_appended`."""
        raise refused()


class ToyReader:
    """See `ReaderFormat`."""

    name = "toy"
    folder = FOLDER
    first_version = 1
    has_refs = True

    @property
    def feed(self) -> FeedFormat:
        """See `ReaderFormat.feed`."""
        raise refused()

    def detect(self, names: Iterable[str]) -> ToyNaming | None:
        """See `ReaderFormat.detect`."""
        return NAMING if any(NAMING.parse(name) for name in names) else None

    def summary(
        self, source: Source, version: int, *, whole: bool, first: int | None
    ) -> VersionSummary | None:
        """See `ReaderFormat.summary`."""
        del whole, first
        path = source.versions.path(version)
        try:
            data = source.storage.get(path)
            head, *lines = (json.loads(line) for line in data[HEAD_LINE:].splitlines())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedError(f"this is not JSON: {error}", where=below(source.uri, path)) from error
        added = {key: value for line in lines for key, value in line.get("add", {}).items()}
        removed = sum(len(line.get("remove", ())) for line in lines)
        return VersionSummary(
            version,
            head["operation"],
            head["properties"],
            begins_clone=False,
            footprint=None,
            keeps_metadata=not head["properties"],
            uuid=head["uuid"],
            time_us=head["time_us"],
            table_id=head["metadata"].get(TABLE_ID, ""),
            branch="",
            own=is_own(head["properties"], version),
            metadata=head["metadata"],
            content=ToyContent(added, removed),
            size=len(data),
        )

    def schema(self, summary: VersionSummary) -> ToySchema:
        """See `ReaderFormat.schema`."""
        del summary
        return ToySchema(["key", "value"])

    def change(self, source: Source, summary: VersionSummary, schema: Schema, *, whole: bool) -> ToyChange:
        """See `ReaderFormat.change`."""
        content = cast("ToyContent", summary.content)
        if whole:
            content = ToyContent(_rows_at(source, summary.version), 0)
        return ToyChange(content, cast("ToySchema", schema))

    def counts(self, source: Source, summary: VersionSummary, record: Record | None) -> VersionCounts:
        """See `ReaderFormat.counts`."""
        del source, record
        content = cast("ToyContent", summary.content)
        return VersionCounts(len(content.added), content.removed, 1, 0)

    def open(self, source: Source, version: int) -> NoReturn:
        """See `ReaderFormat.open`."""
        del source, version
        raise refused()

    def scan_units(self, source: Source, version: int) -> NoReturn:
        """See `ReaderFormat.scan_units`."""
        del source, version
        raise refused()

    def scan(
        self, source: Source, version: int, units: Sequence[object], schema: Schema, where: str | None
    ) -> NoReturn:
        """See `ReaderFormat.scan`."""
        del source, version, units, schema, where
        raise refused()

    def answers_filters(self, summary: VersionSummary) -> bool:
        """See `ReaderFormat.answers_filters`."""
        del summary
        return True

    def clean_up(
        self,
        source: Source,
        newest: int,
        versions: Sequence[int],
        *,
        begin: Callable[[Sequence[int]], None] | None,
    ) -> NoReturn:
        """See `ReaderFormat.clean_up`."""
        del source, newest, versions, begin
        raise refused()

    def branch_root(self, branch: str) -> str:
        """See `ReaderFormat.branch_root`."""
        return f"branches/{branch}" if branch else ""

    def check_branch_name(self, name: str) -> None:
        """See `ReaderFormat.check_branch_name`."""
        del name


def _rows_at(source: Source, version: int) -> dict[str, str]:
    """The rows of a version: those that all versions up to it added and did not remove."""
    rows: dict[str, str] = {}
    for number in range(1, version + 1):
        data = source.storage.get(source.versions.path(number))
        for line in (json.loads(line) for line in data[HEAD_LINE:].splitlines()[1:]):
            rows.update(line.get("add", {}))
            for key in line.get("remove", ()):
                rows.pop(key, None)
    return rows


def refused() -> InvalidError:
    """The error for what toy tables don't have."""
    return InvalidError("toy tables can only be followed")
