"""A version between its commit point and its final place, whoever committed it; what attempts leave behind.

Its manifest lies under a name that nobody else has, and the manifest store names that. To finish it is to
put the same bytes where they stay, to record that, and to remove the first object. It does no harm to do it
twice, or in many places at one time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import DamagedError, InvalidError, RetryError
from lakefold_table.lance.manifests.naming import SUFFIX, VERSIONS, Scheme, parse_detached
from lakefold_table.roots import below

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage
    from lakefold_table.storage.manifest_stores import ManifestStore, Recorded

_STAGED: Final = f"{SUFFIX}-"
"""What stands between a manifest's name and the part that nobody else has."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one version: its manifest's path below the root, its table from the bucket's root on."""

    path: str
    base: str
    version: int


class Finishing:
    """Finishes versions of the table at `base`, and of its branches, whose objects lie in `objects`."""

    def __init__(self, base: str, objects: Storage, manifests: ManifestStore) -> None:
        self._base = base
        self._objects = objects
        self._manifests = manifests

    def slot(self, path: str) -> Slot | None:
        """The version whose manifest a path below the root names; None for any other object."""
        folder, _, name = path.rpartition("/")
        version = _version_of(name)
        base = None if version is None else self.base_of(folder)
        return None if version is None or base is None else Slot(path, base, version)

    def base_of(self, folder: str) -> str | None:
        """The table, from the bucket's root on, whose versions lie in this folder below the root."""
        table, _, last = folder.rpartition("/")
        return f"{self._base}/{table}".rstrip("/") if last == VERSIONS else None

    def from_bucket(self, path: str) -> str:
        """The path from the bucket's root on."""
        return f"{self._base}/{path}"

    def finish(self, base: str, recorded: Recorded) -> None:
        """Bring a version that is committed to its final place.

        Raises `DamagedError` where its manifest is gone or isn't what was recorded, `RetryError` where it
        can't be brought by these credentials: who put it may be about to finish it.
        """
        slot, staged = self._places(base, recorded)
        try:
            self._bring(slot, staged, recorded)
        except InvalidError as error:
            raise RetryError(
                f"version {slot.version} is committed and not yet in its place: {error.message}",
                where=self._where(slot.path),
                hint="try again; if it stays so, open the table with credentials that may write",
            ) from error

    def record_final(self, slot: Slot, recorded: Recorded) -> None:
        """The last two steps, once the manifest is in its place.

        A version that isn't recorded any more (its table was dropped) is a plain object from now on.
        """
        self._manifests.put_if_there(slot.base, replace(recorded, path=self.from_bucket(slot.path)))
        self._objects.delete(self._from_root(recorded.path))

    def _bring(self, slot: Slot, staged: str, recorded: Recorded) -> None:
        try:
            data = self._objects.get(staged)
        except FileNotFoundError:
            size = self._brought_by_others(slot, staged)
        else:
            size = len(data)
            _check_size(recorded, size, self._where(staged))
            self._objects.put(slot.path, [data])
        if size is not None:
            _check_size(recorded, size, self._where(slot.path))
            self.record_final(slot, replace(recorded, size=size))

    def _brought_by_others(self, slot: Slot, staged: str) -> int | None:
        """The size of the manifest in its place; None where it was brought there and removed since."""
        size = self._objects.size(slot.path)
        if size is None:
            now = self._manifests.get(slot.base, slot.version)
            if now is not None and not now.is_final:
                raise DamagedError(
                    f"version {slot.version} was committed, but its manifest is gone",
                    where=self._where(staged),
                    hint="bring the object back, or take the version's item out of the manifest store",
                )
        return size

    def _places(self, base: str, recorded: Recorded) -> tuple[Slot, str]:
        """Where a version's manifest is to come, and where it lies now, below the root."""
        final, mark, own = recorded.path.rpartition(_STAGED)
        path = self._from_root(final + SUFFIX)
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


class Leftovers:
    """What attempts of this process left, until it is known what became of them. For many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._staged: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._finished: dict[str, int] = {}

    def keep(self, slot: Slot, staged: str) -> None:
        """Note an object that may be what the manifest store names for the version, or will."""
        with self._lock:
            self._staged[slot.base, slot.version].add(staged)

    def drop(self, slot: Slot, staged: str) -> None:
        """That object is gone."""
        with self._lock:
            self._staged[slot.base, slot.version].discard(staged)

    def all(self) -> list[tuple[tuple[str, int], frozenset[str]]]:
        """What was noted, by table and version."""
        with self._lock:
            return [(key, frozenset(paths)) for key, paths in self._staged.items() if paths]

    def forget(self, base: str, version: int) -> None:
        """Nothing is left of a version's attempts."""
        with self._lock:
            self._staged.pop((base, version), None)

    def finished(self, slot: Slot) -> None:
        """Note that a version needs no finishing."""
        with self._lock:
            self._finished[slot.base] = slot.version

    def follows_finished(self, slot: Slot) -> bool:
        """Whether the version before this one is known to need no finishing."""
        return self._finished.get(slot.base) == slot.version - 1


def _check_size(recorded: Recorded, size: int, where: str) -> None:
    if recorded.size is not None and recorded.size != size:
        raise DamagedError(
            f"the manifest of version {recorded.version} has {size} bytes, {recorded.size} were recorded",
            where=where,
            hint="some other program wrote it: restore the object, or correct the manifest store's item",
        )


def _version_of(name: str) -> int | None:
    """The version that a manifest's name stands for, a detached one's too; None for any other name."""
    found = (scheme.parse(name) for scheme in Scheme)
    number = next((one for one in found if one is not None), None)
    return parse_detached(name) if number is None else number
