"""Checks the roots when a committer starts, so that a typo or a folder of other tables is noticed at once.

A root that can't be used doesn't end a committer that runs for ever: its bucket may be created later, or its
store may fail for a minute, and the tables below the other roots are folded meanwhile. A root that could
be used is not checked again: if its store fails later, its tables are parked. Settings with which no store
can be opened raise at once, since waiting doesn't repair them.

Committers that share a log's partitions must have the same roots: any of them may get the partition of a
table, and answers proposals to tables that are not below its roots with Invalid. Without a setting the root
is the folder in which a committer is started. So the `client.id` of a member shows which roots it has.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.process.watch_threads import watching
from lakefold_log.client.requests import group_members
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.storage import open_storage
from lakefold_table.storage.os_errors import failure
from lakefold_table.uri import FILE, local_path, parse_location

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from lakefold_log.client.admin import Admin
    from lakefold_table.storage.base import Storage

LOG: Final = structlog.get_logger("lakefold.committer")
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
_CLIENT: Final = "lakefold-roots-"
"""The beginning of the `client.id` of committers that share partitions."""
_DIGITS: Final = 16
_EXTERNAL: Final = "s3+ddb"
_EFFECTIVE: Final = os.access in os.supports_effective_ids


class _StoreCheck(Protocol):
    def __call__(self) -> None:
        """Raises the `LakefoldError` that says why no tables can be stored there."""


class Roots:
    """The roots of a process. Any thread may read `trouble`.

    Raises `InvalidError` if no store can be opened with a root and the options.
    """

    def __init__(self, roots: Iterable[str], storage_options: Mapping[str, str] | None = None) -> None:
        self._checks = {root: _check_of(root, storage_options) for root in roots}
        self._pending = dict.fromkeys(self._checks, "it is being checked")

    @property
    def trouble(self) -> str:
        """The root that can't be used, and why. Empty if all can be used."""
        return next((f"root {root}: {why}" for root, why in list(self._pending.items())), "")

    def check(self) -> None:
        """Checks each root once. Raises for the first root that can't be used."""
        for root, check in self._checks.items():
            check()
            del self._pending[root]

    @property
    def client_id(self) -> str:
        """The `client.id` of a member with these roots, in any order."""
        digest = hashlib.sha256("\n".join(sorted(self._checks)).encode()).hexdigest()
        return _CLIENT + digest[:_DIGITS]

    def check_members(self, admin: Admin, group: str, *, are_chosen: bool) -> None:
        """Compares the roots with those of the members of `group`.

        Other roots are logged as a warning: they may be changing, one committer after another. Raises
        `InvalidError` if these roots are the default (not `are_chosen`), and as `group_members`.
        """
        others = [each for each in group_members(admin, group) if each.client_id.startswith(_CLIENT)]
        other = next((each for each in others if each.client_id != self.client_id), None)
        if other is None:
            return
        message = f"a committer of the group on {other.name or other.host} folds the tables below other roots"
        hint = "give all committers of a group the same --root, or this one a --group and topics of its own"
        if not are_chosen:
            folder = ", ".join(self._checks)
            raise InvalidError(f"{message} than {folder}, the folder of this one", where=group, hint=hint)
        LOG.warning(message, group=group, roots=list(self._checks), hint=hint)

    def watching(self) -> AbstractContextManager[None]:
        """Returns a context in which the roots that can't be used yet are checked repeatedly."""
        return watching("root", [partial(self._keep_checking, root) for root in self._pending])

    def _keep_checking(self, root: str, over: threading.Event) -> None:
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        failed = False
        while not over.is_set():
            try:
                self._checks[root]()
            except LakefoldError as error:
                failed = True
                self._pending[root] = str(error)
                LOG.warning("root not usable", root=root, error=str(error), pause_s=backoff.next_pause)
                over.wait(backoff.pause())
            else:
                del self._pending[root]
                if failed:
                    LOG.info("root usable", root=root)
                return


def _check_of(root: str, storage_options: Mapping[str, str] | None) -> _StoreCheck:
    location = parse_location(root)
    if location.scheme == FILE:
        return _Folder(local_path(root))
    if location.scheme == _EXTERNAL:
        # Each table's URI names its own manifest store.
        bucket = f"s3://{location.authority}/{root.partition('?')[0].partition('://')[2].partition('/')[2]}"
        return _Bucket(open_storage(bucket, storage_options), publishes_by_put=False)
    return _Bucket(open_storage(root, storage_options))


@dataclass(frozen=True, slots=True)
class _Folder:
    """A root on a local disk. If it doesn't exist, it is created with its first table."""

    path: str

    def __call__(self) -> None:
        try:
            folders = self._folders()
        except OSError as error:
            raise failure(error, self.path) from error
        if not any(os.access(folder, os.W_OK, effective_ids=_EFFECTIVE) for folder in folders):
            message = "this process may write neither here nor in a folder below"
            hint = "give this user write permission there; is it mounted read-only?"
            raise InvalidError(message, where=self.path, hint=hint)

    def _folders(self) -> list[str]:
        """Returns the folders in which tables or their folders may be created."""
        try:
            with os.scandir(self.path) as entries:
                return [self.path, *(entry.path for entry in entries if entry.is_dir())]
        except FileNotFoundError:
            LOG.warning("root does not exist yet", root=self.path, hint="it is created with its first table")
        return [next(str(above) for above in Path(self.path).parents if os.path.lexists(above))]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A root in a bucket. `publishes_by_put`: whether versions are published by puts into it."""

    storage: Storage
    publishes_by_put: bool = True

    def __call__(self) -> None:
        self.storage.anything_at_root()
        if self.publishes_by_put:
            self.storage.check_conditions()
