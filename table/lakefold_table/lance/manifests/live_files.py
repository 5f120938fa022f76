"""Which fragments of a version have a data file of a given name, found without decoding a manifest.

If a second fragment names a data file, its rows are in the table twice (Lance fact 4.7), so each commit has
to know the files of all live fragments. Their names take a hundred bytes each; here a file takes 12: a 64-bit
hash of its key and the id of its fragment. A hash only says which fragments to check. Whether the fragment is
live and has the file is read from the fragment itself, so two keys with the same hash, or a fragment that is
gone, cost a check and change no answer. That is also why Python's own hash is good enough, whose seed differs
between processes.

The pairs are stored in sorted arrays, each at least twice as long as the next (a log-structured merge): a
version adds a short array and shares the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFragment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import BasePath, DataFile
    from lakefold_table.lance.manifests.fragments import Fragments

BYTES_OF_FILE = 12
"""Bytes of memory that a file takes."""
SPARE = 64 * 1024
"""How many pairs of removed files may be kept in addition to as many as there are fragments."""

BasePrefixes = Mapping[int, str]
"""By the id of each base of a table what comes before the names of the files in it."""


class Level(NamedTuple):
    """Hashes, ascending, and the fragment of each."""

    hashes: NDArray[np.int64]
    ids: NDArray[np.uint32]


@dataclass(slots=True)
class LiveFiles:
    """The data files of the fragments of a version. Its answers never change.

    The arrays are built when they are first needed: readers never need them. `_fragments` and `_prefixes`:
    what they are built from.
    """

    _fragments: Fragments
    _prefixes: BasePrefixes
    _levels: tuple[Level, ...] | None = field(default=None, repr=False)
    _built: int = 0

    @classmethod
    def of(cls, fragments: Fragments, bases: Iterable[BasePath]) -> LiveFiles:
        """Returns the data files of these fragments. `bases`: those of the table."""
        return cls(fragments, prefixes_of(bases))

    def candidates(self, hashes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Yields for each known hash its index, and the id of a fragment that may have such a file.

        A fragment that has the file is always among them.
        """
        return candidates_in(self._known(), hashes)

    def followed(
        self, fragments: Fragments, bases: Iterable[BasePath], added: Sequence[Level] = ()
    ) -> LiveFiles:
        """Returns the data files of the next version. `added`: those that it has and this version doesn't.

        Files that it no longer has may stay in the arrays; they are dropped when there are as many as live
        ones.
        """
        prefixes = prefixes_of(bases)
        following = LiveFiles(fragments, prefixes)
        unchanged = all(prefixes.get(number) == prefix for number, prefix in self._prefixes.items())
        if self._levels is None or not unchanged:
            return following
        levels, count = self._levels, self._built
        for level in added:
            levels = _with(levels, level)
        if sum(level.hashes.size for level in levels) <= 2 * max(fragments.count, count) + SPARE:
            following._levels, following._built = levels, count
        return following

    def followed_by_foreign(
        self, before: Fragments, after: Fragments, bases: Iterable[BasePath]
    ) -> LiveFiles:
        """Returns the data files of a version of another client. Only fragments that changed are decoded."""
        if self._levels is None:
            return LiveFiles.of(after, bases)
        bases = list(bases)
        prefixes = prefixes_of(bases)
        changed = map(DataFragment.FromString, after.unlike(before))
        return self.followed(after, bases, [level_of(changed, prefixes)])

    def _known(self) -> tuple[Level, ...]:
        levels = self._levels
        if levels is None:
            level = level_of(iter(self._fragments), self._prefixes)
            levels = self._levels = (level,)
            self._built = level.hashes.size
        return levels


def candidates_in(levels: Iterable[Level], hashes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Returns what `LiveFiles.candidates` does, from these levels alone."""
    for level in levels:
        if not level.hashes.size:
            continue
        starts = np.searchsorted(level.hashes, hashes)
        # A hash that isn't in the array is given the index of its successor, or of the end.
        matches = np.flatnonzero(np.take(level.hashes, starts, mode="clip") == hashes)
        for index in matches.tolist():
            at = int(starts[index])
            while at < level.hashes.size and level.hashes[at] == hashes[index]:
                yield index, int(level.ids[at])
                at += 1


def prefixes_of(bases: Iterable[BasePath]) -> BasePrefixes:
    """Returns what comes before the names of files in each of these bases."""
    return {base.id: f"{base.path}/data/" if base.is_dataset_root else f"{base.path}/" for base in bases}


def file_key(file: DataFile, prefixes: BasePrefixes) -> str:
    """Returns what distinguishes a data file from the table's others: its name, or its path in a base."""
    if not file.HasField("base_id"):
        return file.path
    return prefixes.get(file.base_id, f"base {file.base_id}/") + file.path


def hashes_of(files: Iterable[str]) -> NDArray[np.int64]:
    """Returns the hash of each key, as `LiveFiles.candidates` needs it."""
    return np.frombuffer(array("q", map(hash, files)), np.int64)


def level_of(fragments: Iterable[DataFragment], prefixes: BasePrefixes) -> Level:
    """Returns the data files of these fragments as a level."""
    ids = array("I")
    hashes = hashes_of(_files_of(fragments, prefixes, ids))
    return sorted_level(hashes, np.frombuffer(ids, np.uint32))


def _files_of(fragments: Iterable[DataFragment], prefixes: BasePrefixes, ids: array[int]) -> Iterator[str]:
    """Yields the key of each data file in turn; appends the id of its fragment to `ids`."""
    for fragment in fragments:
        number = fragment.id
        for file in fragment.files:
            ids.append(number)
            yield file_key(file, prefixes) if file.HasField("base_id") else file.path


def sorted_level(hashes: NDArray[np.int64], ids: NDArray[np.uint32]) -> Level:
    """Returns a level of these pairs, sorted."""
    order = np.argsort(hashes, kind="stable")
    return Level(hashes[order], ids[order])


def _with(levels: tuple[Level, ...], added: Level) -> tuple[Level, ...]:
    """Returns the levels with another; those that are no longer twice as long as the next are merged."""
    if not added.hashes.size:
        return levels
    merged = list(levels)
    while merged and merged[-1].hashes.size < 2 * added.hashes.size:
        last = merged.pop()
        added = sorted_level(
            np.concatenate([last.hashes, added.hashes]), np.concatenate([last.ids, added.ids])
        )
    return (*merged, added)
