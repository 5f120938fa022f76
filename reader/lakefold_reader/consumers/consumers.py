"""Readers known by a name: where each of them stands is kept beside the table, and what they need stays.

A consumer is a small object, `_lakefold/consumers/NAME.json` below the root of the main line, and a Lance tag
on the version it has read last. The object says where to go on. The tag keeps that version's files, and makes
the clean-up of every Lance client stop with an error that names the consumer, rather than remove what it
hasn't read (decision 0024).
"""

from __future__ import annotations

import json
import os
import re
import socket
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lakefold_reader.opening import open_branch
from lakefold_reader.versions.branches import branched, main_and_branch
from lakefold_reader.versions.cursor import Cursor
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.start import EARLIEST, MAIN
from lakefold_reader.versions.stray_files import oldest_of
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, RetryError, StopError
from lakefold_table.storage.base import DoubtfulPutError, Put, ReplacesKnown
from lakefold_table.versions.refs import Refs, UnknownRefError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_reader.format.source import Source

FOLDER: Final = "_lakefold/consumers"
TAG: Final = "lakefold-consumer-"
SUFFIX: Final = ".json"
FORM: Final = 1
MOST_BYTES: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|$)){0,99}")


class UnknownConsumerError(InvalidError):
    """There is no consumer of this name."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader by its name, and where it stands.

    `at`: its cursor, None where it hasn't committed yet and begins with the whole content. `branch` is the
    line it follows, empty for the main line. `by`: who moved it last, as host and process, for people. Times
    in UTC.
    """

    name: str
    at: Cursor | None
    branch: str
    created_at: datetime
    updated_at: datetime
    by: str

    @property
    def start(self) -> Cursor | str:
        """What a tail begins with."""
        return EARLIEST if self.at is None else self.at

    @property
    def version(self) -> int:
        """The version it has read last, 0 where none."""
        return 0 if self.at is None else self.at.version


class Consumers:
    """The consumers of the table that `line` is a line of. `now` gives the time for what they are told."""

    def __init__(self, line: Source, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._line = line
        self._root, self.branch = main_and_branch(line)
        self._storage = self._root.storage
        self._refs = Refs(self._storage)
        self._now = now
        self._by = f"{socket.gethostname()}/{os.getpid()}"

    def all(self) -> list[Consumer]:
        """All of them, of all lines, by name. Raises `DamagedError` where one can't be read."""
        names = (name.removesuffix(SUFFIX) for name in self._storage.names(FOLDER) if name.endswith(SUFFIX))
        found = (self.find(name) for name in sorted(names) if _is_name(name))
        return [one for one in found if one is not None]

    def find(self, name: str) -> Consumer | None:
        """The consumer of this name, None where there is none. Raises `InvalidError`, `DamagedError`."""
        path = _path(name)
        try:
            data = self._storage.get_range(path, 0, MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        return self._decoded(name, data)

    def _marked(self, name: str) -> tuple[Consumer | None, str]:
        """As `find`, with the mark of the object as it is now; empty where there is none to have."""
        if not isinstance(self._storage, ReplacesKnown):
            return self.find(name), ""
        path = _path(name)
        try:
            data, mark = self._storage.get_marked(path)
        except FileNotFoundError:
            return None, ""
        return self._decoded(name, data), mark

    def _decoded(self, name: str, data: bytes) -> Consumer:
        where = f"{self._root.uri}/{_path(name)}"
        return _decoded(name, data, where, self._root.format.check_branch_name)

    def get(self, name: str) -> Consumer:
        """The consumer of this name. Raises `UnknownConsumerError` where there is none."""
        found = self.find(name)
        if found is None:
            hint = "list the table's consumers: lakefold consumers TABLE"
            raise UnknownConsumerError(f"there is no consumer {name}", where=self._root.uri, hint=hint)
        return found

    def tagged(self) -> frozenset[int]:
        """The versions of this line that tags name, other than those of consumers."""
        return frozenset(
            tag.version
            for name, tag in self._refs.tags().items()
            if (tag.branch or MAIN) == (self.branch or MAIN) and not name.startswith(TAG)
        )

    def forked(self) -> dict[int, str]:
        """The versions of this line that branches were made from, each with the name of one of them.

        A branch that was made from another one needs files of the main line, too. Raises `InvalidError` where
        a branch has no file and its first version doesn't tell what it was made from.
        """
        found: dict[int, str] = {}
        for name, branch in {**self._refs.unrecorded(), **self._refs.branches()}.items():
            if branch is None:
                raise InvalidError(
                    f"what the branch {name} was made from can't be told: it has no file, nor its beginning",
                    where=self._root.uri,
                    hint="remove the folder of the branch, or clean up by pylance's cleanup_old_versions",
                )
            if (branch.parent or MAIN) == (self.branch or MAIN):
                found[branch.parent_version] = name
            elif branch.lineage and not self.branch:
                found[branch.lineage[0][0]] = name
        return found

    def begin(self, name: str, at: Cursor | None) -> Consumer:
        """Make a consumer that stands here, on this line; where there is one by now, it is that one."""
        now = self._now()
        made = Consumer(name, at, self.branch, now, now, self._by)
        try:
            stored = self._storage.put_if_absent(_path(name), [_encoded(made)]) is Put.STORED
        except DoubtfulPutError:
            stored = False
        if not stored and (there := self.get(name)) != made:
            return there
        self._pin(made)
        return made

    def hold(self, known: Consumer) -> None:
        """Tag what a consumer needs where no tag does: who moved it may have died before that.

        Or another one moved it on at that moment, and its tag came last.
        """
        try:
            tagged = self._refs.tag(TAG + known.name).version
        except UnknownRefError:
            self._pin(known)
        else:
            if known.at is not None and tagged > known.version + 1:
                self._pin(known)

    def commit(self, known: Consumer, at: Cursor) -> Consumer:
        """Let the consumer stand at `at`. `known`: how this reader knows it.

        Raises `StopError` where another reader has moved it meanwhile, `UnknownConsumerError` where it was
        dropped.
        """
        if known.at == at:
            return known
        found, mark = self._marked(known.name)
        if found is None:
            return self.get(known.name)
        if found != known:
            raise self._moved(found)
        return self._put(replace(found, at=at), mark)

    def set(self, name: str, at: Cursor | None) -> Consumer:
        """Let a consumer of this line stand somewhere else, or make one there. Raises as `commit`."""
        found, mark = self._marked(name)
        if found is None:
            return self.begin(name, at)
        self.check_line(found)
        return self._put(replace(found, at=at), mark)

    def drop(self, name: str) -> None:
        """Forget a consumer, also one that can't be read: clean-ups take no notice of it any more.

        Raises `UnknownConsumerError`.
        """
        if self._storage.size(_path(name)) is None:
            self.get(name)
        self._unpin(name)
        self._storage.delete(_path(name))

    def check_line(self, consumer: Consumer) -> None:
        """Raises `InvalidError` where the consumer follows another line of the table."""
        if consumer.branch != self.branch:
            followed, this = consumer.branch or "the main line", self.branch or "the main line"
            raise InvalidError(
                f"the consumer {consumer.name} follows {followed}, not {this}",
                where=self._root.uri,
                hint="name that branch, or choose another name",
            )

    def _put(self, consumer: Consumer, mark: str) -> Consumer:
        """Write it, then move its tag: a tag that is behind keeps more than is needed, never less.

        Only in place of the object that was read, where the store can tell that.
        """
        moved = replace(consumer, updated_at=self._now(), by=self._by)
        if not self._replaced(moved, mark):
            there = self.get(moved.name)
            if there.updated_at == consumer.updated_at:
                raise RetryError("the store's answer was lost", where=self._root.uri, hint="commit again")
            raise self._moved(there)
        self._pin(moved)
        return moved

    def _replaced(self, moved: Consumer, mark: str) -> bool:
        """Whether the object is now this one. Where the store knows no such condition it is in any case."""
        path, data = _path(moved.name), [_encoded(moved)]
        if mark and isinstance(self._storage, ReplacesKnown):
            try:
                return self._storage.replace(path, mark, data)
            except DoubtfulPutError:
                return self.get(moved.name) == moved
            except InvalidError:
                # A server that knows no such condition; one that lets nobody write says so once more.
                pass
        self._storage.put(path, data)
        return True

    def _moved(self, found: Consumer) -> StopError:
        """The error where another reader has moved a consumer."""
        place = "the beginning" if found.at is None else f"version {found.version}"
        return StopError(
            f"{found.by} moved the consumer {found.name} to {place} at "
            f"{found.updated_at:%Y-%m-%d %H:%M:%S} UTC",
            where=self._root.uri,
            hint="let one reader run under a name; begin again to go on from where it stands now",
        )

    def _pin(self, consumer: Consumer) -> None:
        """Tag the version that it has read last, or the next one where that one is gone."""
        versions = self._line.versions
        first = oldest_of(self._line) if consumer.at is None else consumer.version
        for version in (first, first + 1):
            size = self._line.storage.size(versions.path(version))
            if size is not None:
                told = {"lakefold.consumer": consumer.name}
                branch = consumer.branch or None
                self._refs.pin(TAG + consumer.name, version, branch=branch, size=size, metadata=told)
                return
        self._unpin(consumer.name)

    def _unpin(self, name: str) -> None:
        with suppress(UnknownRefError):
            self._refs.delete_tag(TAG + name)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a consumer is: versions of its line that it hasn't read, None where the line is gone."""

    consumer: Consumer
    versions: int | None


def lags(source: Source) -> list[Lag]:
    """All consumers of the table that `source` is a line of, and how far behind each is."""
    known = Consumers(source).all()
    there = {branch: _numbers(source, branch) for branch in {one.branch for one in known}}
    return [Lag(one, _unread(one, there[one.branch])) for one in known]


def _numbers(source: Source, branch: str) -> list[int]:
    try:
        return numbers_of(branched(source, branch or MAIN))
    except (UnknownRefError, NotATableError):
        return []


def _unread(consumer: Consumer, numbers: list[int]) -> int | None:
    return len(numbers) - bisect_right(numbers, consumer.version) if numbers else None


def consumers(
    uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> list[Consumer]:
    """The named consumers of the table, of all its lines, by name. Raises `NotATableError`."""
    return Consumers(open_branch(os.fspath(uri), None, storage_options)).all()


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.endswith(".lock")


def _path(name: str) -> str:
    if not _is_name(name):
        hint = "letters, digits, '.', '-' and '_', at most 100, a letter or digit first, no dot last"
        raise InvalidError(f"{name!r} can't be the name of a consumer", hint=hint)
    return f"{FOLDER}/{name}{SUFFIX}"


def _encoded(consumer: Consumer) -> bytes:
    told = {
        "form": FORM,
        "at": str(consumer.start),
        "branch": consumer.branch,
        "created_at": consumer.created_at.isoformat(),
        "updated_at": consumer.updated_at.isoformat(),
        "by": consumer.by,
    }
    return json.dumps(told, indent=1).encode()


def _decoded(name: str, data: bytes, where: str, check_branch_name: Callable[[str], None]) -> Consumer:
    hint = "drop it and make it anew (lakefold consumers TABLE --drop NAME), unless a later release wrote it"
    if len(data) > MOST_BYTES:
        raise DamagedError(f"a consumer of more than {MOST_BYTES} bytes is none", where=where, hint=hint)
    try:
        told = json.loads(data)
        at = None if told["at"] == EARLIEST else Cursor.parse(told["at"])
        created, updated = (datetime.fromisoformat(told[key]) for key in ("created_at", "updated_at"))
        branch = str(told["branch"])
        if branch:
            check_branch_name(branch)
        found = Consumer(name, at, branch, created, updated, str(told["by"]))
        form = told["form"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidError) as error:
        raise DamagedError(f"the consumer can't be read: {error!r}", where=where, hint=hint) from error
    if form != FORM:
        raise DamagedError(f"a consumer of form {form} isn't known, only {FORM}", where=where, hint=hint)
    return found
