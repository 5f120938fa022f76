"""Which fragments of a version have a data file of a given name, without a manifest being decoded for it.

If a second fragment names a data file, its rows are in the table twice (Lance fact 4.7), so
each commit has to know the files of all live fragments. Their names take a hundred bytes each; here a file
takes 12: a 64-bit hash of its place and the id of its fragment. A hash only says where to look. Whether the
fragment is live and has the file is read from the fragment itself, so two places with one hash, or a fragment
that is gone, cost a look and change no answer. That is also why Python's own hash will do, whose seed is
another in each process.

The pairs lie in sorted arrays, each at least twice as long as the next (a log-structured merge): a version
adds a short array and shares the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lakefold_protos.lance.table_pb2 import DataFragment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import BasePath, DataFile
    from lakefold_table.lance.manifests.fragments import Fragments

BYTES_OF_FILE = 12
"""What a file takes in memory."""
SPARE = 64 * 1024
"""So many pairs of files that are gone may be kept besides as many as there are fragments."""

Places = Mapping[int, str]
"""For each base of a table what stands in front of the names of the files that lie there."""


class Level(NamedTuple):
    """Hashes, ascending, and the fragment of each."""

    hashes: NDArray[np.int64]
    ids: NDArray[np.uint32]


@dataclass(slots=True)
class LiveFiles:
    """The data files of the fragments of one version. Its answers never change.

    It is built when it is first asked: readers never ask. `_fragments` and `_places`: what it is built from.
    """

    _fragments: Fragments
    _places: Places
    _levels: tuple[Level, ...] | None = field(default=None, repr=False)
    _built: int = 0

    @classmethod
    def of(cls, fragments: Fragments, bases: Iterable[BasePath]) -> LiveFiles:
        """The data files of these fragments. `bases`: those of the table."""
        return cls(fragments, places_of(bases))

    @property
    def places(self) -> Places:
        """What stands in front of the names of files that lie under a base."""
        return self._places

    @property
    def memory_bytes(self) -> int:
        """How many bytes the arrays take."""
        return sum(one.hashes.nbytes + one.ids.nbytes for one in self._levels or ())

    def candidates(self, hashes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Where a hash is known: its index, and the id of a fragment that may have such a file.

        A fragment that has it is always among them.
        """
        return candidates_in(self._known(), hashes)

    def followed(
        self, fragments: Fragments, bases: Iterable[BasePath], added: Sequence[Level] = ()
    ) -> LiveFiles:
        """The data files of the next version. `added`: those that it has and this one doesn't.

        Files that it has no more may stay known; they are dropped when there are as many as live ones.
        """
        places = places_of(bases)
        next_one = LiveFiles(fragments, places)
        kept = all(places.get(number) == place for number, place in self._places.items())
        if self._levels is None or not kept:
            return next_one
        levels, count = self._levels, self._built
        for one in added:
            levels = _with(levels, one)
        if sum(one.hashes.size for one in levels) <= 2 * max(fragments.count, count) + SPARE:
            next_one._levels, next_one._built = levels, count
        return next_one

    def followed_by_foreign(
        self, before: Fragments, after: Fragments, bases: Iterable[BasePath]
    ) -> LiveFiles:
        """The data files of a version that another client made; only fragments that changed are decoded."""
        if self._levels is None:
            return LiveFiles.of(after, bases)
        bases = list(bases)
        places = places_of(bases)
        changed = map(DataFragment.FromString, after.unlike(before))
        return self.followed(after, bases, [level_of(changed, places)])

    def _known(self) -> tuple[Level, ...]:
        levels = self._levels
        if levels is None:
            level = level_of(iter(self._fragments), self._places)
            levels = self._levels = (level,)
            self._built = level.hashes.size
        return levels


def candidates_in(levels: Iterable[Level], hashes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """As `LiveFiles.candidates`, among these levels."""
    for level in levels:
        if not level.hashes.size:
            continue
        starts = np.searchsorted(level.hashes, hashes)
        # A hash that isn't there points at its successor, or at the end.
        there = np.flatnonzero(np.take(level.hashes, starts, mode="clip") == hashes)
        for index in there.tolist():
            at = int(starts[index])
            while at < level.hashes.size and level.hashes[at] == hashes[index]:
                yield index, int(level.ids[at])
                at += 1


def places_of(bases: Iterable[BasePath]) -> Places:
    """What stands in front of the names of files that lie under each of these bases."""
    return {base.id: f"{base.path}/data/" if base.is_dataset_root else f"{base.path}/" for base in bases}


def place_of_file(file: DataFile, places: Places) -> str:
    """What tells a data file from all others of the table: its name, below a base the whole path."""
    if not file.HasField("base_id"):
        return file.path
    return places.get(file.base_id, f"base {file.base_id}/") + file.path


def hashes_of(files: Iterable[str]) -> NDArray[np.int64]:
    """The hash of each place, as `LiveFiles` asks for it."""
    return np.frombuffer(array("q", map(hash, files)), np.int64)


def level_of(fragments: Iterable[DataFragment], places: Places) -> Level:
    """The data files of these fragments."""
    ids = array("I")
    hashes = hashes_of(_files_of(fragments, places, ids))
    return sorted_level(hashes, np.frombuffer(ids, np.uint32))


def _files_of(fragments: Iterable[DataFragment], places: Places, ids: array[int]) -> Iterator[str]:
    """The place of each data file, one after the other; the id of its fragment goes to `ids`."""
    for one in fragments:
        number = one.id
        for file in one.files:
            ids.append(number)
            yield place_of_file(file, places) if file.HasField("base_id") else file.path


def sorted_level(hashes: NDArray[np.int64], ids: NDArray[np.uint32]) -> Level:
    """A level of these pairs."""
    order = np.argsort(hashes, kind="stable")
    return Level(hashes[order], ids[order])


def _with(levels: tuple[Level, ...], added: Level) -> tuple[Level, ...]:
    """The levels with one more; those that are no longer twice as long as the next are merged."""
    if not added.hashes.size:
        return levels
    kept = list(levels)
    while kept and kept[-1].hashes.size < 2 * added.hashes.size:
        last = kept.pop()
        added = sorted_level(
            np.concatenate([last.hashes, added.hashes]), np.concatenate([last.ids, added.ids])
        )
    return (*kept, added)
