"""The seam between a batch and a table format: what a writer knows of the table while it writes one batch.

`lakefold_ingest.formats` opens the view of a table's newest version in its format. All that is format-neutral
(which batches are in the table, to which log it is bound) is here. A format adds how rows are written, and
the proposals that name their files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from lakefold_ingest.rows.target import MAX_BYTES_PER_FILE, MAX_ROWS_PER_FILE, Target, WrittenFile
from lakefold_table.entry import Duplicate
from lakefold_table.errors import InvalidError
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.content_digest import UNKNOWN, digest_like, is_said

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.alteration import Alteration
    from lakefold_ingest.proposals.key import Key
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_table.marks.intervals import Interval
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import Position


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The columns of the rows that an operation writes, in Arrow's types.

    `are_all`: the rows have no other columns, so those that only the table has must be nullable. `keys`:
    columns that the table must have already.
    """

    schema: pa.Schema
    are_all: bool = True
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What a table's schema has to get for a batch: in words, and the proposal that changes it."""

    text: str
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a writer that concern the table's files, and a table that it creates.

    `table` is the canonical URI. A file ends after `max_rows_per_file` rows or `max_bytes_per_file` bytes of
    rows in memory, and has them in the order of the columns `sort_by`. `bad_records`: the table of rows that
    can't be written; empty: such rows fail their batch. `bad_records_columns`: the columns of the batch that
    only those rows keep. `stable_row_ids`: rows of a new table keep their ids
    when they are moved. `data_storage_version`: that of Lance's data files. `partition_by`: the partition
    columns of a new table. `table_properties`: the properties of a new table.
    """

    table: str
    _: KW_ONLY
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_bytes_per_file: int = MAX_BYTES_PER_FILE
    sort_by: tuple[str, ...] = ()
    bad_records: str = ""
    bad_records_columns: tuple[str, ...] = ()
    stable_row_ids: bool = False
    data_storage_version: str
    partition_by: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View(ABC):
    """A table at its newest version.

    `schema` is its schema in Arrow's types. `marks` are those that a committer published with this version,
    empty if another client made it; `carried` are those in it, whichever client made it. `bound` is the
    position to which the table is bound, None if it is bound to no log. `has_properties`: the properties and
    partition columns of a write mean something for tables of this format.
    """

    format: ClassVar[str]
    has_properties: ClassVar[bool] = False
    uri: str
    version: int
    schema: pa.Schema
    marks: Marks
    carried: Marks
    bound: Position | None

    @abstractmethod
    def target(self, columns: pa.Schema, settings: TableSettings) -> Target:
        """Returns where and how rows with these columns are written for this version.

        Raises `InvalidError`, which lists the columns and types that don't fit the table, or names the one by
        which rows can't be sorted.
        """

    @abstractmethod
    def append(self, key: Key, files: Iterable[WrittenFile], *, written_for: int | None = None) -> Envelope:
        """Returns the proposal that adds these files.

        `written_for`: the version for which they were written; None: this one.
        """

    @abstractmethod
    def append_content(self, columns: Collection[str], rows: int) -> str:
        """Returns what `TableProposal.content` says of an append of `rows` rows with these columns."""

    @abstractmethod
    def nothing(self, key: Key) -> Envelope:
        """Returns a proposal that changes nothing, so that its key is folded. It conflicts with no other."""

    def takes_property(self, name: str) -> bool:
        """Returns whether a write may give this property to a table of this format that it creates."""
        del name
        return self.has_properties

    def partition_columns(self) -> tuple[str, ...]:
        """Returns the names of the columns by which the table's files are partitioned."""
        return ()

    def folded(self, key: Key) -> Duplicate | None:
        """Returns the outcome of a repetition of this batch. Returns None if it may not be folded yet."""
        if key.batch_id is None:
            version = dict(self.marks.uuids).get(key.own_uuid)
            rolled_back_by = self.marks.uuids_rolled_back.get(key.own_uuid, 0)
            return None if version is None else Duplicate(version, rolled_back_by)
        mark = self.marks.apps.get(key.app_id)
        if mark is None or not mark.has(key.batch_id):
            return None
        return Duplicate(mark.version_of(key.batch_id), mark.rolled_back_by(key.batch_id))

    def highest_batch(self, app_id: str) -> int | None:
        """Returns the highest batch id of the app that the table has, None if it has no batch of it."""
        mark = self.carried.apps.get(app_id)
        return mark.folded[-1][1] if mark is not None and mark.folded else None

    def remembers_said(self, key: Key) -> bool:
        """Returns whether the writer of this batch, which was folded, said what its content is."""
        mark = None if key.batch_id is None else self.marks.apps.get(key.app_id)
        return mark is not None and key.batch_id is not None and is_said(mark.content_of(key.batch_id))

    def differs(self, key: Key, content: str, said: str = "") -> bool:
        """Returns whether this batch is known to have been folded with another content.

        `content`: as `TableProposal.content`; `said`: as its writer says it, see `batch_content`. The content
        is remembered for the newest batches of each app.
        """
        mark = None if key.batch_id is None else self.marks.apps.get(key.app_id)
        digest = UNKNOWN if key.batch_id is None or mark is None else mark.content_of(key.batch_id)
        other = digest_like(digest, said, content)
        return UNKNOWN not in {digest, other} and digest != other

    def folded_later(self, key: Key) -> int | None:
        """Returns the highest batch id of the app if this batch was folded, and that later one too.

        Returns None otherwise, and for a batch that a Restore left out of the table.
        """
        mark = self.carried.apps.get(key.app_id)
        if key.batch_id is None or mark is None or not mark.has(key.batch_id):
            return None
        highest = mark.folded[-1][1]
        return highest if highest > key.batch_id and not mark.rolled_back_by(key.batch_id) else None

    def not_folded_before(self, key: Key) -> Sequence[Interval]:
        """Returns the ids of earlier batches of the app that are not in the table, as far as is known."""
        mark = self.carried.apps.get(key.app_id, AppMark())
        return () if not key.batch_id else mark.not_folded_below(key.batch_id)

    @property
    def partition(self) -> int | None:
        """The partition of the log that the table is bound to; None if it isn't bound yet."""
        return None if self.bound is None else self.bound.log.partition


class NotInFormatError(InvalidError):
    """What was requested is not built for tables of this format."""


def not_in_format(what: str, view: View, hint: str) -> NotInFormatError:
    """Returns the error for an operation that is not built for the view's format."""
    name = view.format.capitalize()
    return NotInFormatError(f"{what} is not built for {name} tables", where=view.uri, hint=hint)


class Evolution(Protocol):
    """Fits a table's schema to the columns of a batch, over all attempts of one batch."""

    def is_needed(self, view: View, columns: BatchColumns) -> bool:
        """Returns whether the schema has to be changed.

        Raises `InvalidError` if a column can't be added, or if nothing has to be changed and the rows don't
        fit the table.
        """

    def change(self, view: View, columns: BatchColumns, source: Source) -> SchemaChange:
        """Returns what has to be changed. Raises `InvalidError` if the rows would not fit the table then."""

    def alter(self, view: View, key: Key, alteration: Alteration, source: Source) -> Envelope | None:
        """Returns the proposal that alters the table, None if it is so already.

        Raises `InvalidError` if the table can't be altered so.
        """


class WriterFormat(Protocol):
    """A table format as a writer needs it.

    `needs_pylance`: it writes the format's data files. `unnamed_ending`: how the names of files end that a
    cleanup removes from the folder of data files if no version names them.
    """

    name: str
    needs_pylance: bool
    unnamed_ending: str

    def view(self, source: Source, version: int, before: View | None) -> View:
        """Returns a version that exists. `before`: an older version of the table that was read, or None.

        Raises `InvalidError` if the table uses features that a writer must know and this release doesn't.
        """

    def creation(self, settings: TableSettings, key: Key, schema: pa.Schema) -> Envelope:
        """Returns the proposal that creates the table with this schema. Raises `InvalidError`."""

    def columns(self, creation: Envelope) -> pa.Schema:
        """Returns the columns of the table that this creation makes."""

    def evolution(self, settings: TableSettings) -> Evolution:
        """Returns what fits a table's schema to a batch that is written with these settings."""

    def record(self, envelope: Envelope, properties: Mapping[str, str]) -> None:
        """Adds properties that the version records to a proposal. Raises `InvalidError`."""

    def built_again(self, envelope: Envelope) -> None:
        """Marks a proposal whose first attempt was refused."""

    def depends_on_parts(self, envelope: Envelope) -> bool:
        """Returns whether a merge may be refused for changes of other keys: see `Turn.parts`."""

    def restore(self, envelope: Envelope, source: Source, version: int, newest: int) -> None:
        """Adds to an envelope what makes `version` the newest again; `newest`: of the table or branch now.

        Raises `InvalidError` if that can't be proposed, `VersionExpiredError` if files of it are gone.
        """

    def new_files(self, envelope: Envelope) -> Iterable[tuple[int, Sequence[int]]]:
        """Yields for each fragment or file that a proposal adds its rows, and the bytes of its files."""

    def new_paths(self, envelope: Envelope) -> Iterable[str]:
        """Yields the paths of the files that a proposal adds, relative to the table's root."""
