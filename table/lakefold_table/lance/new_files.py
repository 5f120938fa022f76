"""The data files that the entries of a group bring, held against those of the table's fragments.

A data file may be that of one live fragment only (Lance fact 4.7). The files of a group are
looked up together before it is folded; an Append of one file then asks for one name, which costs next to
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_table.lance.manifests.live_files import (
    Level,
    candidates_in,
    hashes_of,
    place_of_file,
    sorted_level,
)
from lakefold_table.lance.proposal import proposal_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Entry
    from lakefold_table.lance.manifests.live_files import LiveFiles, Places

    FragmentOf = Callable[[int], DataFragment | None]


def new_places(entry: Entry) -> Sequence[str]:
    """The places of data files that an entry brings for new fragments: of most entries, and all of most."""
    proposal = proposal_of(entry)
    if proposal.plain is not None:
        return (proposal.plain.place,)
    return [
        file.path
        for one in proposal.transaction.update.new_fragments
        for file in one.files
        if not file.HasField("base_id")
    ]


def may_be_known_by_files(entry: Entry) -> bool:
    """Whether only its files tell an entry that is repeated, once its uuid is forgotten."""
    return not entry.app_id or entry.batch_id is None


def read_of(entry: Entry) -> int:
    """The version that an entry was built on."""
    return proposal_of(entry).read_version


class NewFiles:
    """The data files of a version in the making. A file is named by its place (`place_of_file`).

    `live`: the files of the version before. `fragment_of`: a fragment as the entries so far left it, None if
    it is gone.
    """

    def __init__(self, live: LiveFiles, fragment_of: FragmentOf) -> None:
        self._live = live
        self._fragment_of = fragment_of
        self._asked: set[str] = set()
        self._candidates: dict[str, list[int]] = {}
        self._added: dict[str, int] = {}
        self._more: list[Level] = []

    def look_up(self, places: Collection[str]) -> None:
        """Finds out about all of these files together."""
        unknown = [one for one in places if one not in self._asked]
        if not unknown:
            return
        for index, number in self._found(hashes_of(unknown)):
            self._candidates.setdefault(unknown[index], []).append(number)
        self._asked.update(unknown)

    def is_new(self, place: str) -> bool:
        """Whether no fragment has this file; False may also mean that it has to be looked at closely."""
        if place not in self._asked:
            self.look_up([place])
        return place not in self._candidates and place not in self._added

    def owner(self, place: str, places: Places) -> int | None:
        """The id of the fragment that has this file, None if there is none."""
        if self.is_new(place):
            return None
        added = self._added.get(place)
        if added is not None:
            return added
        wanted = self._candidates[place]
        return next((number for number in wanted if self._has(number, place, places)), None)

    def owner_among(
        self, hashes: array[int], place_of: Callable[[int], str], places: Places
    ) -> tuple[str, int] | None:
        """The first of many files that a fragment has, with that fragment's id; `place_of`: by the index."""
        known = sorted(self._found(np.frombuffer(hashes, np.int64)))
        for index, number in known:
            if self._has(number, place_of(index), places):
                return place_of(index), number
        return None

    def add(self, place: str, number: int) -> None:
        """A fragment of this id has the file from now on."""
        self._added[place] = number

    def add_many(self, hashes: array[int], ids: NDArray[np.int64]) -> None:
        """Fragments of these ids have the files of these hashes from now on."""
        self._more.append(sorted_level(np.frombuffer(hashes, np.int64), ids.astype(np.uint32)))
        self._asked.clear()
        self._candidates.clear()

    @property
    def levels(self) -> Sequence[Level]:
        """All files that were added."""
        if not self._added:
            return self._more
        ids = np.fromiter(self._added.values(), np.uint32, len(self._added))
        return [*self._more, sorted_level(hashes_of(self._added), ids)]

    def _found(self, hashes: NDArray[np.int64]) -> list[tuple[int, int]]:
        return [*self._live.candidates(hashes), *candidates_in(self._more, hashes)]

    def _has(self, number: int, place: str, places: Mapping[int, str]) -> bool:
        fragment = self._fragment_of(number)
        return fragment is not None and any(place_of_file(file, places) == place for file in fragment.files)
