"""Finalizes versions that are committed but don't have their final name yet.

The manifest of such a version has a name that no other writer uses, and the manifest store names it.
Finishing means to put the same bytes under the final name, to record that name, and to remove the first
object. Any client may do it, and doing it twice, or in several processes at once, does no harm.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import DamagedError, InvalidError, RetryError
from lakefold_table.manifest_stores.base import MANIFESTS
from lakefold_table.own_process import ProcessLock
from lakefold_table.roots import below

if TYPE_CHECKING:
    from lakefold_table.manifest_stores.base import ManifestRecord, ManifestStore
    from lakefold_table.storage.base import Storage

_STAGED: Final = f"{MANIFESTS.suffix}-"
"""The text between a manifest's name and the part that no other writer uses."""


@dataclass(frozen=True, slots=True)
class VersionPaths:
    """A version: its manifest's path below the root, and its table's path from the bucket's root on."""

    path: str
    base: str
    version: int


class VersionFinalizer:
    """Finalizes versions of the table at `base`, and of its branches, whose objects are in `objects`."""

    def __init__(self, base: str, objects: Storage, manifests: ManifestStore) -> None:
        self._base = base
        self._objects = objects
        self._manifests = manifests

    def slot(self, path: str) -> VersionPaths | None:
        """Returns the version whose manifest a path below the root names, or None for any other object."""
        folder, _, name = path.rpartition("/")
        version = MANIFESTS.version_of(name)
        base = None if version is None else self.base_of(folder)
        return None if version is None or base is None else VersionPaths(path, base, version)

    def base_of(self, folder: str) -> str | None:
        """Returns the table, from the bucket's root on, whose versions are in this folder, or None."""
        table, _, last = folder.rpartition("/")
        return f"{self._base}/{table}".rstrip("/") if last == MANIFESTS.folder else None

    def from_bucket(self, path: str) -> str:
        """Returns the path from the bucket's root on."""
        return f"{self._base}/{path}"

    def finalize(self, base: str, recorded: ManifestRecord) -> None:
        """Gives a committed version its final name.

        Raises `DamagedError` if its manifest is gone or isn't what was recorded, `RetryError` if these
        credentials may not do it: the client that put the version may be about to finalize it.
        """
        slot, staged = self._paths(base, recorded)
        try:
            self._move(slot, staged, recorded)
        except InvalidError as error:
            raise RetryError(
                f"version {slot.version} is committed and doesn't have its final name yet: {error.message}",
                where=self._where(slot.path),
                hint="try again; if it stays so, open the table with credentials that may write",
            ) from error

    def record_final(self, slot: VersionPaths, recorded: ManifestRecord) -> None:
        """Does the last two steps, once the manifest has its final name.

        A version that is no longer recorded (its table was dropped) is a plain object from now on.
        """
        self._manifests.put_if_present(slot.base, replace(recorded, path=self.from_bucket(slot.path)))
        self._objects.delete(self._from_root(recorded.path))

    def _move(self, slot: VersionPaths, staged: str, recorded: ManifestRecord) -> None:
        try:
            data = self._objects.get(staged)
        except FileNotFoundError:
            size = self._moved_by_others(slot, staged)
        else:
            size = len(data)
            _check_size(recorded, size, self._where(staged))
            self._objects.put(slot.path, [data])
        if size is not None:
            _check_size(recorded, size, self._where(slot.path))
            self.record_final(slot, replace(recorded, size=size))

    def _moved_by_others(self, slot: VersionPaths, staged: str) -> int | None:
        """Returns the size of the manifest under its final name, or None if it was removed since."""
        size = self._objects.size(slot.path)
        if size is None:
            now = self._manifests.get(slot.base, slot.version)
            if now is not None and not now.is_final:
                raise DamagedError(
                    f"version {slot.version} was committed, but its manifest is gone",
                    where=self._where(staged),
                    hint="restore the object, or remove the version's item from the manifest store",
                )
        return size

    def _paths(self, base: str, recorded: ManifestRecord) -> tuple[VersionPaths, str]:
        """Returns a version's final path and its present path, both below the root."""
        final, mark, own = recorded.path.rpartition(_STAGED)
        path = self._from_root(final + MANIFESTS.suffix)
        slot = self.slot(path) if mark and own and "/" not in own else None
        if slot is None or (slot.base, slot.version) != (base, recorded.version):
            raise DamagedError(
                f"version {recorded.version} of {base} can't have its manifest at {recorded.path!a}",
                where=self._objects.uri,
                hint="correct the version's item in the manifest store",
            )
        return slot, self._from_root(recorded.path)

    def _from_root(self, path: str) -> str:
        return path.removeprefix(f"{self._base}/")

    def _where(self, path: str) -> str:
        return below(self._objects.uri, path)


class IncompleteUploads:
    """What attempts of this process left, until it is known what became of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._staged: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._finalized: dict[str, int] = {}

    def keep(self, slot: VersionPaths, staged: str) -> None:
        """Remembers an object that the manifest store may name for the version, now or later."""
        with self._lock.current:
            self._staged[slot.base, slot.version].add(staged)

    def drop(self, slot: VersionPaths, staged: str) -> None:
        """Forgets an object that was removed."""
        with self._lock.current:
            self._staged[slot.base, slot.version].discard(staged)

    def all(self) -> list[tuple[tuple[str, int], frozenset[str]]]:
        """Returns what is remembered, by table and version."""
        with self._lock.current:
            return [(key, frozenset(paths)) for key, paths in self._staged.items() if paths]

    def forget(self, base: str, version: int) -> None:
        """Forgets all attempts at a version."""
        with self._lock.current:
            self._staged.pop((base, version), None)

    def finalized(self, slot: VersionPaths) -> None:
        """Remembers that a version is finalized."""
        with self._lock.current:
            self._finalized[slot.base] = slot.version

    def follows_finalized(self, slot: VersionPaths) -> bool:
        """Returns whether the version before this is known to be finalized."""
        return self._finalized.get(slot.base) == slot.version - 1


def _check_size(recorded: ManifestRecord, size: int, where: str) -> None:
    if recorded.size is not None and recorded.size != size:
        raise DamagedError(
            f"the manifest of version {recorded.version} has {size} bytes, but {recorded.size} were recorded",
            where=where,
            hint="some other program wrote it: restore the object, or correct the manifest store's item",
        )
