"""Checks deletion files before pylance reads them.

pylance trusts the sizes that a deletion file records and allocates that much memory. If the allocation fails,
the process ends ("memory allocation of … bytes failed"), and no caller can catch that. pylance silently
ignores offsets that the fragment doesn't have. So every file that a scan is going to read is decoded here
first, by the rules that the committer and the change feed use.

A deletion file never changes, so each is checked once in a process. If the store is reached over a network,
many files are requested at the same time.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.lance.versions import head_of, read_state
from lakefold_reader.versions.late_versions import missing
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deleted_rows import deletion_location
from lakefold_table.lance.rows.deletion_arrays import HINT
from lakefold_table.lance.rows.deletions import decode_deletions
from lakefold_table.roots import below
from lakefold_table.storage.concurrently import together

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.state import LanceState

AT_ONE_TIME: Final = 32
MOST_KNOWN: Final = 2**18
"""The most files that are remembered, by a number for each: some tens of megabytes."""

_NO_BASES: Final = Manifest()
_known: set[int] = set()


def forget() -> None:
    """Forgets which files were checked."""
    _known.clear()


class DeletionFiles:
    """The deletion files of a version. `state`: the version, if it was read already.

    Each check raises `DamagedError` that names the file, `FileNotFoundError` if a file is gone, and
    `VersionExpiredError` if the version must be read for it and is gone.
    """

    def __init__(self, source: Source, version: int, state: LanceState | None = None) -> None:
        self._source = source
        self._version = version
        self._given = state
        self._whole = False

    def check_all(self) -> None:
        """Checks the deletion files of all fragments."""
        if not self._whole:
            chunks = [chunk for chunk in self._state.fragments.chunks if chunk.tally.deletion_files]
            self.check(chain.from_iterable(chunk.decode() for chunk in chunks))
            self._whole = True

    def check_in(self, numbers: Collection[int]) -> None:
        """Checks the deletion files of the fragments with these ids."""
        if not self._whole and self._state.fragments.has_deletions:
            self.check(self._state.fragments.get(numbers).values())

    def check(self, fragments: Iterable[DataFragment]) -> None:
        """Checks the deletion files of these fragments, as the version has them."""
        if self._whole:
            return
        waiting: dict[int, tuple[str, DataFragment]] = {}
        for fragment in fragments:
            if not fragment.HasField("deletion_file"):
                continue
            path = self._path(fragment)
            file = fragment.deletion_file
            key = hash((self._source.uri, path, file.num_deleted_rows, fragment.physical_rows))
            if key not in _known:
                waiting[key] = path, fragment
        if not waiting:
            return
        if self._source.storage.cheap_size:
            for entry in waiting.values():
                self._check_file(entry)
        else:
            together(self._check_file, list(waiting.values()), AT_ONE_TIME)
        if len(_known) + len(waiting) > MOST_KNOWN:
            forget()
        _known.update(waiting)

    def _check_file(self, entry: tuple[str, DataFragment]) -> None:
        path, fragment = entry
        where = path if "://" in path or path.startswith("/") else below(self._source.uri, path)
        decode_deletions(fragment.deletion_file, self._source.content(path), fragment.physical_rows, where)

    def _path(self, fragment: DataFragment) -> str:
        file = fragment.deletion_file
        path = deletion_location(self._head if file.HasField("base_id") else _NO_BASES, fragment.id, file)
        if not path:
            message = f"the kind or the base of the deletion file of fragment {fragment.id} isn't known"
            raise DamagedError(message, where=self._source.uri, hint=HINT)
        return path

    @cached_property
    def _state(self) -> LanceState:
        return read_state(self._source, self._version) if self._given is None else self._given

    @cached_property
    def _head(self) -> Manifest:
        """The manifest, which lists the bases that files may be in."""
        if self._given is not None or "_state" in self.__dict__:
            return self._state.head
        summary = self._source.summary(self._version, whole=True)
        head = None if summary is None else head_of(summary)
        if head is None:
            raise missing(self._source, self._version)
        return head
