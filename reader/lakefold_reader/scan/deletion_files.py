"""Deletion files, looked at before pylance reads them.

pylance believes what a deletion file says of its own sizes and makes that much memory; where that much can't
be had, the process ends ("memory allocation of … bytes failed"), which nobody can catch. Offsets that the
fragment doesn't have it passes over in silence. So every file that a scan is going to read is decoded here
first, by the rules that the committer and the change feed hold it to.

A deletion file never changes, so each is looked at once in a process. Where a store waits for a network many
are asked for at one time.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.versions.source import open_source, read_state, read_step
from lakefold_reader.versions.stray_files import missing
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deleted_rows import place_of
from lakefold_table.lance.rows.deletions import decode_deletions
from lakefold_table.roots import below
from lakefold_table.storage.concurrently import together

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.versions.source import Source
    from lakefold_table.lance.state import LanceState

AT_ONE_TIME: Final = 32
MOST_KNOWN: Final = 2**18
"""So many files are remembered, by a number for each: some tens of megabytes."""
HINT: Final = "restore the file, or restore an older version of the table"

_NO_BASES: Final = Manifest()
_known: set[int] = set()


def forget() -> None:
    """Look at every file once more."""
    _known.clear()


class Deletions:
    """The deletion files of one version. `state`: the version, where it was read already.

    Each check raises `DamagedError` that names the file, `FileNotFoundError` where one is gone,
    `VersionExpiredError` where the version must be read for it and is gone.
    """

    def __init__(
        self, uri: str, version: int, options: Mapping[str, str], state: LanceState | None = None
    ) -> None:
        self._uri = uri
        self._version = version
        self._options = options
        self._given = state
        self._whole = False

    def check_all(self) -> None:
        """Look at those of all fragments."""
        if not self._whole:
            chunks = [one for one in self._state.fragments.chunks if one.tally.deletion_files]
            self.check(chain.from_iterable(one.decode() for one in chunks))
            self._whole = True

    def check_in(self, numbers: Collection[int]) -> None:
        """Look at those of the fragments with these ids."""
        if not self._whole and self._state.fragments.has_deletions:
            self.check(self._state.fragments.get(numbers).values())

    def check(self, fragments: Iterable[DataFragment]) -> None:
        """Look at those of these fragments, as the version has them."""
        if self._whole:
            return
        waiting: dict[int, tuple[str, DataFragment]] = {}
        for fragment in fragments:
            if not fragment.HasField("deletion_file"):
                continue
            place = self._place(fragment)
            file = fragment.deletion_file
            key = hash((self._uri, place, file.num_deleted_rows, fragment.physical_rows))
            if key not in _known:
                waiting[key] = place, fragment
        if not waiting:
            return
        if self._source.storage.cheap_size:
            for one in waiting.values():
                self._look(one)
        else:
            together(self._look, list(waiting.values()), AT_ONE_TIME)
        if len(_known) + len(waiting) > MOST_KNOWN:
            forget()
        _known.update(waiting)

    def _look(self, one: tuple[str, DataFragment]) -> None:
        place, fragment = one
        where = place if "://" in place or place.startswith("/") else below(self._uri, place)
        decode_deletions(fragment.deletion_file, self._source.content(place), fragment.physical_rows, where)

    def _place(self, fragment: DataFragment) -> str:
        file = fragment.deletion_file
        place = place_of(self._head if file.HasField("base_id") else _NO_BASES, fragment.id, file)
        if not place:
            message = f"the kind or the base of the deletion file of fragment {fragment.id} isn't known"
            raise DamagedError(message, where=self._uri, hint=HINT)
        return place

    @cached_property
    def _source(self) -> Source:
        return open_source(self._uri, self._options)

    @cached_property
    def _state(self) -> LanceState:
        return read_state(self._source, self._version) if self._given is None else self._given

    @cached_property
    def _head(self) -> Manifest:
        """The manifest, whose bases tell where a file lies."""
        if self._given is not None or "_state" in self.__dict__:
            return self._state.head
        step = read_step(self._source, self._version, whole=True)
        if step is None or step.head is None:
            raise missing(self._source, self._version)
        return step.head
