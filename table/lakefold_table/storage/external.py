"""Versions whose one commit point is in another store: a manifest store says which manifest is which version.

For object stores that can't put an object only where there is none. The order is the one that Lance clients
follow (Lance fact 12.2), so that each goes on with what the other left, wherever that one stopped:

1. put the manifest under a name that nobody else has, `NAME.manifest-UUID`;
2. record that name for the version in the manifest store, unless the version is recorded: *the commit point*;
3. put the same bytes as `NAME.manifest`, where those look who know nothing of the manifest store;
4. record `NAME.manifest` in place of the first name;
5. remove the object with the first name.

From 2 on the version exists, and whoever meets it before 4 finishes it (`staged`). A version that the
manifest store doesn't know is what its plain object says: a table may have been kept without one before.

"Stored" is answered when all five are done. Where one of the last three fails, the version is there and yet
the put is in doubt, as if its answer had been lost: reading back settles that. What was left undone is done
before the next version is put.
"""

from __future__ import annotations

import uuid
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from lakefold_table.errors import InvalidError, LakefoldError, PlaceError, RetryError
from lakefold_table.lance.manifests.naming import VERSIONS, is_detached
from lakefold_table.storage.base import (
    BeginsPuts,
    DoubtfulPutError,
    ListsAll,
    ListsFolders,
    ListsInOrder,
    Put,
    PutsTogether,
    ReplacesKnown,
)
from lakefold_table.storage.manifest_stores import Recorded
from lakefold_table.storage.paths import check_folder, check_new_path, check_path
from lakefold_table.storage.staged_manifests import Finishing, Leftovers
from lakefold_table.uri import place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer, Listed, Storage
    from lakefold_table.storage.manifest_stores import ManifestStore
    from lakefold_table.storage.staged_manifests import Slot

Answer = TypeVar("Answer")


class ExternalManifests:
    """A store whose versions are committed in a manifest store, and that keeps everything in `objects`.

    `uri`: the canonical one that names both. `new_id` gives the part of a name that nobody else has. Raises
    `PlaceError` for the root of a bucket: a manifest store has no name for it.
    """

    def __init__(
        self,
        uri: str,
        objects: Storage,
        manifests: ManifestStore,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        base = place(uri).path
        if not base:
            hint = "put the table into a folder of the bucket"
            raise PlaceError("a manifest store can't name the root of a bucket", where=uri, hint=hint)
        self._uri = uri
        self._objects = objects
        self._manifests = manifests
        self._new_id = new_id
        self._finishing = Finishing(base, objects, manifests)
        self._left = Leftovers()

    @property
    def uri(self) -> str:
        """The canonical URI of the root."""
        return self._uri

    @property
    def cheap_size(self) -> bool:
        """See `Storage.cheap_size`."""
        return self._objects.cheap_size

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        return self._read(path, lambda: self._objects.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`."""
        return self._read(path, lambda: self._objects.get_range(path, start, length))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`."""
        return self._read(path, lambda: self._objects.get_tail(path, length))

    def size(self, path: str) -> int | None:
        """See `Storage.size`."""
        return self._asked(path, lambda: self._objects.size(path))

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`."""
        found = self._objects.sizes(paths)
        missing = [path for path, size in found.items() if size is None and self._finishing.slot(path)]
        return {**found, **{path: self.size(path) for path in missing}}

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: when the manifest of a version came to its final place."""
        return self._asked(path, lambda: self._objects.stored_at(path))

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`; a version by the five steps above."""
        check_new_path(path)
        slot = self._finishing.slot(path)
        if slot is None:
            return self._objects.put_if_absent(path, buffers)
        self._finish_before(slot)
        if self._objects.size(path) is not None:
            # Also one from before there was a manifest store: it must not be put over.
            return Put.EXISTS
        staged = f"{path}-{self._new_id()}"
        try:
            self._objects.put(staged, buffers)
        except RetryError:
            self._left.keep(slot, staged)
            raise
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        recorded = Recorded(slot.version, self._finishing.from_bucket(staged), size)
        if not self._committed(slot, staged, recorded):
            self._discard(slot, staged)
            return Put.EXISTS
        try:
            self._objects.put(path, buffers)
            self._finishing.record_final(slot, recorded)
        except LakefoldError as error:
            self._left.keep(slot, staged)
            raise DoubtfulPutError(f"{path} is committed, but was not finished: {error}") from error
        self._left.drop(slot, staged)
        self._left.finished(slot)
        return Put.STORED

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `PutsTogether`; versions, and all on a store that can't do better, one after the other."""
        versions = any(self._finishing.slot(path) is not None for path, _ in objects)
        if isinstance(self._objects, PutsTogether) and not versions:
            return self._objects.put_together(objects)
        return [self._put_looked_after(path, buffers) for path, buffers in objects]

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`. Raises `InvalidError` for a version: what one is never changes."""
        check_new_path(path)
        if self._finishing.slot(path) is not None:
            hint = "put the next version"
            raise InvalidError("a version is put once", where=path, hint=hint)
        self._objects.put(path, buffers)

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `BeginsPuts`; at once, where the objects' store can't begin a put."""
        if isinstance(self._objects, BeginsPuts) and self._finishing.slot(path) is None:
            return self._objects.begin_put(path, buffers)
        self.put(path, buffers)
        return _nothing_left

    def get_marked(self, path: str) -> tuple[bytes, str]:
        """See `ReplacesKnown.get_marked`; the mark is empty where the objects' store has none."""
        if isinstance(self._objects, ReplacesKnown):
            return self._objects.get_marked(path)
        return self.get(path), ""

    def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
        """See `ReplacesKnown.replace`; without a mark it is a `put`."""
        if mark and isinstance(self._objects, ReplacesKnown):
            return self._objects.replace(path, mark, buffers)
        self.put(path, buffers)
        return True

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`; what is committed and not finished is finished first."""
        self._finish_in(prefix)
        return self._objects.list(prefix)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`; what is committed and not finished is finished first."""
        self._finish_in(prefix)
        return self._objects.names(prefix)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ListsFolders`: as the objects have them."""
        return self._objects.folders(prefix) if isinstance(self._objects, ListsFolders) else ()

    @property
    def lists_in_order(self) -> bool:
        """See `ListsInOrder`: as the objects do."""
        return isinstance(self._objects, ListsInOrder) and self._objects.lists_in_order

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """See `ListsInOrder`; what is committed and not finished is finished first."""
        self._finish_in(prefix)
        if isinstance(self._objects, ListsInOrder):
            return self._objects.first_names(prefix, count)
        return sorted(self._objects.names(prefix), key=str.encode)[:count]

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        return self._objects.anything_at_root(besides)

    def delete(self, path: str) -> None:
        """See `Storage.delete`. What the manifest store says of a version stays, as with Lance clients."""
        check_path(path)
        self._completed(path)
        self._objects.delete(path)

    def everything(self) -> Iterator[str]:
        """See `ListsAll`: as the objects do."""
        if not isinstance(self._objects, ListsAll):
            raise InvalidError("this store can't list all that it holds", where=self._uri)
        return self._objects.everything()

    def forget_versions(self) -> None:
        """See `RecordsElsewhere`; what is committed and not finished is finished first."""
        self._finish_in(VERSIONS)
        self._manifests.forget(self._finishing.from_bucket("").rstrip("/"))

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`."""
        wanted = list(paths)
        try:
            self._objects.make_durable(wanted)
        except FileNotFoundError:
            if not [path for path in wanted if self._completed(path)]:
                raise
            self._objects.make_durable(wanted)

    def _read(self, path: str, read: Callable[[], Answer]) -> Answer:
        try:
            return read()
        except FileNotFoundError:
            if not self._completed(path):
                raise
            return read()

    def _asked(self, path: str, ask: Callable[[], int | None]) -> int | None:
        found = ask()
        return ask() if found is None and self._completed(path) else found

    def _completed(self, path: str) -> bool:
        """Whether this is a version that the manifest store knows: in its place then, unless removed."""
        slot = self._finishing.slot(path)
        recorded = None if slot is None else self._manifests.get(slot.base, slot.version)
        if slot is None or recorded is None:
            return False
        if not recorded.is_final:
            self._finishing.finish(slot.base, recorded)
        return True

    def _finish_in(self, prefix: str) -> None:
        """Finish the newest versions of a folder, up to one that is finished.

        None lies behind that: everybody finishes the version before the one that he puts.
        """
        base = self._finishing.base_of(check_folder(prefix))
        if base is not None:
            for recorded in takewhile(lambda one: not one.is_final, self._manifests.newest(base)):
                self._finishing.finish(base, recorded)

    def _finish_before(self, slot: Slot) -> None:
        """Finish the version before this one, and remove what attempts of this process left."""
        if slot.version > 1 and not is_detached(slot.version) and not self._left.follows_finished(slot):
            before = self._manifests.get(slot.base, slot.version - 1)
            if before is not None and not before.is_final:
                self._finishing.finish(slot.base, before)
        for (base, version), staged in self._left.all():
            recorded = self._manifests.get(base, version)
            if recorded is None:
                # An attempt may still be on its way to the manifest store: what it names must be there.
                continue
            if not recorded.is_final:
                self._finishing.finish(base, recorded)
            for path in staged:
                self._objects.delete(path)
            self._left.forget(base, version)

    def _committed(self, slot: Slot, staged: str, recorded: Recorded) -> bool:
        """Whether this attempt at a version is the one that counts."""
        try:
            return self._manifests.put_if_absent(slot.base, recorded) is Put.STORED
        except LakefoldError:
            self._discard(slot, staged)
            raise
        except DoubtfulPutError as doubt:
            self._left.keep(slot, staged)
            try:
                there = self._manifests.get(slot.base, slot.version)
            except RetryError:
                raise doubt from None
            if there is None or (there.is_final and there.size == recorded.size):
                # It may come yet; or somebody has finished it already, or that is another's of this size.
                raise
            return there.path == recorded.path

    def _discard(self, slot: Slot, staged: str) -> None:
        """Remove an attempt that lost; where that fails it is tried again before the next version is put."""
        try:
            self._objects.delete(staged)
        except LakefoldError:
            self._left.keep(slot, staged)
        else:
            self._left.drop(slot, staged)

    def _put_looked_after(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """A put without an answer counts as one that found something there: the caller looks what it is."""
        try:
            return self.put_if_absent(path, buffers)
        except DoubtfulPutError:
            return Put.EXISTS


def _nothing_left() -> None:
    """The put has ended already."""
