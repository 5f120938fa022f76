"""Consumers: readers known by a name. The table stores how far each has read, and keeps what it hasn't read.

A consumer is a small object, `_lakefold/consumers/NAME.json` below the root of the main branch, and a Lance
tag on the version it has read last. The object says where it continues. The tag keeps that version's files,
and makes the clean-up of every Lance client stop with an error that names the consumer, rather than remove
what it hasn't read (decision 0024).
"""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lakefold_reader.formats import on_branch
from lakefold_reader.versions.branches import branched, main_and_branch
from lakefold_reader.versions.cursor import Cursor
from lakefold_reader.versions.late_versions import oldest_of
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.start import EARLIEST, MAIN
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    NotATableError,
    RetryError,
    StopError,
    VersionExpiredError,
)
from lakefold_table.ref_files import CONSUMER_TAG
from lakefold_table.storage.base import DoubtfulPutError, Put, put_or_exists
from lakefold_table.versions.refs import Refs, UnknownRefError
from lakefold_table.versions.version_removals import VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.storage.base import Storage

FOLDER: Final = "_lakefold/consumers"
TAG: Final = CONSUMER_TAG
SUFFIX: Final = ".json"
FORM: Final = 1
MOST_BYTES: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|$)){0,99}")


class UnknownConsumerError(InvalidError):
    """No consumer has this name."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A named reader, and how far it has read.

    `at`: its cursor, None if it hasn't committed yet and begins with the whole content. `branch` is the
    branch it follows, empty for the main branch. `by`: the host and process that moved it last, for people.
    Times are in UTC.
    """

    name: str
    at: Cursor | None
    branch: str
    created_at: datetime
    updated_at: datetime
    by: str

    @property
    def start(self) -> Cursor | str:
        """The start of a tail that continues for this consumer."""
        return EARLIEST if self.at is None else self.at

    @property
    def version(self) -> int:
        """The version that the consumer has read last, 0 if it has read none."""
        return 0 if self.at is None else self.at.version


class Consumers:
    """The consumers of a table. `source`: the table, or a branch of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._root, self.branch = main_and_branch(source)
        self._storage = self._root.storage
        self._refs = Refs(self._storage)
        self._by = f"{socket.gethostname()}/{os.getpid()}"

    @property
    def main(self) -> Storage:
        """The store of the main branch, which has what is stored beside the versions."""
        return self._storage

    def all(self) -> list[Consumer]:
        """Returns the consumers of all branches, by name. Raises `DamagedError` if a file can't be read."""
        names = (name.removesuffix(SUFFIX) for name in self._storage.names(FOLDER) if name.endswith(SUFFIX))
        consumers = (self.find(name) for name in sorted(names) if _is_name(name))
        return [consumer for consumer in consumers if consumer is not None]

    def find(self, name: str) -> Consumer | None:
        """Returns the consumer of this name, or None. Raises `InvalidError`, `DamagedError`."""
        path = _path(name)
        try:
            data = self._storage.get_range(path, 0, MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        return self._decoded(name, data)

    def _find_with_etag(self, name: str) -> tuple[Consumer | None, str]:
        """Returns what `find` does, and the etag of the object, which is empty if the store gives none."""
        path = _path(name)
        try:
            data, etag = self._storage.get_with_etag(path)
        except FileNotFoundError:
            return None, ""
        return self._decoded(name, data), etag

    def _decoded(self, name: str, data: bytes) -> Consumer:
        where = f"{self._root.uri}/{_path(name)}"
        return _decoded(name, data, where, self._root.format.check_branch_name)

    def get(self, name: str) -> Consumer:
        """Returns the consumer of this name. Raises `UnknownConsumerError` if it does not exist."""
        consumer = self.find(name)
        if consumer is None:
            hint = "list the table's consumers: lakefold consumers TABLE"
            raise UnknownConsumerError(f"there is no consumer {name}", where=self._root.uri, hint=hint)
        return consumer

    def tagged(self) -> frozenset[int]:
        """Returns the versions of this branch that have tags, without those that consumers keep."""
        return frozenset(
            tag.version
            for name, tag in self._refs.tags().items()
            if (tag.branch or MAIN) == (self.branch or MAIN) and not name.startswith(TAG)
        )

    def held(self, numbers: Sequence[int]) -> frozenset[int]:
        """Returns the versions of this branch that committers need for what they are about to publish.

        `numbers`: those of this branch. What a killed committer needed counts until that is published.
        """
        held = set[int]()
        for hold in VersionRemovals(self._storage).holds().values():
            branch, version = hold.until
            newest = numbers[-1] if branch == self.branch else self._refs.newest(branch)
            if hold.branch == self.branch and newest < version:
                held.update(number for number in numbers if number in hold.versions)
        return frozenset(held)

    def forked(self) -> dict[int, str]:
        """Returns the versions of this branch that branches were made from, each with a branch's name.

        A branch that was made from another branch needs files of the main branch, too. Raises `InvalidError`
        if a branch has no file and its first version doesn't record what it was made from.
        """
        forks: dict[int, str] = {}
        for name, branch in {**self._refs.unrecorded(), **self._refs.branches()}.items():
            if branch is None:
                raise InvalidError(
                    f"not known what the branch {name} was made from: its file and first version are gone",
                    where=self._root.uri,
                    hint="remove the folder of the branch, or clean up by pylance's cleanup_old_versions",
                )
            if (branch.parent or MAIN) == (self.branch or MAIN):
                forks[branch.parent_version] = name
            elif branch.lineage and not self.branch:
                forks[branch.lineage[0][0]] = name
        return forks

    def begin(self, name: str, at: Cursor | None) -> Consumer:
        """Creates a consumer of this branch at this cursor. Returns the existing one if it exists.

        Raises `VersionExpiredError`, and creates none, if a clean-up removes versions that it needs.
        """
        self._make_durable(at)
        now = datetime.now(UTC)
        made = Consumer(name, at, self.branch, now, now, self._by)
        kept = None if at is None else self._kept(made)
        put = put_or_exists(self._storage, _path(name), [_encoded(made)])
        if put is Put.EXISTS and (existing := self.get(name)) != made:
            return existing
        if not self._stays(made, kept):
            self._storage.delete(_path(name))
            raise self._expired(made)
        self._pin(made)
        return made

    def hold(self, consumer: Consumer) -> None:
        """Tags the version that a consumer needs, if it has no tag.

        A process that moved the consumer may have died before it set the tag, or another process moved it at
        the same moment and set its tag last.
        """
        if not self._source.format.has_refs:
            return
        try:
            tagged = self._refs.tag(TAG + consumer.name).version
        except UnknownRefError:
            self._pin(consumer)
        else:
            if consumer.at is not None and tagged > consumer.version + 1:
                self._pin(consumer)

    def commit(self, consumer: Consumer, at: Cursor) -> Consumer:
        """Moves the consumer to `at`. `consumer`: the consumer as this reader knows it.

        Raises `StopError` if another reader has moved it meanwhile, `UnknownConsumerError` if it was dropped.
        """
        if consumer.at == at:
            return consumer
        stored, etag = self._find_with_etag(consumer.name)
        if stored is None:
            return self.get(consumer.name)
        if stored != consumer:
            raise self._moved(stored)
        return self._put(stored, etag, at)

    def set(self, name: str, at: Cursor | None) -> Consumer:
        """Moves a consumer of this branch to another version, or creates it there.

        Raises as `commit` and `begin`.
        """
        stored, etag = self._find_with_etag(name)
        if stored is None:
            return self.begin(name, at)
        self.check_branch(stored)
        return self._put(stored, etag, at)

    def drop(self, name: str) -> None:
        """Removes a consumer, even if it can't be read: clean-ups ignore it from now on.

        Raises `UnknownConsumerError`.
        """
        if self._storage.size(_path(name)) is None:
            self.get(name)
        self._unpin(name)
        self._storage.delete(_path(name))

    def check_branch(self, consumer: Consumer) -> None:
        """Raises `InvalidError` if the consumer follows another branch of the table."""
        if consumer.branch != self.branch:
            followed, this = consumer.branch or "the main branch", self.branch or "the main branch"
            raise InvalidError(
                f"the consumer {consumer.name} follows {followed}, not {this}",
                where=self._root.uri,
                hint="name that branch, or choose another name",
            )

    def _put(self, consumer: Consumer, etag: str, at: Cursor | None) -> Consumer:
        """Moves the consumer, then its tag: a tag that is behind keeps more than needed, never less.

        Replaces only the object that was read, if the store supports that condition. Moves a consumer that
        went back to where it was if a clean-up removes what it would need, and raises `VersionExpiredError`.
        What it needs if it goes on is kept for it since before.
        """
        self._make_durable(at)
        moved = replace(consumer, at=at, updated_at=datetime.now(UTC), by=self._by)
        goes_back = moved.version < consumer.version
        kept = None if at is None or not goes_back else self._kept(moved)
        if not self._replaced(moved, etag):
            stored = self.get(moved.name)
            if stored.updated_at == consumer.updated_at:
                raise RetryError("the store's answer was lost", where=self._root.uri, hint="commit again")
            raise self._moved(stored)
        if goes_back and not self._stays(moved, kept):
            now, etag = self._find_with_etag(moved.name)
            if now == moved:
                self._replaced(consumer, etag)
            raise self._expired(moved)
        self._pin(moved)
        return moved

    def _make_durable(self, at: Cursor | None) -> None:
        """Makes the version durable up to which was read: its committer may not have done it yet.

        After a power cut another version could have its number, and the consumer would have missed that.
        """
        if at is not None:
            self._source.storage.sync_others([self._source.versions.path(at.version)])

    def _replaced(self, moved: Consumer, etag: str) -> bool:
        """Returns whether the store now holds this object, always true if it supports no condition."""
        path, data = _path(moved.name), [_encoded(moved)]
        if etag:
            try:
                return self._storage.replace(path, etag, data)
            except DoubtfulPutError:
                return self.get(moved.name) == moved
            except InvalidError:
                # The server supports no such condition. If it allows no writes, the next put raises the error
                # again.
                pass
        self._storage.put(path, data)
        return True

    def _moved(self, consumer: Consumer) -> StopError:
        """Returns the error for a consumer that another reader has moved."""
        version = "the beginning" if consumer.at is None else f"version {consumer.version}"
        return StopError(
            f"{consumer.by} moved the consumer {consumer.name} to {version} at "
            f"{consumer.updated_at:%Y-%m-%d %H:%M:%S} UTC",
            where=self._root.uri,
            hint="let one reader run under a name; open the tail again to continue from where it is now",
        )

    def _pin(self, consumer: Consumer) -> None:
        """Tags the version that the consumer has read last, or the next version if that version is gone.

        If the format keeps no tags, the consumer's own file is all that holds versions.
        """
        if not self._source.format.has_refs:
            return
        kept = self._kept(consumer)
        if kept is None:
            self._unpin(consumer.name)
            return
        version, size = kept
        metadata, branch = {"lakefold.consumer": consumer.name}, consumer.branch or None
        self._refs.pin(TAG + consumer.name, version, branch=branch, size=size, metadata=metadata)

    def _kept(self, consumer: Consumer) -> tuple[int, int] | None:
        """Returns the first version that is kept for a consumer and its size, None if it is gone."""
        first = oldest_of(self._source) if consumer.at is None else consumer.version
        sizes = ((each, self._source.versions.path(each)) for each in (first, first + 1))
        stored = ((version, self._source.storage.size(path)) for version, path in sizes)
        return next(((version, size) for version, size in stored if size is not None), None)

    def _stays(self, consumer: Consumer, kept: tuple[int, int] | None) -> bool:
        """Returns whether no clean-up removes what a consumer needs that is stored now.

        `kept`: what could be kept for it before that. A consumer that begins with the whole content begins
        with the versions that are left.
        """
        first = oldest_of(self._source) if consumer.at is None else consumer.version
        spares = VersionRemovals(self._storage).spares(consumer.branch, lambda version: version >= first)
        return spares and (consumer.at is None or (kept is not None and self._kept(consumer) == kept))

    def _expired(self, consumer: Consumer) -> VersionExpiredError:
        oldest = oldest_of(self._source)
        return VersionExpiredError(
            f"a clean-up removes versions that the consumer {consumer.name} would need",
            oldest=oldest,
            where=self._root.uri,
            hint=f"begin at version {oldest} or later; if the clean-up was killed, another one ends it",
        )

    def _unpin(self, name: str) -> None:
        with suppress(UnknownRefError):
            self._refs.delete_tag(TAG + name)


@dataclass(frozen=True, slots=True)
class Lag:
    """How many versions of its branch a consumer hasn't read, None if the branch is gone.

    `format`: the name of the table's, `lance` or `delta`.
    """

    consumer: Consumer
    versions: int | None
    format: str


def lags(source: Source) -> list[Lag]:
    """Returns all consumers of the table, and how far behind each is.

    `source`: the table, or a branch of it.
    """
    consumers = Consumers(source).all()
    numbers = {branch: _numbers(source, branch) for branch in {consumer.branch for consumer in consumers}}
    return [
        Lag(consumer, _unread(consumer, numbers[consumer.branch]), source.format.name)
        for consumer in consumers
    ]


def _numbers(source: Source, branch: str) -> list[int]:
    try:
        return numbers_of(branched(source, branch or MAIN))
    except (UnknownRefError, NotATableError):
        return []


def _unread(consumer: Consumer, numbers: list[int]) -> int | None:
    """Returns how many versions came after what a consumer has read, also those that were removed since."""
    if consumer.at is None or not numbers:
        return len(numbers) or None
    return max(0, numbers[-1] - consumer.version)


def consumers(
    uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> list[Consumer]:
    """Returns the named consumers of the table, of all its branches, by name.

        for consumer in lakefold.consumers("s3://lake/flights.lance"):
            print(consumer.name, consumer.version)

    Raises `NotATableError` if the table does not exist.
    """
    return on_branch(uri, None, storage_options, lambda source: Consumers(source).all())


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.endswith(".lock")


def _path(name: str) -> str:
    if not _is_name(name):
        hint = "letters, digits, '.', '-' and '_', at most 100, a letter or digit first, no dot last"
        raise InvalidError(f"{name!r} can't be the name of a consumer", hint=hint)
    return f"{FOLDER}/{name}{SUFFIX}"


def _encoded(consumer: Consumer) -> bytes:
    content = {
        "form": FORM,
        "at": str(consumer.start),
        "branch": consumer.branch,
        "created_at": consumer.created_at.isoformat(),
        "updated_at": consumer.updated_at.isoformat(),
        "by": consumer.by,
    }
    return json.dumps(content, indent=1).encode()


def _decoded(name: str, data: bytes, where: str, check_branch_name: Callable[[str], None]) -> Consumer:
    hint = (
        "drop it and create it again (lakefold consumers TABLE --drop NAME), unless a later release wrote it"
    )
    if len(data) > MOST_BYTES:
        raise DamagedError(
            f"the file has more than {MOST_BYTES} bytes, so it is not a consumer", where=where, hint=hint
        )
    try:
        content = json.loads(data)
        at = None if content["at"] == EARLIEST else Cursor.parse(content["at"])
        created, updated = (datetime.fromisoformat(content[key]) for key in ("created_at", "updated_at"))
        branch = str(content["branch"])
        if branch:
            check_branch_name(branch)
        consumer = Consumer(name, at, branch, created, updated, str(content["by"]))
        form = content["form"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidError) as error:
        raise DamagedError(f"the consumer can't be read: {error!r}", where=where, hint=hint) from error
    if form != FORM:
        raise DamagedError(
            f"the consumer has the format {form}, this release knows only {FORM}", where=where, hint=hint
        )
    return consumer
