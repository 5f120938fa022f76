"""The seam to the table formats: what the fold requests of a format, and what a format returns.

The fold knows positions, keys and marks; a format knows schemas, files and conflicts. The values in this
module pass between them. A format does no IO: it names the files that it needs to see (`Requirements`), and
the committer fetches them (`Fetched`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakefold_table.tag_proposal import NO_TAGS, KnownTags
from lakefold_table.values import value

if TYPE_CHECKING:
    from array import array

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.author import Author
    from lakefold_table.entry import Duplicate, Entry, Invalid, Rejected, Result
    from lakefold_table.expansion import Content
    from lakefold_table.position import Position
    from lakefold_table.proposal import LargeProposal, TableProposal
    from lakefold_table.ref_files import RefFiles
    from lakefold_table.storage.base import Buffer
    from lakefold_table.version_names import ManifestNaming, Naming

ALONE = ""
"""What a `GroupingRule` returns for an entry that shares its version with no other."""


Files = Mapping[str, "bytes | None"]
"""The content of files, by their paths below the table's root; None for one that does not exist."""
NO_FILES: Files = MappingProxyType({})


Tail = tuple[bytes, int]
"""The end of a file, and how many bytes the whole file has."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """The files and versions that a format must see before it can fold some entries.

    All paths are relative to the table's root, unless noted.

    `sizes`: files whose size is needed. `listed`: more of them, for an entry whose files are too many to be
    read at once: they are read in portions, and once only. `unknown_sizes`: those of `sizes` that no proposal
    gives, so that the next version takes them from the store. `folders`: those whose files are needed, for
    entries that list no files. `tails`: files whose last bytes are needed, each with the largest number of
    bytes. `contents`: files whose content is needed, each with the largest size that it may have; a path in
    the table, or the whole URI of a file elsewhere. `schemas`: older versions whose schema is needed.
    `states`: whole versions, each by the root of its table (empty: this table) and its number.
    `operations_since`: what all later versions did is needed. `bases`: paths and URIs below which files of
    the table will be from now on, to be checked whether tables are allowed there. `neighbours`: roots above
    or below the one at which an entry begins a table, to be checked whether they hold other tables. `times`:
    files whose time is needed. `restored`: files that an older version had and that come back, each with that
    version.
    """

    sizes: frozenset[str] = frozenset()
    contents: Mapping[str, int] = field(default_factory=dict)
    schemas: frozenset[int] = frozenset()
    states: frozenset[tuple[str, int]] = frozenset()
    operations_since: int | None = None
    listed: Mapping[Position, Iterable[Sequence[str]]] = field(default_factory=dict)
    bases: frozenset[str] = frozenset()
    unknown_sizes: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    tails: Mapping[str, int] = field(default_factory=dict)
    neighbours: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()
    restored: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def all_of(cls, parts: Iterable[Requirements]) -> Requirements:
        """Returns what any of the parts requires."""
        parts = list(parts)
        contents: dict[str, int] = {}
        for part in parts:
            for path, most in part.contents.items():
                contents[path] = max(most, contents.get(path, 0))
        since = [part.operations_since for part in parts if part.operations_since is not None]
        return cls(
            frozenset[str]().union(*(part.sizes for part in parts)),
            contents,
            frozenset[int]().union(*(part.schemas for part in parts)),
            frozenset[tuple[str, int]]().union(*(part.states for part in parts)),
            min(since, default=None),
            dict(chain.from_iterable(part.listed.items() for part in parts)),
            frozenset[str]().union(*(part.bases for part in parts)),
            frozenset[str]().union(*(part.unknown_sizes for part in parts)),
            frozenset[str]().union(*(part.folders for part in parts)),
            dict(chain.from_iterable(part.tails.items() for part in parts)),
            frozenset[str]().union(*(part.neighbours for part in parts)),
            frozenset[str]().union(*(part.times for part in parts)),
            dict(chain.from_iterable(part.restored.items() for part in parts)),
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was fetched for `Requirements`. A path or version that is not a key was not looked up.

    `sizes`: None for a file that does not exist, or that comes back and may be removed just now. `contents`:
    None for a file that does not exist or is larger than was allowed. `schemas`: the schema of an older
    version, None if the version is gone. `states`: whole versions, None for one that is gone. `listed`: sizes
    in the order in which the entry's files were listed, -1 for a file that does not exist. `outside`: those
    of the bases below which tables are not allowed.
    `folders`: the sizes of the files in each folder, by name. `tails`: None for a file that does not exist.
    `neighbours`: those of the roots that hold a table. `times`: when a file was stored, in microseconds since
    1970; the present if that is unknown. `deleted`: those roots of `states` at which a branch was deleted,
    and by which entry. No format needs the last three: `tags`, those that entries name, `needed_by`, the
    tags and branches that need a branch which an entry deletes, None if they can't be read, and `restored`,
    those of its files that exist.
    """

    sizes: Mapping[str, int | None] = field(default_factory=dict)
    contents: Mapping[str, bytes | None] = field(default_factory=dict)
    schemas: Mapping[int, object] = field(default_factory=dict)
    states: Mapping[tuple[str, int], State | None] = field(default_factory=dict)
    listed: Mapping[Position, array[int]] = field(default_factory=dict)
    outside: Collection[str] = frozenset()
    folders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tails: Mapping[str, Tail | None] = field(default_factory=dict)
    neighbours: Collection[str] = frozenset()
    times: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, Position] = field(default_factory=dict)
    tags: KnownTags = NO_TAGS
    needed_by: Sequence[str] | None = ()
    restored: Mapping[str, int] = field(default_factory=dict)


@value()
class Accepted:
    """An entry became part of the next version.

    `operation`: the format's name for what the entry did; the entries of a version may differ in it.
    `recorded_batch`: the highest batch of the entry's app that the table records outside of the marks.
    """

    rebased: bool
    rows_added: int
    rows_deleted: int
    first_fragment_id: int
    num_fragment_ids: int
    operation: str = ""
    recorded_batch: int | None = None


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What the fold has a format write into the next version.

    `metadata` replaces every `lakefold.*` key of the table's metadata; `properties` go into the version's own
    transaction; `uuid` identifies it; `time_us` is the version's time in microseconds since 1970. `author`:
    the names of those who sent its entries, empty if none is known.
    """

    metadata: Mapping[str, str]
    properties: Mapping[str, str]
    uuid: str
    time_us: int
    author: str = ""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a version needs, named by its content: making it again gives the same bytes.

    `may_exist`: of the files after a version, one whose name no other content can have.
    """

    path: str
    data: bytes
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class FilesAfter:
    """Files that make a version quicker to open, in the order in which they are stored.

    `kept`: what the format gets again for a later version, if all of them were stored. `relies_on`: the path
    of an older file without which others that these need may be gone as well, empty if there is none.
    `relying`: the path of the one of `files` that needs those others.
    """

    files: Sequence[NewFile] = ()
    kept: object = None
    relies_on: str = ""
    relying: str = ""


@dataclass(frozen=True, slots=True)
class CopyFile:
    """A file that repeats a part of a version for clients that don't look for it in the version's own file.

    It is named by its content. The version is valid without it: only those clients need it.
    """

    path: str
    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Publication:
    """The file of a version, ready to be published. Its first buffer differs from any other version's.

    `before`: files that must be stored before the version is published; no reader uses them until it is.
    `copy`: a file for other clients, written at the same time as the version.
    """

    version: int
    path: str
    buffers: Sequence[Buffer]
    before: tuple[NewFile, ...] = ()
    copy: CopyFile | None = None

    @property
    def size(self) -> int:
        """The bytes of the version's file."""
        return sum(len(buffer) for buffer in self.buffers)


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """What a version did, without the table's content: all that later versions must know of it.

    `operation` is the format's name for the kind of operation, `properties` are those of the version's own
    transaction. `begins_clone`: the marks in it are those of another table. `footprint`: what it touched, for
    the format's conflict rules; opaque to all others. `missing_files`, `restored`, `uuid`: as of `State`.
    `keeps_metadata`: the table's metadata are known to be those of the version before. `marks`: a digest of
    the marks in the table's metadata, empty if it has none.

    A reader knows in addition `time_us`, the version's time in microseconds since 1970; `table_id`, empty if
    the version names none; `branch`, empty for the main branch and None if it was not read; `own`: a
    committer published the version; `metadata`, those of the table, None if they were not read; `content`,
    for the format alone; `author`: who made a version that no committer made, as far as it says; `size`: how
    many of the file's first bytes contain all this, or the file's size; `requested_at`: when the file was
    requested, in seconds of `time.monotonic`.
    """

    version: int
    operation: str
    properties: Mapping[str, str]
    begins_clone: bool
    footprint: object
    missing_files: tuple[str, ...] = ()
    keeps_metadata: bool = False
    restored: int | None = None
    uuid: str = ""
    marks: str = ""
    time_us: int = 0
    table_id: str = ""
    branch: str | None = None
    own: bool = False
    metadata: Mapping[str, str] | None = None
    content: object = field(default=None, repr=False)
    author: Author | None = None
    size: int = 0
    requested_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class VersionHead:
    """What a committer wrote at the beginning of a version's file: its transaction's uuid and properties."""

    uuid: str
    properties: Mapping[str, str]


class State(Protocol):
    """A table at a version, as its format knows it. Never changed."""

    @property
    def version(self) -> int:
        """The version's number; that of a table's first version is `Format.first_version`."""

    @property
    def time_us(self) -> int:
        """The version's time in microseconds since 1970."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata, marks included."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the version's own transaction; empty if it has none."""

    @property
    def uuid(self) -> str:
        """The uuid of the version's own transaction; empty if it is unknown."""

    @property
    def keeps_metadata(self) -> bool:
        """Whether the table's metadata are known to be those of the version before."""

    @property
    def proves_marks(self) -> bool:
        """Whether another client's version shows that its marks are those of the last committer's version."""

    def lost_marks(self, *, has_all: bool) -> str:
        """Returns why its marks may be lost, "" if nothing shows it. `has_all`: no older one is gone."""

    @property
    def restored(self) -> int | None:
        """The older version that this version restored, None if it is not a Restore or does not name one.

        Lance's Restore takes over the metadata of that version, with its marks; Delta's keeps the marks.
        """

    @property
    def missing_files(self) -> tuple[str, ...]:
        """Other files, relative to the table's root, that are needed to decode this version.

        Empty once it is complete, and if no file can complete it. See `Format.decode`.
        """

    @property
    def history_start(self) -> int:
        """The version since which it is known what each version did."""

    @property
    def is_clone(self) -> bool:
        """Whether this version begins a clone or a branch, whose marks are those of another table."""

    @property
    def branch(self) -> str:
        """The branch that this is a version of; empty on the main branch."""

    @property
    def format(self) -> str:
        """The name of its format, as of `Format.name`."""

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory the state takes."""

    @property
    def schema(self) -> object:
        """The schema, as it is put into `Fetched.schemas`."""


class Draft(Protocol):
    """The next version while entries are added to it."""

    def add(self, entry: Entry) -> Accepted | Duplicate | Rejected | Invalid | None:
        """Checks the entry against the table and what was added before. A refused entry changes nothing.

        It is a Duplicate if the table records its batch by means of its format, which the marks don't have.

        Returns None, and changes nothing, if the entry is valid but can't share this version with the entries
        that were added before.
        """

    def forget(self, app_id: str) -> bool:
        """Forgets the batches of an app that the table records by means of its format, as of `add`.

        Returns whether it records any.
        """

    @property
    def version(self) -> int:
        """The number of the version in the making; final after an entry was accepted."""

    @property
    def restored(self) -> int | None:
        """The version that the entry added last restores, None if it is not a Restore."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata after these entries, without the marks of this version."""

    @property
    def operations(self) -> tuple[int, Mapping[str, int]]:
        """For each kind of operation the newest version with it, and since which version that is known.

        The version since which comes first. The version in the making is included.
        """

    @property
    def first_ids(self) -> tuple[int, int]:
        """The first fragment id and the first row id that this version may assign; 0 without such ids."""

    def finish(self, commit: CommitMetadata) -> tuple[State, Publication]:
        """Returns the next version. Without any accepted entry it changes nothing but the marks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a stored version and the same version folded again, as texts for people."""

    what: str
    stored: str
    folded: str

    def __str__(self) -> str:
        return f"{self.what}: stored {self.stored}, folded {self.folded}"


@dataclass(frozen=True, slots=True)
class RecordedVersion:
    """A version that is folded again: its file at `path` of the table at `uri`, and what was answered then.

    `answers`: by offset. `sizes`: gives the sizes of files as they are now. Offsets `given` are not judged
    again: their answers are taken from the record.
    """

    path: str
    data: bytes
    uri: str
    answers: Mapping[int, Result]
    sizes: Callable[[Collection[str]], Mapping[str, int | None]]
    given: Collection[int] = ()


S = TypeVar("S", bound=State)


class Format(Protocol[S]):
    """A table format.

    `name`: what messages and proposals call it. `folder`: where it keeps the files of its versions; a folder
    with such files in it is a table of this format. `first_version`: the number of a table's first version.
    """

    name: str
    folder: str
    first_version: int

    @property
    def operations(self) -> Collection[str]:
        """The names of operations that metrics distinguish. A producer may send any other name."""

    @property
    def is_data_name(self) -> Callable[[str], bool] | None:
        """Returns whether a name at the root may be that of a data file, or of a folder of them.

        Such files may be there before the table has a version. None if data files are only in folders that no
        format uses for anything else.
        """

    @property
    def manifests(self) -> ManifestNaming | None:
        """How versions are named that an external manifest store commits, None if no such store has any."""

    @property
    def refs(self) -> RefFiles | None:
        """The files of tags and branches, None if the format has none."""

    def proposal(self, envelope: Envelope) -> TableProposal | None:
        """Returns the proposal of this format that an envelope holds, None if it holds none."""

    def unknown_kind(self, envelope: Envelope) -> str:
        """Describes why only a newer release can fold this envelope's proposal; empty if this release can.

        Called for envelopes that hold a proposal of this format.
        """

    def parse_large(
        self, data: bytes, content: Content, allow: Callable[[int], None]
    ) -> LargeProposal | None:
        """Returns the proposal in the bytes of an envelope in a form that takes little memory.

        Returns None if it has to be decoded whole, or is of another format. `content`: what they hold.
        `allow` is called with the bytes of memory that folding it takes, before anything is decoded that
        takes as much; what it raises is raised.
        """

    def memory_to_fold(self, content: Content) -> int:
        """Returns about how many bytes of memory it takes to fold a proposal that is decoded whole."""

    def head_length(self, start: bytes) -> int:
        """Returns how many bytes the head of a version's file takes, by its first bytes; 0 if unknown."""

    def head(self, start: bytes) -> VersionHead | None:
        """Returns the head in the first bytes of a version's file, None if the file begins without a head."""

    def detect(self, names: Iterable[str]) -> Naming | None:
        """Returns the naming that the file names in `folder` follow, None if none of them is a version."""

    def decode(
        self, path: str, data: bytes, uri: str = "", files: Files = NO_FILES, like: S | None = None
    ) -> S:
        """Returns the state that the file of a version at `path` holds. Raises `DamagedError`.

        `like`: another version of the table, as far as the caller knows. What both have is taken from it, so
        that the next version costs as much as what it changed.

        If other files are needed as well, the state names them (`missing_files`) and is not complete. Then
        this is called again, with all the files that were named so far, until none is missing. A name that
        ends with `/` is that of a folder, whose content is the names in it, one in each line (`content_at`).
        """

    def requirements(self, state: S | None, entries: Sequence[Entry]) -> Requirements:
        """Returns what `draft` must see to fold these entries."""

    def summarize(self, path: str, data: bytes, uri: str = "", files: Files = NO_FILES) -> VersionSummary:
        """Returns what the version in the file at `path` did; cheaper than `decode`. Raises `DamagedError`.

        `files`: as of `decode`.
        """

    def with_history(self, state: S, older: Iterable[VersionSummary]) -> S:
        """Returns the state with what `older` did: the versions right before its history, newest first."""

    def follow_foreign(self, state: S, foreign: S, between: Sequence[VersionSummary] = ()) -> S:
        """Returns `foreign`, which another client made after `state`, with what is known of earlier versions.

        `between`: the versions between the two, oldest first. If a version is missing, nothing is known of
        those before it.
        """

    def absent_removals(self, state: S, foreign: S) -> Sequence[str]:
        """Returns the files that another client's next version says it removes, and that `state` lacks."""

    def files_after(self, state: S, kept: object = None) -> FilesAfter:
        """Returns files that make it quicker to open the table, once this version is published.

        They are stored in their order, the last one over an older one. No version depends on them, and
        without them everything stays the same. `kept`: `FilesAfter.kept` of the last version of the table of
        which this committer has stored such files.
        """

    def check_writable(self, state: S, where: str = "") -> None:
        """Raises `InvalidError` if the table uses features that this release can't write."""

    def grouping_rule(self, state: S | None) -> GroupingRule:
        """Returns the rule by which neighbouring entries may share the version after `state`."""

    def replaying(self, recorded: RecordedVersion) -> ReplayingFormat[S]:
        """Returns the format as it judges the entries of a version that it made before.

        What the store contained then is taken from the version, as far as it says that.
        """

    def differences(self, stored: bytes, folded: bytes, where: str = "") -> list[Difference]:
        """Returns how the stored file of a version differs from the version that was folded again."""

    def draft(self, state: S | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> Draft:
        """Begins the version after `state` (None: the table does not exist yet).

        `entries`: those that will be added. They affect only speed: some questions are asked for all of them
        together.
        """


class ReplayingFormat(Format[S], Protocol[S]):
    """A format that judges a version's entries again, whose answers are known.

    After the fold `undecided` and `unlike` hold the offsets whose refusal it does not give: in `undecided` if
    the cause may no longer exist, in `unlike` if that is a difference. `accepted`: those of them that it took
    in.
    """

    undecided: set[int]
    unlike: set[int]
    accepted: set[int]


GroupingRule = Callable[["Entry"], str | None]
"""Returns the name of the group that an entry belongs to; entries of equal names may share a version.

Returns `ALONE` if it shares with no other, None if it may be with any, since it will be refused.
"""

AnyFormat = Format[Any]
"""A format whose states are opaque to the caller."""
