"""A change of a table: a version, its position in the log, and the rows that it inserted.

How many changes a step of a reader takes is decided before any data is read: what a version costs is known
from its transaction, the rows and bytes of the fragments that it adds, and the rows that it deleted if a
committer recorded them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lakefold_reader.format.changes import Misfits, ReadCost, misfits_of
from lakefold_table.errors import InvalidError
from lakefold_table.marks.record import Record, decode_record, position_at
from lakefold_table.whole_numbers import integer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lakefold_reader.format.source import ChangePart, Schema, Source, VersionChange
    from lakefold_reader.versions.cursor import Cursor
    from lakefold_table.author import Author
    from lakefold_table.format import VersionSummary
    from lakefold_table.position import Position

LONGEST: Final = 10_000
"""No step takes more versions, so that its memory is bounded even if no limit was set."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The most that a step takes: versions, rows, bytes of data files; None: no limit of that kind.

    A step takes at least one version, however large, so that a reader always makes progress.
    """

    max_versions: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_versions", "max_rows", "max_bytes"):
            value = getattr(self, name)
            number = integer(value)
            if value is not None and (number is None or number < 1):
                hint = "it is a whole number from 1 on; leave it out for no limit"
                raise InvalidError(f"{name} is {value!r}", hint=hint)
            object.__setattr__(self, name, number)

    @property
    def needs_cost(self) -> bool:
        """Whether rows or bytes are limited, so that the cost of each version is needed."""
        return self.max_rows is not None or self.max_bytes is not None

    def admit(self, versions: int, cost: ReadCost) -> bool:
        """Returns whether this many versions with this cost in all are within the limits."""
        return (
            versions <= min(LONGEST, self.max_versions or LONGEST)
            and (self.max_rows is None or cost.rows <= self.max_rows)
            and (self.max_bytes is None or cost.bytes <= self.max_bytes)
        )


@dataclass(frozen=True)
class Change:
    """What a version did to the table, as `lakefold.tail` returns it.

        for change in lakefold.tail("s3://lake/flights.lance", start="earliest"):
            print(change.version, change.operation, change.rows, change.authors)

    `version`; `timestamp` in UTC; `position` (the last log position folded into it, None for a version that
    no committer made); `operation` (Lance's name for what made it, such as `append`); `operations` (what the
    entries that share it did); `rows` (how many it inserted, None if that is known only by reading);
    `authors` (who sent them); `only_inserts`; `cursor`, from which `lakefold.tail` continues after this
    change; `inserted()`, `appended()` and `feed()`.
    """

    version: int
    timestamp: datetime
    operation: str
    cursor: Cursor
    _source: Source = field(repr=False)
    _summary: VersionSummary = field(repr=False)
    _schema: Schema = field(repr=False)
    _whole: bool = field(repr=False)

    @property
    def format(self) -> str:
        """The name of the table's format: `lance` or `delta`."""
        return self._source.format.name

    @cached_property
    def position(self) -> Position | None:
        """The last log position that was folded into this version, None if there is none."""
        record = self._record
        if record is None or record.last_offset < record.first_offset:
            return None
        return position_at(record, record.last_offset)

    @property
    def operations(self) -> Mapping[str, int]:
        """What the entries that share this version did, and how many did that; empty if there are none.

        By Lance's names; an `insert` is an update that only inserted. Entries of several kinds are one
        `operation` to other clients: an update.
        """
        return {} if self._record is None else self._record.operations(self.operation)

    @property
    def authors(self) -> tuple[Author, ...]:
        """Who sent the entries that share this version, as far as they said it: each author once.

        E.g. `anna@ingest-7 (load_flights.py, Lakefold 0.1.0): rows that came late`, as text.
        """
        return () if self._record is None else tuple(dict.fromkeys(self._record.author_of.values()))

    @property
    def only_inserts(self) -> bool:
        """Whether `inserted()` is all that happened: no row, value or column was changed or removed.

        An index, a setting or a compaction changes none of these. The first change of a tail from
        "earliest" is the whole content at that version, so it counts as inserts only.
        """
        return self._effect.only_inserts

    @cached_property
    def rows(self) -> int | None:
        """The number of rows that `inserted()` returns, None if it is not known without reading data."""
        return self._effect.rows

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema at this version."""
        return self._schema.arrow

    def inserted(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows that this version inserted, in these columns (None: all of the version's schema).

            for change in lakefold.tail("s3://lake/flights.lance", start=7):
                rows = change.inserted(["id", "carrier"]) if change.only_inserts else change.appended()

        What is returned, by operation:

        - append, the creation of a table, and a merge insert that matched no row: exactly their rows.
        - overwrite: the rows of the new content. `only_inserts` is False, since the old content was removed.
        - merge (columns added): the rows of fragments that the version before didn't have, mostly none. The
          new values of old rows are not returned.
        - any other update, on a table with stable row ids: the rows that are new, including those that other
          entries appended in the same version. What it changed or removed is not returned, here and below.
        - appends and deletes that share a version: the rows appended.
        - delete, project, data_replacement, data_overlay, and an update that wrote no new fragment: no rows.
        - restore, and versions without a transaction, on a table with stable row ids: the rows that the
          version before didn't have. The first version of a clone or a branch: all its rows.
        - create_index, rewrite (compaction), reserve_fragments, update_config, update_bases: no rows, and
          nothing is missed.
        - an update, a restore and versions without a transaction on a table without stable row ids (new
          fragments mix new rows with old rows): raises `UnknownChangeError`. If such an update shares its
          version with appends, `appended` returns the rows of these.

        `feed` also returns what a version changed and removed.

        Raises `VersionExpiredError` if the version's files were cleaned up meanwhile, `InvalidError` for a
        column that doesn't exist. Nothing is kept: each call reads again.
        """
        return self.batches(columns).read_all()

    def appended(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns what `inserted` does, but only the rows of fragments in which every row is new.

        Rows that an update inserted beside the rows that it changed are not among them, so it does not raise
        `UnknownChangeError` for an update. On a table without stable row ids nothing more is known of such a
        version.
        """
        return self._effect.appended(columns).read_all()

    @property
    def summary(self) -> VersionSummary:
        """The summary of the version, by its file."""
        return self._summary

    @property
    def columns(self) -> Schema:
        """The schema of this version as its format has it."""
        return self._schema

    @property
    def cost(self) -> ReadCost:
        """The cost of the change in the limits of a step."""
        return self._effect.cost

    def batches(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Returns what `inserted` does, batch by batch.

        for change in lakefold.tail("s3://lake/flights.lance", start=7):
            for batch in change.batches(["id"]):
                print(batch.num_rows)
        """
        return self._effect.inserted(columns)

    def feed(
        self, columns: Sequence[str] | None = None, *, misfits: Misfits | str = Misfits.FAIL
    ) -> pa.RecordBatchReader:
        """Returns every row that this version inserted, changed or deleted, as `lakefold.changes` does.

        The first change of a tail from "earliest" is the whole content: all its rows count as inserted.
        """
        return self._effect.feed(columns, misfits_of(misfits))

    def is_appended(self) -> Callable[[ChangePart], bool]:
        """Returns a function that says whether a part of the feed has only appended rows. Raises as it."""
        return self._effect.is_appended()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)

    @cached_property
    def _effect(self) -> VersionChange:
        return self._source.format.change(self._source, self._summary, self._schema, whole=self._whole)

    @cached_property
    def _record(self) -> Record | None:
        return decode_record(self._summary.properties, self._source.uri) if self._summary.own else None
