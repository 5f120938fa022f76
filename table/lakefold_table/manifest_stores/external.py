"""Versions that are committed in another store: a manifest store records the manifest of each version.

For object stores without a conditional put. The order of steps is that of Lance clients (Lance fact 12.2), so
that either client can finalize what the other left, wherever it stopped:

1. put the manifest under a name that no other writer uses, `NAME.manifest-UUID`; 2. record that name for the
version in the manifest store, unless the version is recorded: *the commit point*; 3. put the same bytes as
`NAME.manifest`, where clients read that don't know the manifest store; 4. record `NAME.manifest` instead of
the first name; 5. remove the object with the first name.

From step 2 on the version exists, and any client that finds it before step 4 finalizes it
(`staged_manifests`). If the manifest store has no record of a version, its plain object counts: the table may
have been kept without a manifest store before.

`STORED` is returned when all five steps are done. If one of the last three fails, the version exists and yet
the put is in doubt, as if its answer had been lost: reading back settles that. Steps that were left out are
done before the next version is put.
"""

from __future__ import annotations

import uuid
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from lakefold_table.errors import InvalidError, LakefoldError, LocationError, RetryError
from lakefold_table.manifest_stores.base import MANIFESTS, ManifestRecord, ManifestStore
from lakefold_table.manifest_stores.staged_manifests import IncompleteUploads, VersionFinalizer, VersionPaths
from lakefold_table.storage.base import DoubtfulPutError, Put, Storage
from lakefold_table.storage.paths import check_folder, check_new_path, check_path
from lakefold_table.uri import parse_location

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from lakefold_table.storage.base import Buffer, Listed

Answer = TypeVar("Answer")


class ExternalManifests(Storage):
    """A store whose versions are committed in a manifest store, and that keeps all objects in `objects`.

    `uri`: the canonical URI that names both. `new_id` returns the part of a name that no other writer uses.
    Raises `LocationError` for the root of a bucket, for which a manifest store has no name.
    """

    records_versions = True

    def __init__(
        self,
        uri: str,
        objects: Storage,
        manifests: ManifestStore,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        base = parse_location(uri).path
        if not base:
            hint = "put the table into a folder of the bucket"
            raise LocationError("a manifest store can't name the root of a bucket", where=uri, hint=hint)
        self.uri = uri
        self.cheap_size, self.lists_in_order = objects.cheap_size, objects.lists_in_order
        self._objects = objects
        self._manifests = manifests
        self._new_id = new_id
        self._finalizer = VersionFinalizer(base, objects, manifests)
        self._left = IncompleteUploads()

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
        return self._value(path, lambda: self._objects.size(path))

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`."""
        sizes = self._objects.sizes(paths)
        missing = [path for path, size in sizes.items() if size is None and self._finalizer.slot(path)]
        return {**sizes, **{path: self.size(path) for path in missing}}

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: when the manifest of a version was put under its final name."""
        return self._value(path, lambda: self._objects.stored_at(path))

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`; a version by the five steps above."""
        check_new_path(path)
        slot = self._finalizer.slot(path)
        if slot is None:
            return self._objects.put_if_absent(path, buffers)
        self._finalize_before(slot)
        if self._objects.size(path) is not None:
            # This may also be a version from before there was a manifest store, which must not be replaced.
            return Put.EXISTS
        staged = f"{path}-{self._new_id()}"
        try:
            self._objects.put(staged, buffers)
        except RetryError:
            self._left.keep(slot, staged)
            raise
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        recorded = ManifestRecord(slot.version, self._finalizer.from_bucket(staged), size)
        if not self._committed(slot, staged, recorded):
            self._discard(slot, staged)
            return Put.EXISTS
        try:
            self._objects.put(path, buffers)
            self._finalizer.record_final(slot, recorded)
        except LakefoldError as error:
            self._left.keep(slot, staged)
            raise DoubtfulPutError(f"{path} is committed, but was not finalized: {error}") from error
        self._left.drop(slot, staged)
        self._left.finalized(slot)
        return Put.STORED

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `Storage.put_together`; in sequence for versions."""
        versions = any(self._finalizer.slot(path) is not None for path, _ in objects)
        return super().put_together(objects) if versions else self._objects.put_together(objects)

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`. Raises `InvalidError` for a version, which never changes."""
        check_new_path(path)
        if self._finalizer.slot(path) is not None:
            hint = "put the next version"
            raise InvalidError("a version is put once", where=path, hint=hint)
        self._objects.put(path, buffers)

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `Storage.begin_put`. Raises `InvalidError` for a version, as `put` does."""
        is_version = self._finalizer.slot(path) is not None
        return super().begin_put(path, buffers) if is_version else self._objects.begin_put(path, buffers)

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """See `Storage.get_with_etag`: as the objects' store."""
        return self._objects.get_with_etag(path)

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """See `Storage.replace`: as the objects' store."""
        return self._objects.replace(path, etag, buffers)

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`; versions that are committed and not finalized are finalized first."""
        self._finalize_in(prefix)
        return self._objects.list(prefix)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`; versions that are committed and not finalized are finalized first."""
        self._finalize_in(prefix)
        return self._objects.names(prefix)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Storage.folders`: as the objects' store."""
        return self._objects.folders(prefix)

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """See `Storage.first_names`; versions that are committed and not finalized are finalized first."""
        self._finalize_in(prefix)
        return self._objects.first_names(prefix, count)

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        return self._objects.anything_at_root(besides)

    def delete(self, path: str) -> None:
        """See `Storage.delete`. The manifest store's record of a version stays, as with Lance clients."""
        check_path(path)
        self._completed(path)
        self._objects.delete(path)

    def everything(self) -> Iterator[str]:
        """See `Storage.everything`: as the objects' store."""
        return self._objects.everything()

    def forget_versions(self) -> None:
        """See `Storage.forget_versions`; versions that are only committed are finalized first."""
        self._finalize_in(MANIFESTS.folder)
        self._manifests.forget(self._finalizer.from_bucket("").rstrip("/"))

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`."""
        requested = list(paths)
        try:
            self._objects.make_durable(requested)
        except FileNotFoundError:
            if not [path for path in requested if self._completed(path)]:
                raise
            self._objects.make_durable(requested)

    def _read(self, path: str, read: Callable[[], Answer]) -> Answer:
        try:
            return read()
        except FileNotFoundError:
            if not self._completed(path):
                raise
            return read()

    def _value(self, path: str, ask: Callable[[], int | None]) -> int | None:
        value = ask()
        return ask() if value is None and self._completed(path) else value

    def _completed(self, path: str) -> bool:
        """Returns whether this is a version that the manifest store knows. If so, it is finalized."""
        slot = self._finalizer.slot(path)
        recorded = None if slot is None else self._manifests.get(slot.base, slot.version)
        if slot is None or recorded is None:
            return False
        if not recorded.is_final:
            self._finalizer.finalize(slot.base, recorded)
        return True

    def _finalize_in(self, prefix: str) -> None:
        """Finalizes the newest versions of a folder, down to the first that is finalized.

        All older versions are finalized too: every client finalizes the version before its own.
        """
        base = self._finalizer.base_of(check_folder(prefix))
        if base is not None:
            for recorded in takewhile(lambda version: not version.is_final, self._manifests.newest(base)):
                self._finalizer.finalize(base, recorded)

    def _finalize_before(self, slot: VersionPaths) -> None:
        """Finalizes the version before this version, and removes what attempts of this process left."""
        in_order = 1 < slot.version < MANIFESTS.first_detached
        if in_order and not self._left.follows_finalized(slot):
            before = self._manifests.get(slot.base, slot.version - 1)
            if before is not None and not before.is_final:
                self._finalizer.finalize(slot.base, before)
        for (base, version), staged in self._left.all():
            recorded = self._manifests.get(base, version)
            if recorded is None:
                # An attempt may still be on its way to the manifest store: the object that it names must
                # exist.
                continue
            if not recorded.is_final:
                self._finalizer.finalize(base, recorded)
            for path in staged:
                self._objects.delete(path)
            self._left.forget(base, version)

    def _committed(self, slot: VersionPaths, staged: str, recorded: ManifestRecord) -> bool:
        """Returns whether the recorded attempt at a version is this one."""
        try:
            return self._manifests.put_if_absent(slot.base, recorded) is Put.STORED
        except LakefoldError:
            self._discard(slot, staged)
            raise
        except DoubtfulPutError as doubt:
            self._left.keep(slot, staged)
            try:
                existing = self._manifests.get(slot.base, slot.version)
            except RetryError:
                raise doubt from None
            if existing is None or (existing.is_final and existing.size == recorded.size):
                # It may still arrive; or another client has finalized it, or that is another version of the
                # same size.
                raise
            return existing.path == recorded.path

    def _discard(self, slot: VersionPaths, staged: str) -> None:
        """Removes a failed attempt. If that fails, it is tried again before the next version is put."""
        try:
            self._objects.delete(staged)
        except LakefoldError:
            self._left.keep(slot, staged)
        else:
            self._left.drop(slot, staged)
