"""What a transaction touches, as far as the conflict rules need it: a value that outlives the transaction.

Up to ten thousand versions are remembered by their footprints. So a footprint holds ids, keys and digests,
and never the fragments themselves: an Append of a thousand fragments leaves nothing but its kind.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

from lakefold_table.bitmaps import Bitmap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import DataFile
    from lakefold_table.lance.kinds import Kind

NO_IDS: frozenset[int] = frozenset()
NO_KEYS: frozenset[str] = frozenset()

BARE_BYTES, ID_BYTES, FILE_BYTES = 400, 80, 160
"""Bytes of memory that an empty footprint takes, and those that each id and each digest in it adds."""


DIGEST_BYTES = 16


@cache
def every_row() -> Bitmap:
    """Returns the row offsets of a fragment of any size; as a set of runs they take a megabyte."""
    return Bitmap(range(2**32))


@dataclass(frozen=True, slots=True)
class FileDigests:
    """The names of many data files as digests of 16 bytes each, in ascending order.

    Names are compared by their digests alone, so these are long enough that no two names ever share a digest.
    """

    digests: bytes = b""

    @classmethod
    def of(cls, names: Iterable[str]) -> FileDigests:
        """Returns the digests of these names."""
        return cls(b"".join(sorted({_digest(name) for name in names})))

    def __contains__(self, name: str) -> bool:
        digest, count = _digest(name), len(self.digests) // DIGEST_BYTES
        at = bisect_left(range(count), digest, key=self._digest_at)
        return at < count and self._digest_at(at) == digest

    def _digest_at(self, index: int) -> bytes:
        return self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]


def name_of_file(file: DataFile) -> str:
    """Returns a name that distinguishes a data file from all others that the versions of a table name."""
    return f"base {file.base_id}/{file.path}" if file.HasField("base_id") else file.path


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """What an update of a map does: the keys that it sets and deletes, and whether it removes all others."""

    sets: frozenset[str] = NO_KEYS
    deletes: frozenset[str] = NO_KEYS
    replaces: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """All keys that the update names."""
        return self.sets | self.deletes


@dataclass(frozen=True, slots=True)
class IndexFootprint:
    """An index that a CreateIndex adds. `fragments`: those that it covers, None if that is not known."""

    uuid: str
    name: str
    fields: frozenset[int]
    fragments: Bitmap | None
    type_url: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """The keys of the rows that an Update inserts.

    `fields`: ids of the columns that make the key, in their order. `hashes`: of the keys, ascending, 8 bytes
    each; or `bloom`: the bits that are set in a Bloom filter of them. `shape`: the parameters of that filter;
    only two filters of the same shape can be compared. `precedes_appends`: Appends after the read version
    count as made after the Update.
    """

    fields: tuple[int, ...]
    hashes: bytes = b""
    bloom: Bitmap | None = None
    shape: tuple[int, int, int, float] = (0, 0, 0, 0.0)
    precedes_appends: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """What a proposal has looked for in the table, if that is judged. Its rows are not part of it.

    `keys`: those that it has looked up. `any_row`: it has looked at all rows, e.g. by a condition.
    `is_named`: the proposal says what it has read; otherwise it may have read anything.
    """

    keys: Filter | None = None
    any_row: bool = True
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Indexing:
    """The indices that a CreateIndex adds, and the entries it removes: name and uuid (hexadecimal)."""

    added: tuple[IndexFootprint, ...] = ()
    removed: tuple[tuple[str, str], ...] = ()

    def named(self, name: str) -> IndexFootprint | None:
        """Returns the first new index of this name, or None."""
        return next((index for index in self.added if index.name == name), None)

    def removed_of(self, name: str) -> frozenset[str]:
        """Returns the uuids of the entries of this name that it removes."""
        return frozenset(uuid for removed, uuid in self.removed if removed == name)


@dataclass(frozen=True, slots=True)
class MovedGroup:
    """One group of a Rewrite that kept the order of its rows.

    `group`: an encoded `RewriteGroup` with no more than ids, numbers of rows and deletion files. Its old
    fragments are those that the Rewrite read, its new ones those that it wrote; a new fragment of which no
    row was left when the Rewrite was committed has the id 0. `new`: the ids of the others, with the digests
    of their data files.
    """

    group: bytes
    new: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a transaction touches. Which fields are filled depends on its kind; the others stay empty.

    `touched`: ids of the fragments that it changes, replaces or removes; `removed`: those of them that are
    gone afterwards. `files`: a digest of the data files of each fragment that it changes, by which two views
    of a fragment can be compared. `rows`: the row offsets that it deletes or moves, by fragment id, None if
    they are not known. `moves_rows`: it writes rows of changed fragments into new fragments;
    `rewrites_columns`: it changes them in place. `fields`: ids of the fields whose values it changes;
    `values`: the same by fragment id, if it names fragments. `schema`: ids of the fields that a Project
    keeps. `covered`: the row offsets that overlays cover, by fragment id, None for all. `groups`: ids of the
    fragments that a Rewrite makes into others, by group; `rewritten`: their data files; `moved`: the same
    groups with their new fragments, None if it is not known that the rows kept their order. `carries_reuse`:
    it contains a fragment-reuse index. `schema_metadata`, `field_metadata`: it names the schema's metadata,
    that of these fields; `describes`: it also changes some of it. `reads`: what a proposal has read, None if
    that is not judged. `shards`: newest generation merged, by shard id.
    """

    kind: Kind
    touched: frozenset[int] = NO_IDS
    removed: frozenset[int] = NO_IDS
    files: Mapping[int, bytes] = field(default_factory=dict)
    rows: Mapping[int, Bitmap] | None = None
    moves_rows: bool = False
    rewrites_columns: bool = False
    fields: frozenset[int] = NO_IDS
    values: Mapping[int, frozenset[int]] = field(default_factory=dict)
    schema: frozenset[int] = NO_IDS
    covered: Mapping[int, Bitmap | None] = field(default_factory=dict)
    groups: tuple[frozenset[int], ...] = ()
    rewritten: FileDigests = FileDigests()
    moved: tuple[MovedGroup, ...] | None = None
    carries_reuse: bool = False
    indexing: Indexing | None = None
    config: KeyChanges | None = None
    table_metadata: KeyChanges | None = None
    schema_metadata: bool = False
    field_metadata: frozenset[int] = NO_IDS
    describes: bool = False
    inserted: Filter | None = None
    reads: Reads | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    bases: tuple[tuple[int, str | None, str], ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes of memory the footprint takes (measured)."""
        ids = len(self.touched) + len(self.removed) + len(self.covered)
        ids += sum(map(len, self.groups)) + sum(map(len, self.values.values()))
        filtered = 0 if self.inserted is None else len(self.inserted.hashes) + self.inserted.shape[0]
        bare = BARE_BYTES + filtered + len(self.rewritten.digests)
        moved = sum(len(group.group) + FILE_BYTES * len(group.new) for group in self.moved or ())
        return bare + moved + ID_BYTES * ids + FILE_BYTES * len(self.files)

    def carried_over(self, rewrite: Footprint, rows: Mapping[int, Bitmap] | None = None) -> Footprint:
        """Returns what a Delete or an Update touches after a Rewrite moved the rows of its fragments.

        `rows`: those of its rows that are in new fragments now, by fragment id. If None, it isn't known in
        which ones they are: then all new fragments of the groups are touched, with all their rows.
        """
        groups = [
            (old, moved)
            for old, moved in zip(rewrite.groups, rewrite.moved or (), strict=True)
            if not old.isdisjoint(self.touched)
        ]
        replaced = NO_IDS.union(*(old for old, _ in groups))
        new = {
            number: files
            for _, moved in groups
            for number, files in moved.new.items()
            if rows is None or number in rows
        }
        values = NO_IDS.union(*(self.values.get(number, NO_IDS) for number in replaced))
        return replace(
            self,
            touched=(self.touched - replaced) | new.keys(),
            removed=self.removed - replaced,
            files={**self.files, **new},
            rows={**(self.rows or {}), **(dict.fromkeys(new, every_row()) if rows is None else rows)},
            values={**self.values, **dict.fromkeys(new, values)} if values else self.values,
        )


class RowsTouched:
    """What all Deletes (or all Updates of rows) of a version touch together, while more are added.

    Such operations touch nothing but rows. If two of them touch one fragment, its data files are the same for
    both, or they would not share the version. `footprint` covers all that were added. It is changed in place,
    so that what hundreds of operations touch is not copied hundreds of times.
    """

    def __init__(self, first: Footprint) -> None:
        self._touched, self._removed, self._files = set(first.touched), set(first.removed), dict(first.files)
        self._grows = False
        self.footprint = first

    def add(self, other: Footprint) -> None:
        """Adds what another operation of the version touches."""
        self._touched |= other.touched
        self._removed |= other.removed
        self._files.update(other.files)
        moves = self.footprint.moves_rows or other.moves_rows
        if not self._grows or moves != self.footprint.moves_rows:
            self._grows = True
            self.footprint = replace(
                self.footprint,
                touched=cast("frozenset[int]", self._touched),
                removed=cast("frozenset[int]", self._removed),
                files=self._files,
                rows=None,
                moves_rows=moves,
            )
