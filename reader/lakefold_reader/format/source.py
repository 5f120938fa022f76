"""The seam between reading tables and a table format.

Following a table, choosing a version by a time or a position, consumers and the Spark source know versions,
marks and positions. A format knows what is in a version: its schema, its rows, and what it changed. Each
format that can be read implements `ReaderFormat`; `lakefold_reader.formats` chooses the format of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from lakefold_table.roots import folder_and_name
from lakefold_table.storage import open_storage
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.changes import ChangeType, Misfits, ReadCost, Rewritten
    from lakefold_reader.format.snapshots import (
        Cleaned,
        Feature,
        FileTotal,
        FragmentRows,
        FragmentSize,
        IndexInfo,
        Missing,
        NamedEvidence,
        Root,
        RowRange,
        VersionCounts,
    )
    from lakefold_table.entry import Conflict
    from lakefold_table.format import State, VersionSummary
    from lakefold_table.marks.record import Record
    from lakefold_table.storage.base import Storage
    from lakefold_table.version_names import Naming

S = TypeVar("S", bound="State")

KEPT_STATES = 3
"""How many decoded versions a `Source` keeps: a walk backwards in pairs needs each of them twice."""
_IN_USE: WeakValueDictionary[tuple[object, int], State] = WeakValueDictionary()
"""Decoded versions by their table and number, as long as somebody has them open."""
_RECENT: deque[State] = deque(maxlen=KEPT_STATES)
"""The last versions that were decoded, of whatever tables, but for large ones."""
RECENT_BYTES = 4 << 20
"""The memory of the largest version that is kept although nobody has it open."""
MOST_FOLLOWED = 30
"""How many versions before one are looked for, from which it may be decoded."""


@dataclass(frozen=True)
class Source:
    """A branch of a table, open for reading: its store, its versions and its format.

    `options` are the storage options that pylance gets. They may hold secrets, so they are not printed.
    """

    storage: Storage
    versions: Versions
    format: ReaderFormat = field(repr=False, compare=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _states: list[State] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def on(
        cls, storage: Storage, table_format: ReaderFormat, options: Mapping[str, str] | None = None
    ) -> Source:
        """Returns the table at the root of a store. Nothing is read."""
        versions = Versions(
            storage, table_format.folder, table_format.detect, first=table_format.first_version
        )
        return cls(storage, versions, table_format, dict(options or {}))

    def other(self, uri: str) -> Source:
        """Returns another branch of the same table, by the URI of its root. Nothing is read."""
        return Source.on(open_storage(uri, self.options), self.format, self.options)

    @property
    def uri(self) -> str:
        """The canonical URI of the branch's root."""
        return self.storage.uri

    def summary(
        self, version: int, *, whole: bool = False, first: int | None = None
    ) -> VersionSummary | None:
        """Returns the summary of a version by its file, or None if the version does not exist.

        `whole`: the metadata and the schema are needed, so the whole file is read. `first`: how many bytes to
        read at first (None: as many as the format reads). Lists nothing once the naming is known. Raises
        `DamagedError`, and `InvalidError` if the version uses features that this release does not know.
        """
        return self.format.summary(self, version, whole=whole, first=first)

    def content(self, path: str) -> bytes:
        """Returns the bytes of a file: by its path in the table, or by its URI if it is outside of the table.

        Raises `FileNotFoundError`, and `LocationError` for a path that no store accepts.
        """
        if "://" not in path and not path.startswith("/"):
            return self.storage.get(path)
        folder, name = folder_and_name(path)
        return open_storage(folder, self.options).get(name)

    def kept_state(self, version: int, kind: type[S]) -> S | None:
        """Returns the version if it is kept, else None. `kind`: that of the format's versions."""
        return next((state for state in self._kept(kind) if state.version == version), None)

    def state_like(self, version: int, kind: type[S]) -> S | None:
        """Returns a version from which this one may be decoded (`Format.decode`), None if none is known.

        It may be one that this process has opened apart from this source, of a table that was dropped since.
        """
        older = (_IN_USE.get((self._table, each)) for each in range(version, version - MOST_FOLLOWED - 1, -1))
        return next((state for state in older if isinstance(state, kind)), next(self._kept(kind), None))

    def keep_state(self, state: State) -> None:
        """Keeps a decoded version, and those before that share most of their fragments with it."""
        self._states[:] = [state, *self._states[: KEPT_STATES - 1]]
        _IN_USE[self._table, state.version] = state
        if state.memory_bytes <= RECENT_BYTES:
            _RECENT.append(state)

    def _kept(self, kind: type[S]) -> Iterator[S]:
        return (state for state in self._states if isinstance(state, kind))

    @property
    def _table(self) -> tuple[object, ...]:
        """Identifies the table among those that this process reads."""
        return type(self.format), self.uri, frozenset(self.options.items())


class Schema(Protocol):
    """The schema of a version. Equal schemas have the same columns with the same meaning."""

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema in which rows are given."""

    @property
    def names(self) -> list[str]:
        """The names of the columns at the top level, in order."""

    def chosen(self, names: Sequence[str] | None) -> Self:
        """Returns the schema of these columns in their order (None: all). Raises `InvalidError`."""

    def forms(self) -> Mapping[str, object]:
        """Returns a form for each column. A query may continue with a column whose form is equal."""


class VersionChange(Protocol):
    """What a version did to the rows of its table. Nothing is read before it is needed."""

    @property
    def only_inserts(self) -> bool:
        """Whether the inserted rows are all that happened to rows, values and columns."""

    @property
    def rows(self) -> int | None:
        """How many rows were inserted. Returns None if that is not known without reading data."""

    @property
    def cost(self) -> ReadCost:
        """The rows and bytes that the version counts for in the limits of a step."""

    def inserted(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Returns the inserted rows.

        Raises `UnknownChangeError` if they can't be distinguished from others.
        """

    def appended(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """Returns the rows of fragments in which every row is new."""

    def feed(self, columns: Sequence[str] | None, misfits: Misfits) -> pa.RecordBatchReader:
        """Returns the change feed of this version alone."""

    def is_appended(self) -> Callable[[ChangePart], bool]:
        """Returns a function that says whether a part of this version's feed has only appended rows."""


@dataclass(frozen=True, slots=True)
class ChangePart(ABC):
    """Some rows of a change feed, planned and not yet read, and what a version did with all of them.

    `version` did it, at `time_us` (microseconds since 1970), for the log entry at `log_offset`. It is small,
    and can be pickled.
    """

    version: int
    time_us: int
    change_type: ChangeType
    log_offset: int | None

    @property
    @abstractmethod
    def row_count(self) -> int | None:
        """How many rows they are, None if that is not known without reading them."""

    @property
    @abstractmethod
    def cost(self) -> ReadCost:
        """The number of rows, and about how many bytes of data files they take."""


class PartReader(Protocol):
    """Reads the planned parts of a change feed."""

    def read(self, part: ChangePart) -> Iterator[pa.RecordBatch]:
        """Returns the rows of a part, batch by batch, in the schema of `FeedFormat.feed_schema`."""

    def has_row(self, part: ChangePart, values: Mapping[str, pa.Scalar]) -> bool:
        """Returns whether a row of a part has these values of columns. Raises as `read`."""


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """The last version of a change feed, in whose columns all rows of the feed are shown, and its schema."""

    version: int
    schema: Schema


class BranchVersion(NamedTuple):
    """A version that exists: the branch that has it, and its number."""

    source: Source
    version: int


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """What the files of two versions show of their difference. No data file was read.

    `end`: the later of the two, in whose columns rows are shown. `names`: the names of columns that both
    have, in the earlier and in the later. `removed` and `added`: the rows of files that only one of them has,
    among which may be equal ones. `same_columns`: they are of one branch and have the same columns.
    """

    end: FeedEnd
    names: Mapping[str, str]
    same_columns: bool
    files_removed: FileTotal
    files_added: FileTotal
    removed: Sequence[ChangePart]
    added: Sequence[ChangePart]


class FeedFormat(Protocol):
    """Plans change feeds and reads them."""

    def end(self, source: Source, version: int) -> FeedEnd:
        """Returns a feed's end at this version. Raises `VersionExpiredError` if it is gone."""

    def end_of(self, summaries: Sequence[VersionSummary], schema: Schema) -> FeedEnd:
        """Returns a feed's end at the last of these versions, whose schema is known already."""

    def pinned_end(self, version: int, schema: Schema) -> FeedEnd:
        """Returns a feed's end at a version that no longer exists and whose schema was kept."""

    def plan(self, source: Source, after: int, end: FeedEnd, rewritten: Rewritten) -> Iterator[ChangePart]:
        """Returns what the versions after `after` up to the end did. Raises as `lakefold.changes`."""

    def plan_summaries(
        self, source: Source, summaries: Sequence[VersionSummary], end: FeedEnd, rewritten: Rewritten
    ) -> Iterator[ChangePart]:
        """Returns what these consecutive versions did. Their summaries were read before."""

    def plan_row(
        self, source: Source, summary: VersionSummary, end: FeedEnd, values: Mapping[str, pa.Scalar]
    ) -> Iterator[ChangePart]:
        """Returns what a version did to rows with these values of columns, and maybe to others."""

    def keeps_columns(self, summary: VersionSummary) -> bool:
        """Returns whether a version has the columns of the version before for sure."""

    def difference(self, before: BranchVersion, after: BranchVersion) -> VersionDifference:
        """Returns how the files of two versions differ. Of one branch, `after` is the later one.

        Raises `VersionExpiredError`, `DamagedError`, `InvalidError` if a version can't be read.
        """

    def plan_content(self, source: Source, version: int, to: int) -> Iterator[ChangePart]:
        """Returns all rows of a version as inserts, in the columns of version `to`."""

    def schema(self, columns: Schema) -> pa.Schema:
        """Returns the Arrow schema of a feed with these columns. Raises `InvalidError` if names collide."""

    def columns(self, schema: Schema, names: Sequence[str] | None) -> Schema:
        """Returns the columns that a feed shows.

        They are these columns of its end; an empty list means none. Raises `InvalidError`.
        """

    def reader(self, source: Source, columns: Schema, misfits: Misfits) -> PartReader:
        """Reads parts of a feed in these columns of its end."""


class ScanUnit(Protocol):
    """The smallest piece of a version that a task can read. Can be pickled."""

    @property
    def bytes(self) -> int:
        """About how many bytes of data files the unit has."""


class Snapshot(Protocol):
    """A version of a table, opened for reading."""

    @property
    def state(self) -> State:
        """The version itself."""

    @property
    def schema(self) -> Schema:
        """The version's schema."""

    @property
    def fragment_count(self) -> int:
        """The number of fragments of the version."""

    def fragment_sizes(self) -> Iterator[FragmentSize]:
        """Returns the size of each fragment. No data file is read."""

    def data_files(self) -> Iterator[tuple[str, int | None]]:
        """Returns the path of each data file that it needs, with its bytes; None if they are not recorded."""

    def touched(self, conflict: Conflict) -> NamedEvidence:
        """Returns the fragments and fields that the evidence of a conflict names, as far as it knows them."""

    def fragment_rows(self, names: Sequence[str]) -> dict[str, FragmentRows]:
        """Returns the rows of these fragments by name; names that no fragment has are left out.

        Raises `DamagedError`, and `FileNotFoundError` if a file of deleted rows is gone.
        """

    @property
    def physical_rows(self) -> int:
        """The number of rows in its data files, deleted rows included."""

    @property
    def config(self) -> Mapping[str, str]:
        """The table's configuration."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that readers or writers of this version must know."""

    @property
    def roots(self) -> tuple[Root, ...]:
        """The places outside of the table that its files may be in."""

    @property
    def storage_version(self) -> str:
        """The version of the format of its data files."""

    def indices(self) -> tuple[IndexInfo, ...]:
        """Returns the version's indices by name. Raises `DamagedError`."""

    def count_rows(self, where: str | None) -> int:
        """Returns the number of rows for which the filter holds."""

    def reader(
        self, columns: Sequence[str] | None, where: str | None, part: RowRange
    ) -> pa.RecordBatchReader:
        """Returns the rows, batch by batch."""

    def take(self, row_ids: object, columns: Sequence[str] | None, missing: Missing) -> pa.Table:
        """Returns the rows with these ids, in their order."""

    def blobs(self, column: str, row_ids: object) -> list[IO[bytes] | None]:
        """Returns the values of a blob column in these rows, as files."""


class ReaderFormat(Protocol):
    """A table format as the reader needs it: its name, and the folder in which it keeps its versions.

    `first_version`: the number of a table's first version. `has_refs`: tags and branches of its tables are in
    files.
    """

    name: str
    folder: str
    first_version: int
    has_refs: bool

    def detect(self, names: Iterable[str]) -> Naming | None:
        """Returns the naming that these file names in `folder` follow.

        Returns None if no version is among them.
        """

    def summary(
        self, source: Source, version: int, *, whole: bool, first: int | None
    ) -> VersionSummary | None:
        """See `Source.summary`."""

    def schema(self, summary: VersionSummary) -> Schema | None:
        """Returns the schema of a version, or None if it is that of the version before and was not read.

        Raises `DamagedError` if the fields make no schema.
        """

    def change(
        self, source: Source, summary: VersionSummary, schema: Schema, *, whole: bool
    ) -> VersionChange:
        """Returns what a version did. `whole`: its whole content counts as inserted."""

    def counts(self, source: Source, summary: VersionSummary, record: Record | None) -> VersionCounts:
        """Returns how many rows and files a version added and removed.

        `record`: what its committer recorded.
        """

    def open(self, source: Source, version: int) -> Snapshot:
        """Reads a version. Raises `NotATableError`, `VersionExpiredError`, `DamagedError`, `InvalidError`."""

    @property
    def feed(self) -> FeedFormat:
        """The change feeds of this format."""

    def scan_units(self, source: Source, version: int) -> Sequence[ScanUnit]:
        """Returns the pieces of a version, in order. Raises `VersionExpiredError`."""

    def scan(
        self, source: Source, version: int, units: Sequence[ScanUnit], schema: Schema, where: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Returns the rows of these pieces for which the filter `where` holds."""

    def answers_filters(self, summary: VersionSummary) -> bool:
        """Returns whether a scan with a filter on values picks the rows that the filter would pick."""

    def clean_up(
        self,
        source: Source,
        newest: int,
        versions: Sequence[int],
        *,
        begin: Callable[[Sequence[int]], None] | None,
    ) -> Cleaned:
        """Removes these versions and the files that only they need.

        `begin` is called with those that go before the first is removed, None: only reports them.
        """

    def branch_root(self, branch: str) -> str:
        """Returns the folder of a branch, relative to the root of the main branch.

        Empty for the main branch.
        """

    def check_branch_name(self, name: str) -> None:
        """Raises `InvalidError` for a name that no branch can have."""
