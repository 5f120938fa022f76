"""A second table format for the reader: every version is a file of JSON lines in `_toy/`.

The first line of a file is the version's header, the others are the rows that it appended. It has what
following a table needs, and refuses the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, cast

import pyarrow as pa

from lakefold_reader.format.changes import Weight
from lakefold_reader.format.snapshots import Traffic
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.format import VersionSummary
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakefold_reader.format.changes import Misfits
    from lakefold_reader.format.source import ChangePart, FeedFormat, Schema, Source
    from lakefold_table.marks.record import Record
    from lakefold_table.storage.base import Storage

FOLDER = "_toy"
NAME = re.compile(r"([0-9]{8})\.jsonl")
Row = dict[str, int]


def append(storage: Storage, version: int, rows: Sequence[Row], **header: object) -> None:
    """Writes the version that appends these rows."""
    first = {"version": version, "time_us": version * 1_000_000, "uuid": f"u{version}", **header}
    lines = [json.dumps(line) for line in (first, *rows)]
    storage.put_if_absent(ToyNaming().path(version), ["\n".join(lines).encode()])


@dataclass(frozen=True)
class ToyNaming:
    """See `Naming`."""

    folder: str = FOLDER

    def path(self, version: int) -> str:
        """See `Naming.path`."""
        return f"{FOLDER}/{version:08}.jsonl"

    def parse(self, name: str) -> int | None:
        """See `Naming.parse`."""
        found = NAME.fullmatch(name)
        return None if found is None else int(found[1])


@dataclass(frozen=True)
class ToySchema:
    """See `Schema`."""

    names: list[str]

    @property
    def arrow(self) -> pa.Schema:
        """See `Schema.arrow`."""
        return pa.schema([(name, pa.int64()) for name in self.names])

    def chosen(self, names: Sequence[str] | None) -> ToySchema:
        """See `Schema.chosen`."""
        return self if names is None else ToySchema(list(names))

    def forms(self) -> Mapping[str, object]:
        """See `Schema.forms`."""
        return dict.fromkeys(self.names)


@dataclass(frozen=True)
class ToyChange:
    """See `VersionChange`."""

    content: Sequence[Row]
    schema: ToySchema

    @property
    def only_inserts(self) -> bool:
        """See `VersionChange.only_inserts`."""
        return True

    @property
    def rows(self) -> int:
        """See `VersionChange.rows`."""
        return len(self.content)

    @property
    def weight(self) -> Weight:
        """See `VersionChange.weight`."""
        return Weight(self.rows, 8 * self.rows)

    def inserted(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `VersionChange.inserted`."""
        rows = pa.Table.from_pylist(list(self.content), schema=self.schema.chosen(columns).arrow)
        return cast("pa.RecordBatchReader", rows.to_reader())

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

    folder = FOLDER

    @property
    def feed(self) -> FeedFormat:
        """See `ReaderFormat.feed`."""
        raise refused()

    def detect(self, names: Iterable[str]) -> ToyNaming | None:
        """See `ReaderFormat.detect`."""
        return ToyNaming() if any(NAME.fullmatch(name) for name in names) else None

    def summary(
        self, source: Source, version: int, *, whole: bool, first: int | None
    ) -> VersionSummary | None:
        """See `ReaderFormat.summary`."""
        del whole, first
        path = source.versions.path(version)
        try:
            header, *rows = (json.loads(line) for line in source.storage.get(path).decode().splitlines())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedError(f"this is no JSON: {error}", where=below(source.uri, path)) from error
        return VersionSummary(
            version,
            "append",
            header.get("properties", {}),
            begins_clone=False,
            footprint=None,
            keeps_metadata=True,
            uuid=header["uuid"],
            time_us=header["time_us"],
            branch="",
            metadata=header.get("metadata", {}),
            content=rows,
        )

    def schema(self, summary: VersionSummary) -> ToySchema:
        """See `ReaderFormat.schema`."""
        del summary
        return ToySchema(["id", "v"])

    def change(self, source: Source, summary: VersionSummary, schema: Schema, *, whole: bool) -> ToyChange:
        """See `ReaderFormat.change`."""
        versions = [summary]
        if whole:
            earlier = (source.summary(number) for number in range(1, summary.version))
            versions = [*(one for one in earlier if one is not None), summary]
        rows = [row for one in versions for row in cast("list[Row]", one.content)]
        return ToyChange(rows, cast("ToySchema", schema))

    def traffic(self, source: Source, summary: VersionSummary, record: Record | None) -> Traffic:
        """See `ReaderFormat.traffic`."""
        del source, record
        return Traffic(len(cast("list[Row]", summary.content)), 0, 1, 0)

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

    def clean_up(self, source: Source, newest: int, versions: Sequence[int], *, dry_run: bool) -> NoReturn:
        """See `ReaderFormat.clean_up`."""
        del source, newest, versions, dry_run
        raise refused()

    def branch_root(self, branch: str) -> str:
        """See `ReaderFormat.branch_root`."""
        return f"branches/{branch}" if branch else ""

    def check_branch_name(self, name: str) -> None:
        """See `ReaderFormat.check_branch_name`."""
        del name


def refused() -> InvalidError:
    """The error for what toy tables don't have."""
    return InvalidError("toy tables can only be followed")
