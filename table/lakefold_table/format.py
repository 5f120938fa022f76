"""The seam that each table format answers: what the fold asks of a format, and what it hands back.

The fold knows positions, keys and marks; a format knows schemas, fragments and conflicts. Between them stand
these values. A format does no IO: it names the files that it needs (`Requirements`), and the shell fetches
them (`Fetched`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakefold_table.values import value

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_table.entry import Entry, Invalid, Rejected
    from lakefold_table.position import Position
    from lakefold_table.storage.base import Buffer

ALONE = ""
"""What `Format.shares_version` says of an entry that goes alone."""


Tail = tuple[bytes, int]
"""The end of a file, and how many bytes the whole file has."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the shell must bring before some entries can be folded.

    `sizes`: paths, relative to the table's root, whose size decides; `listed`: more of them for an entry that
    has so many that they are read in portions, once. `unsaid`: those of `sizes` that the next version takes
    from the store, since no proposal says them. `folders`: what lies in them, for entries that don't list
    their files; `tails`: the ends of files that tell what an entry doesn't say, each with the most bytes that
    are wanted. `contents`: files whose bytes decide, each with the most bytes it may have; a path in the
    table, or the whole URI of a file elsewhere.
    `schemas`: older versions whose schema decides. `states`: whole versions, each by the root of its table
    (empty: this table) and its number. `operations_since`: what all versions after this one did must be
    known. `bases`: paths and URIs below which files of the table are to lie from then on; it decides whether
    tables may lie there. `neighbours`: roots above or below the one at which an entry begins a table; it
    decides whether other tables lie there.
    """

    sizes: frozenset[str] = frozenset()
    contents: Mapping[str, int] = field(default_factory=dict)
    schemas: frozenset[int] = frozenset()
    states: frozenset[tuple[str, int]] = frozenset()
    operations_since: int | None = None
    listed: Mapping[Position, Iterable[Sequence[str]]] = field(default_factory=dict)
    bases: frozenset[str] = frozenset()
    unsaid: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    tails: Mapping[str, int] = field(default_factory=dict)
    neighbours: frozenset[str] = frozenset()

    @classmethod
    def all_of(cls, several: Iterable[Requirements]) -> Requirements:
        """What any of them asks for."""
        sizes: set[str] = set()
        contents: dict[str, int] = {}
        schemas: set[int] = set()
        states: set[tuple[str, int]] = set()
        since: list[int] = []
        listed: dict[Position, Iterable[Sequence[str]]] = {}
        bases: set[str] = set()
        unsaid: set[str] = set()
        folders: set[str] = set()
        tails: dict[str, int] = {}
        neighbours: set[str] = set()
        for one in several:
            neighbours |= one.neighbours
            listed.update(one.listed)
            bases |= one.bases
            unsaid |= one.unsaid
            folders |= one.folders
            tails.update(one.tails)
            sizes |= one.sizes
            if one.schemas or one.states:
                schemas |= one.schemas
                states |= one.states
            if one.operations_since is not None:
                since.append(one.operations_since)
            if one.contents:
                for path, most in one.contents.items():
                    contents[path] = max(most, contents.get(path, 0))
        return cls(
            frozenset(sizes),
            contents,
            frozenset(schemas),
            frozenset(states),
            min(since, default=None),
            listed,
            frozenset(bases),
            frozenset(unsaid),
            frozenset(folders),
            tails,
            frozenset(neighbours),
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the shell found; what is not named was not looked at.

    `sizes`: None for a file that is not there. `contents`: None for a file that is not there or is larger
    than what was asked for. `schemas`: the schema of an older version, None for a version that is gone.
    `states`: whole versions, None for one that is gone. `listed`: sizes in the order of what was listed for
    an entry, -1 for a file that is not there. `outside`: those bases below which tables may not lie.
    `folders`: the sizes of the files in each, by name. `tails`: None for a file that is not there.
    `neighbours`: those of the roots at which tables lie.
    """

    sizes: Mapping[str, int | None] = field(default_factory=dict)
    contents: Mapping[str, bytes | None] = field(default_factory=dict)
    schemas: Mapping[int, object] = field(default_factory=dict)
    states: Mapping[tuple[str, int], object] = field(default_factory=dict)
    listed: Mapping[Position, array[int]] = field(default_factory=dict)
    outside: Collection[str] = frozenset()
    folders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tails: Mapping[str, Tail | None] = field(default_factory=dict)
    neighbours: Collection[str] = frozenset()


@value()
class Accepted:
    """An entry became part of the next version.

    `did`: the format's name for what it did; entries of one version may have done several things.
    """

    rebased: bool
    rows_added: int
    rows_deleted: int
    first_fragment_id: int
    num_fragment_ids: int
    did: str = ""


@dataclass(frozen=True, slots=True)
class Stamps:
    """What the fold wants written into the next version.

    `metadata` replaces every `lakefold.*` key of the table's metadata; `properties` go into the version's own
    transaction; `uuid` identifies it; `time_us` is the version's time in microseconds since 1970.
    """

    metadata: Mapping[str, str]
    properties: Mapping[str, str]
    uuid: str
    time_us: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a version needs, named by its content: whoever makes it again makes the same bytes."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyFile:
    """A file that repeats a part of a version for clients that don't look for it in the version's own file.

    It is named by its content. The version is sound without it: only those clients need it.
    """

    path: str
    buffers: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Publication:
    """The file of one version: where it goes, what it holds. Its first buffer tells it from any other's.

    `before`: files that must be there before the version is; nobody sees them until it is. `copy`: a file for
    other clients, put while the version is on its way.
    """

    version: int
    path: str
    buffers: Sequence[Buffer]
    before: tuple[NewFile, ...] = ()
    copy: CopyFile | None = None


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """What a version did, without what the table then was: all that later versions must know of it.

    `operation` is the format's name for the kind of operation, `properties` those of the version's own
    transaction. `begins_clone`: the marks after it are those of another table. `footprint`: what it touched,
    as the format's conflict rules ask. `told_in`: as of `State`. `keeps_metadata`: the table's metadata after
    it are those of before, so far as can be told. `restored`, `uuid`: as of `State`. `marks`: a digest of the
    marks in the table's metadata, empty if there are none.

    A reader knows in addition `time_us`, the version's time in microseconds since 1970; `table_id`, empty if
    the version names none; `branch`, empty for the main branch and None if it was not read; `own`: a
    committer published the version; `metadata`, those of the table, None if they were not read; `content`,
    for the format alone; `size`: how many of the file's first bytes contain all this, or the file's size;
    `requested_at`: when the file was requested, in seconds of `time.monotonic`.
    """

    version: int
    operation: str
    properties: Mapping[str, str]
    begins_clone: bool
    footprint: object
    told_in: str = ""
    keeps_metadata: bool = False
    restored: int = 0
    uuid: str = ""
    marks: str = ""
    time_us: int = 0
    table_id: str = ""
    branch: str | None = None
    own: bool = False
    metadata: Mapping[str, str] | None = None
    content: object = field(default=None, repr=False)
    size: int = 0
    requested_at: float = field(default=0.0, compare=False)


class Naming(Protocol):
    """How a table names the files of its versions."""

    @property
    def folder(self) -> str:
        """The folder they lie in."""
        ...

    def path(self, version: int) -> str:
        """The path of a version's file."""
        ...

    def parse(self, name: str) -> int | None:
        """The version that a file name stands for, None for other files."""
        ...


class State(Protocol):
    """A table at one version, as its format knows it. Never changed."""

    @property
    def version(self) -> int:
        """The version's number, from 1."""
        ...

    @property
    def time_us(self) -> int:
        """The version's time in microseconds since 1970."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata, marks included."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the version's own transaction; empty where it has none."""
        ...

    @property
    def uuid(self) -> str:
        """That of the version's own transaction; empty where nothing tells it."""
        ...

    @property
    def keeps_metadata(self) -> bool:
        """Whether the table's metadata are those of the version before, so far as can be told."""
        ...

    @property
    def restored(self) -> int:
        """The version that this one brought back with its metadata, 0 if it is no Restore."""
        ...

    @property
    def told_in(self) -> str:
        """The file, relative to the table's root, that tells what this version did where its own doesn't.

        Empty where its own does, or where nothing does.
        """
        ...

    @property
    def told_since(self) -> int:
        """The version since which it is known what each version did."""
        ...

    @property
    def is_clone(self) -> bool:
        """Whether this version begins a clone or a branch, whose marks are those of another table."""
        ...

    @property
    def branch(self) -> str:
        """The branch that this is a version of; empty on a table's main line."""
        ...

    @property
    def memory_bytes(self) -> int:
        """About how many bytes it takes in memory."""
        ...

    @property
    def schema(self) -> object:
        """The schema, as `Fetched.schemas` wants it."""
        ...


class Draft(Protocol):
    """The next version while entries are added to it one by one."""

    def add(self, entry: Entry) -> Accepted | Rejected | Invalid | None:
        """Checks the entry against the table and what was added before; a refused one changes nothing.

        None: nothing is wrong with it, but it shares no version with what was added before. Nothing changed.
        """
        ...

    @property
    def version(self) -> int:
        """The number of the version in the making; settled once an entry was accepted."""
        ...

    @property
    def restored(self) -> int:
        """The version that the entry added last brings back, 0 if it is no Restore."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata as the entries leave it, before any mark is stamped."""
        ...

    @property
    def operations(self) -> tuple[int, Mapping[str, int]]:
        """For each kind of operation the newest version that was one, this next version included.

        With the version since which that is complete.
        """
        ...

    @property
    def first_ids(self) -> tuple[int, int]:
        """The first fragment id and the first row id that this version may give."""
        ...

    def finish(self, stamps: Stamps) -> tuple[State, Publication]:
        """The next version. Without any accepted entry it is one that changes nothing but the marks."""
        ...


S = TypeVar("S", bound=State)


class Format(Protocol[S]):
    """A table format. `folder`: where it keeps its versions."""

    folder: str

    def detect(self, names: Iterable[str]) -> Naming | None:
        """The naming that the file names in `folder` follow, None where no version is among them."""
        ...

    def decode(self, path: str, data: bytes, uri: str = "", told: bytes | None = None) -> S:
        """The state that a version's file at `path` holds. Raises `DamagedError`.

        `told`: the content of the file that the state named by `told_in` when it was first decoded.
        """
        ...

    def needs(self, state: S | None, entries: Sequence[Entry]) -> Requirements:
        """What `draft` will want to know about these entries."""
        ...

    def deed(self, path: str, data: bytes, uri: str = "", told: bytes | None = None) -> VersionSummary:
        """What the version in the file at `path` did; far cheaper than `decode`. Raises `DamagedError`.

        `told`: as of `decode`.
        """
        ...

    def informed(self, state: S, older: Iterable[VersionSummary]) -> S:
        """The state with what older versions did: those right before its history began, newest first."""
        ...

    def following(self, state: S, foreign: S, between: Sequence[VersionSummary] = ()) -> S:
        """A version that another client made after `state`, with what is known of the ones before.

        `between`: the versions between the two, oldest first. Where one is missing, nothing is known of those
        before it.
        """
        ...

    def check_writable(self, state: S, where: str = "") -> None:
        """Raises `InvalidError` where the table uses features that a writer must know and we don't."""
        ...

    def sharing(self, state: S | None) -> Sharing:
        """Tells of each entry with which neighbours it may share the version after `state`."""
        ...

    def draft(self, state: S | None, observed: Fetched, entries: Sequence[Entry] = ()) -> Draft:
        """Begins the version after `state` (None: there is no table yet).

        `entries`: those that will be added. Nothing depends on it but speed: some questions are asked for
        all of them together.
        """
        ...


Sharing = Callable[["Entry"], str | None]
"""With which neighbours an entry may share a version: with those for which it gives the same name.

`ALONE`: with none. None: with any, since the entry will be refused.
"""

AnyFormat = Format[Any]
"""A format whose states pass through unseen."""
