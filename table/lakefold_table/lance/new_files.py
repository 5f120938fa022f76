"""The data files that the entries of a group add, compared with those of the table's fragments.

A data file may belong to one live fragment only (Lance fact 4.7). The files of a group are looked up together
before it is folded; after that the check of an Append with a single file costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_table.lance.manifests.live_files import (
    Level,
    candidates_in,
    file_key,
    hashes_of,
    sorted_level,
)
from lakefold_table.lance.proposal import proposal_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Entry
    from lakefold_table.lance.manifests.live_files import BasePrefixes, LiveFiles

    FragmentOf = Callable[[int], DataFragment | None]


def new_file_keys(entry: Entry) -> Sequence[str]:
    """Returns the keys of data files that an entry adds: of most entries, and of most of these all files."""
    proposal = proposal_of(entry)
    if proposal.plain is not None:
        return (proposal.plain.key,)
    return [
        file.path
        for fragment in proposal.transaction.update.new_fragments
        for file in fragment.files
        if not file.HasField("base_id")
    ]


def may_be_known_by_files(entry: Entry) -> bool:
    """Returns whether a repeated entry can only be recognised by its files, once its uuid is forgotten."""
    return not entry.app_id or entry.batch_id is None


def read_of(entry: Entry) -> int:
    """Returns the version that an entry was built on."""
    return proposal_of(entry).read_version


class NewFiles:
    """The data files of the version that is being built. A file is named by its key (`file_key`).

    `live`: the files of the version before. `fragment_of` returns a fragment as the entries before left it,
    or None if it is gone.
    """

    def __init__(self, live: LiveFiles, fragment_of: FragmentOf) -> None:
        self._live = live
        self._fragment_of = fragment_of
        self._looked_up: set[str] = set()
        self._candidates: dict[str, list[int]] = {}
        self._added: dict[str, int] = {}
        self._more: list[Level] = []

    def look_up(self, keys: Collection[str]) -> None:
        """Finds out about all of these files at once."""
        unknown = [key for key in keys if key not in self._looked_up]
        if not unknown:
            return
        for index, number in self._matches(hashes_of(unknown)):
            self._candidates.setdefault(unknown[index], []).append(number)
        self._looked_up.update(unknown)

    def is_new(self, key: str) -> bool:
        """Returns whether no fragment has this file.

        False may also mean that `owner` has to be called to find out.
        """
        if key not in self._looked_up:
            self.look_up([key])
        return key not in self._candidates and key not in self._added

    def owner(self, key: str, prefixes: BasePrefixes) -> int | None:
        """Returns the id of the fragment that has this file, or None."""
        if self.is_new(key):
            return None
        added = self._added.get(key)
        if added is not None:
            return added
        candidates = self._candidates[key]
        return next((number for number in candidates if self._has(number, key, prefixes)), None)

    def owner_among(
        self, hashes: array[int], key_of: Callable[[int], str], prefixes: BasePrefixes
    ) -> tuple[str, int] | None:
        """Returns the first of many files that a fragment has, and the fragment's id, or None.

        `key_of`: by index.
        """
        matches = sorted(self._matches(np.frombuffer(hashes, np.int64)))
        for index, number in matches:
            if self._has(number, key_of(index), prefixes):
                return key_of(index), number
        return None

    def add(self, key: str, number: int) -> None:
        """Records that a fragment of this id has the file from now on."""
        self._added[key] = number

    def add_many(self, hashes: array[int], ids: NDArray[np.int64]) -> None:
        """Records that fragments of these ids have the files of these hashes from now on."""
        self._more.append(sorted_level(np.frombuffer(hashes, np.int64), ids.astype(np.uint32)))
        self._looked_up.clear()
        self._candidates.clear()

    @property
    def levels(self) -> Sequence[Level]:
        """All files that were added."""
        if not self._added:
            return self._more
        ids = np.fromiter(self._added.values(), np.uint32, len(self._added))
        return [*self._more, sorted_level(hashes_of(self._added), ids)]

    def _matches(self, hashes: NDArray[np.int64]) -> list[tuple[int, int]]:
        return [*self._live.candidates(hashes), *candidates_in(self._more, hashes)]

    def _has(self, number: int, key: str, prefixes: Mapping[int, str]) -> bool:
        fragment = self._fragment_of(number)
        return fragment is not None and any(file_key(file, prefixes) == key for file in fragment.files)
