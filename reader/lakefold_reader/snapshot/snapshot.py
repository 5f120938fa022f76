"""A version of a table, opened for reading.

Opening reads a manifest and no data. Rows come from the format's scanner at exactly this version; the
schema, the counts, the marks and the features come from the manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, get_args

from lakefold_reader.format.column_lists import check_list
from lakefold_reader.format.snapshots import Feature, FragmentSize, IndexInfo, Missing, Root, RowRange
from lakefold_reader.formats import in_its_format, open_source
from lakefold_reader.versions.as_of import version_as_of
from lakefold_reader.versions.at_position import version_at_position
from lakefold_reader.versions.branches import branched, tagged
from lakefold_reader.versions.late_versions import check_not_late, missing
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.times import micros_of, time_of
from lakefold_table.errors import InvalidError, NotATableError, VersionExpiredError
from lakefold_table.marks.marks import PREFIX, Marks, decode_marks
from lakefold_table.whole_numbers import version_number, within

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lakefold_reader.format.source import Snapshot, Source
    from lakefold_reader.snapshot.history import HistoryRow


def open_table(
    uri: str | os.PathLike[str],
    version: int | None = None,
    *,
    tag: str | None = None,
    as_of: datetime | str | None = None,
    branch: str | None = None,
    at_position: object = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Returns the table at `uri`: its newest version, or the version that is named.

        table = lakefold.open("s3://lake/flights.lance")
        table.to_arrow(columns=["carrier"], filter="dep_delay > 60")
        lakefold.open("s3://lake/flights.lance", 3).count_rows()
        lakefold.open("s3://lake/flights.lance", as_of=table.timestamp).version

    `version`: its number. `as_of`: the version that was the newest at this time (a `datetime`, or ISO 8601
    text; without a zone it is UTC). `tag`: the version that a tag names, on any branch. `branch`: the branch
    in which the version is looked up; without it the branch at `uri`; `main` is the main branch.
    `at_position`: the oldest version that contains the log up to this position, whatever its outcome was. It
    is a position as changes and outcomes have it (or these themselves), its text (`TOPIC/PARTITION@OFFSET`)
    or JSON as `lakefold` prints them, or an offset alone, of the log that the table is bound to.
    `storage_options` are those of pylance. Nothing is written, whatever is at `uri`.

    Raises `NotATableError` if the table does not exist, `VersionExpiredError` if the version is gone or does
    not exist yet, `UnknownRefError` if the tag or branch does not exist, `NotFoldedYetError` for a position
    that was not folded yet, `InvalidError` for a wrong request (as a position of a log that the table doesn't
    know), `DamagedError` if the manifest or the tag can't be read.
    """
    source = open_source(uri, storage_options)
    is_checked = as_of is not None or at_position is not None

    def opened(source: Source) -> Table:
        branch_source, chosen = find_version(
            source, version, tag=tag, as_of=as_of, branch=branch, at_position=at_position
        )
        return table_of(branch_source, chosen, is_checked=is_checked)

    return in_its_format(source, opened)


def find_version(
    source: Source,
    version: int | None = None,
    *,
    tag: str | None = None,
    as_of: datetime | str | None = None,
    branch: str | None = None,
    at_position: object = None,
) -> tuple[Source, int | None]:
    """Returns the branch and the version that `open_table` opens (None: the newest). Raises as it does.

    `source`: the table, or one of its branches.
    """
    choices = {"version": version, "as_of": as_of, "tag": tag, "at_position": at_position}
    named = [name for name, given in choices.items() if given is not None]
    if len(named) > 1:
        raise InvalidError(f"{' and '.join(named)} both name a version", hint="give one of them")
    if tag is not None and branch is not None:
        raise InvalidError("a tag names its branch itself", hint="leave the branch out")
    chosen = None if version is None else version_number(version, least=0)
    if chosen is not None and chosen < source.versions.first:
        # If the table has another format, the listing finds that.
        numbers_of(source)
        version_number(version, least=source.versions.first)
    if tag is not None:
        return tagged(source, tag)
    if branch is not None:
        source = branched(source, branch)
    if as_of is not None:
        return source, version_as_of(source, micros_of(as_of))
    if at_position is not None:
        return source, version_at_position(source, at_position)
    return source, chosen


def table_of(source: Source, version: int | None = None, *, is_checked: bool = False) -> Table:
    """Returns a version of a table whose source is open already (None: the newest).

    `is_checked`: it is known not to be a late version.
    """
    chosen = numbers_of(source)[-1] if version is None else version
    try:
        table = Table(source, source.format.open(source, chosen))
    except (NotATableError, VersionExpiredError) as error:
        raise missing(source, chosen) from error
    if version is not None and not is_checked:
        check_not_late(source, chosen)
    return table


@dataclass(frozen=True)
class Table:
    """A version of a table. Made by `lakefold.open`; a newer version needs a new `open`.

        table = lakefold.open("s3://lake/flights.lance", version=7)
        table.version, table.timestamp, table.schema, table.fragment_count

    DuckDB, Polars, pyarrow and pandas from 3 on take it as it is, as a stream of batches
    (`__arrow_c_stream__`); `to_pandas` is for any pandas.
    """

    _source: Source = field(repr=False)
    _snapshot: Snapshot = field(repr=False)

    def __repr__(self) -> str:
        columns = len(self._snapshot.schema.names)
        size = f"{self.fragment_count} fragments, {columns} columns"
        return f"<lakefold.Table {self.uri} version {self.version}: {size}>"

    @property
    def uri(self) -> str:
        """The table's canonical URI."""
        return self._source.uri

    @property
    def version(self) -> int:
        """The version's number."""
        return self._snapshot.state.version

    @property
    def format(self) -> str:
        """The name of the table's format: `lance` or `delta`."""
        return self._snapshot.state.format

    @property
    def branch(self) -> str:
        """The branch that has the version; empty for the main branch."""
        return self._snapshot.state.branch

    @property
    def timestamp(self) -> datetime:
        """The version's time in UTC: the log's time for a version that a committer made."""
        return time_of(self._snapshot.state.time_us)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, as pylance shows it."""
        return self._snapshot.schema.arrow

    @property
    def fragment_count(self) -> int:
        """How many fragments the version has."""
        return self._snapshot.fragment_count

    def fragment_sizes(self) -> Iterator[FragmentSize]:
        """Yields the size of each fragment, as the version records it. No data file is read."""
        return self._snapshot.fragment_sizes()

    def data_files(self) -> Iterator[tuple[str, int | None]]:
        """Yields the path and the bytes of each data file, as the version records them."""
        return self._snapshot.data_files()

    @cached_property
    def deleted_rows(self) -> int:
        """Rows in data files that are marked as deleted."""
        return self._snapshot.physical_rows - self.count_rows()

    @cached_property
    def config(self) -> dict[str, str]:
        """The table's configuration."""
        return dict(self._snapshot.config)

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The table's metadata without the marks."""
        return {
            key: value for key, value in self._snapshot.state.metadata.items() if not key.startswith(PREFIX)
        }

    @cached_property
    def marks(self) -> Marks | None:
        """What the version records of the log. Returns None if no committer has written the table."""
        return decode_marks(self._snapshot.state.metadata, self.uri)

    @cached_property
    def commit_properties(self) -> dict[str, str]:
        """What the writer of this version had it record; of a Delta table, its `userMetadata`."""
        summary = self._source.summary(self.version)
        given = {} if summary is None else summary.properties
        return {name: text for name, text in given.items() if not name.startswith(PREFIX)}

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The feature flags that readers or writers of this version must know."""
        return self._snapshot.features

    @cached_property
    def indices(self) -> tuple[IndexInfo, ...]:
        """The indices, by name: on which columns, and how many fragments of this version they cover.

        Raises `DamagedError` if the manifest's section of them can't be read.
        """
        return self._snapshot.indices()

    @property
    def roots(self) -> tuple[Root, ...]:
        """The other places that files of this version may be in, as in a clone or a branch."""
        return self._snapshot.roots

    @property
    def storage_version(self) -> str:
        """The version of Lance's data files that the table is written with."""
        return self._snapshot.storage_version

    def count_rows(self, filter: str | None = None) -> int:  # noqa: A002 - the name that pylance and pyarrow use
        """Returns the number of rows, or of those for which `filter` (SQL, as pylance takes it) holds.

            lakefold.open("s3://lake/flights.lance").count_rows("dep_delay > 60")

        Without a filter the number comes from the manifest, if that records it. Raises as `to_arrow`.
        """
        return self._snapshot.count_rows(filter)

    def history(self, from_version: int | None = None, to_version: int | None = None) -> Iterator[HistoryRow]:
        """Yields what each version did, from this one (or `to_version`) down to `from_version`, newest first.

            for row in lakefold.open("s3://lake/flights.lance").history(from_version=7):
                print(row.version, row.operation, row.apps, row.authors)

        Each is read when it is requested. Ends at the oldest version that is left.
        """
        from lakefold_reader.snapshot.history import history_of

        return history_of(self._source, from_version, self.version if to_version is None else to_version)

    def to_reader(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the name that pylance and pyarrow use
        *,
        limit: int | None = None,
        offset: int | None = None,
        batch_size: int | None = None,
    ) -> pa.RecordBatchReader:
        """Returns the rows as batches of at most `batch_size` rows. The rest is as for `to_arrow`.

            for batch in lakefold.open("s3://lake/flights.lance").to_reader(["id"], batch_size=1_000):
                print(batch.num_rows)

        Nothing is read ahead except what pylance keeps in flight.
        """
        part = RowRange(
            _count("limit", limit),
            _count("offset", offset),
            _count("batch_size", batch_size, least=1, most=2**32 - 1),
        )
        check_list(columns)
        return self._snapshot.reader(columns, filter, part)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the name that pylance and pyarrow use
        *,
        limit: int | None = None,
        offset: int | None = None,
    ) -> pa.Table:
        """Returns the rows of these columns (None: all) for which `filter` (SQL, as pylance takes it) holds.

            lakefold.open("s3://lake/flights.lance").to_arrow(["id", "carrier"], "dep_delay > 60", limit=10)

        A column may be a field of a nested column (`place.city`), or one of `_rowid`, `_rowaddr`,
        `_row_created_at_version` and `_row_last_updated_at_version` (the last two if the table has stable row
        ids), which a filter may use as well. Of these, Delta tables have `_rowid` and `_rowaddr`, and not in
        filters. Only these columns, and what the filter needs, are read. The first `offset` rows are left
        out, and at most `limit` rows returned.

        Raises `InvalidError` for a column or filter that the table can't answer, `VersionExpiredError` if the
        version was cleaned up meanwhile, `DamagedError` if a file is missing or can't be read.
        """
        return self.to_reader(columns, filter, limit=limit, offset=offset).read_all()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the name that pylance and pyarrow use
    ) -> Any:  # noqa: ANN401 - pandas is published without types
        """Returns the rows as a pandas DataFrame. Takes and raises what `to_arrow` does. Needs pandas.

        lakefold.open("s3://lake/flights.lance").to_pandas(["id", "dep_delay"])
        """
        return self.to_arrow(columns, filter).to_pandas()

    def take(
        self, row_ids: object, columns: Sequence[str] | None = None, *, missing: Missing = "raise"
    ) -> pa.Table:
        """Returns the rows with these ids, in that order.

            table = lakefold.open("s3://lake/flights.lance")
            ids = table.to_arrow(["_rowid"], "dep_delay > 60")["_rowid"]
            table.take(ids, ["carrier"])

        The ids are values of `_rowid` in an Arrow or NumPy array or a list.

        An id that is listed twice gives its row twice. On tables without stable row ids an id is an address,
        fragment * 2^32 + offset. The first take builds an index of the version's row ids, without reading a
        file; the cost of each depends on the rows that are requested. `columns` as in `to_arrow`.

        In a Delta table that tracks rows (`delta.enableRowTracking`) rows keep their ids. Those of rows that
        were written again are sought in the footers of files, and read from the row groups that can have
        them. Without row tracking an id holds for this version alone: the files' numbers are those in the
        order of their paths.

        Raises `RowsNotFoundError` for ids that aren't in this version or whose rows are deleted, unless
        `missing` is "skip"; else as `to_arrow`.
        """
        check_list(columns)
        if missing not in get_args(Missing):
            raise InvalidError(f"{missing!r} is not known", where="missing", hint='give "raise" or "skip"')
        return self._snapshot.take(row_ids, columns, missing)

    def blobs(self, column: str, row_ids: object) -> list[IO[bytes] | None]:
        """Returns the values of a blob column in the rows with these ids, as files.

        A row without a value has None.

        Their content is not read until the file is. Raises as `take`.
        """
        if not isinstance(column, str):
            raise InvalidError(
                f"{column!r} is not a name", where="column", hint="give the name of a blob column"
            )
        return self._snapshot.blobs(column, row_ids)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _count(name: str, number: object, least: int = 0, most: int = 2**63 - 1) -> int | None:
    """Returns the number if pylance accepts it. For other numbers pylance would raise Python's own errors."""
    return None if number is None else within(name, number, least, most)
