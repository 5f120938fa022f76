"""What differs between two versions of a table, as `lakefold.diff` returns it: columns, files and rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakefold_reader.diff.named_version import branch_name, named_table
from lakefold_reader.format.source import BranchVersion
from lakefold_reader.formats import in_its_format, open_source

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow as pa

    from lakefold_reader.diff.differing_rows import DifferingRows
    from lakefold_reader.diff.named_version import Name
    from lakefold_reader.format.snapshots import FileTotal
    from lakefold_reader.format.source import Source
    from lakefold_reader.snapshot.snapshot import Table


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """Either version of a diff: its number, and the branch that has it (`main` for the main one)."""

    version: int
    branch: str


@dataclass(frozen=True, slots=True)
class ChangedColumn:
    """A column that has another name or another type in the second version."""

    before: str
    name: str
    type_before: str
    type: str


@dataclass(frozen=True)
class Diff:
    """What version `b` of a table has and version `a` hasn't, and the other way round.

    `columns_added` and `columns_dropped` are names. `files_added` and `files_removed` are data files, with
    the bytes that are recorded. `rows_added` and `rows_removed` count rows; None if they weren't asked for. A
    table is a multiset of rows: an updated row is removed as it was and added as it is, and equal rows are no
    difference, in whatever files they are.

    DuckDB, Polars and pyarrow take the rows themselves as a stream (`__arrow_c_stream__`, `to_reader`).
    """

    table: str
    format: str
    a: ComparedVersion
    b: ComparedVersion
    columns_added: tuple[str, ...]
    columns_dropped: tuple[str, ...]
    columns_changed: tuple[ChangedColumn, ...]
    files_added: FileTotal
    files_removed: FileTotal
    rows_added: int | None
    rows_removed: int | None
    _rows: DifferingRows = field(repr=False, compare=False)

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the rows that differ, batch by batch, with the column `_difference`: `added` or `removed`.

        The other columns are those of the later version, or of `b` if they are on two branches. A row of the
        other version has its values in them; a column that it lacks is null.

        Raises, at once or while it is read, `VersionExpiredError` if a version was cleaned up meanwhile,
        `DamagedError` if a file is missing or can't be read, `MisfitError` if a value doesn't fit the type
        that its column has in the version shown, `InvalidError` if the table has a column `_difference`.
        """
        return self._rows.stream()

    def to_arrow(self) -> pa.Table:
        """Returns the rows of `to_reader` as a table. Raises as it does."""
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def diff(
    table: str | os.PathLike[str],
    a: Name,
    b: Name,
    *,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    rows: bool = True,
) -> Diff:
    """Returns what differs between two versions, tags or branches of a table.

        difference = lakefold.diff("s3://lake/flights.lance", 5, 9)
        difference.rows_added, difference.rows_removed, difference.columns_added
        lakefold.diff("s3://lake/flights.lance", 5, "main").to_arrow()

    `a` and `b` are each the number of a version (of `branch`, or of the table as it is opened), the name of a
    tag, the name of a branch (its newest version; `main` is the main branch), or a version of a branch as
    `audit@12`. `tag:NAME` and `branch:NAME` say which of them is meant if both have the name.

    Files that both versions have are never read. Of the others, rows are read if both versions have some of
    their own, so that equal rows are found; that takes memory for a column of these rows at a time. If the
    versions in between changed fewer rows than the files have, as with a compaction, only these are read.
    With `rows=False` no data file is read, and rows are counted when `to_reader` is.

    Raises `NotATableError`, `VersionExpiredError` if a version is gone or does not exist yet,
    `UnknownRefError` if there is no tag or branch of a name, `InvalidError` for something else that names no
    version, and as `Diff.to_reader`.
    """
    source = open_source(table, storage_options)
    return in_its_format(source, partial(diff_of, a=a, b=b, branch=branch, rows=rows))


def diff_of(source: Source, a: Name, b: Name, *, branch: str | None = None, rows: bool = True) -> Diff:
    """Returns what `diff` does, of a table that is open already."""
    from lakefold_reader.diff.differing_rows import DifferingRows

    (first, opened), (second, other) = (named_table(source, name, branch) for name in (a, b))
    is_swapped = first.uri == second.uri and opened.version > other.version
    sides = BranchVersion(first, opened.version), BranchVersion(second, other.version)
    before, after = reversed(sides) if is_swapped else sides
    difference = second.format.feed.difference(before, after)
    names = {now: then for then, now in difference.names.items()} if is_swapped else dict(difference.names)
    was, now = difference.files_removed, difference.files_added
    differing = DifferingRows(before, after, difference, is_swapped=is_swapped)
    removed, added = differing.counts if rows else (None, None)
    return Diff(
        source.uri,
        source.format.name,
        _compared(sides[0]),
        _compared(sides[1]),
        tuple(name for name in other.schema.names if name not in set(names.values())),
        tuple(name for name in opened.schema.names if name not in names),
        _changed(opened, other, names),
        was if is_swapped else now,
        now if is_swapped else was,
        added,
        removed,
        differing,
    )


def _compared(stored: BranchVersion) -> ComparedVersion:
    return ComparedVersion(stored.version, branch_name(stored.source))


def _changed(a: Table, b: Table, names: Mapping[str, str]) -> tuple[ChangedColumn, ...]:
    pairs = [
        ChangedColumn(then, now, str(a.schema.field(then).type), str(b.schema.field(now).type))
        for then, now in names.items()
    ]
    return tuple(each for each in pairs if (each.before, each.type_before) != (each.name, each.type))
