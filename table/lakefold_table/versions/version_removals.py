"""Versions that a clean-up is about to remove, so that no tag, branch or consumer is set on one meanwhile.

A clean-up announces the versions in a file, reads again what needs versions, and begins: it stores a decision
beside the announcement, only if none is stored yet. Who needs a version says so first, where a clean-up reads
it, and looks for announcements then. An announcement without a decision it decides itself, against the
clean-up, which has to begin anew. So one of the two always sees the other (decision 0118).

A decision to remove holds for ever, since files may be gone already. If the clean-up was killed, the next one
continues it. An announcement without a decision refuses nothing, however old it is.

A committer can't take back what it publishes. It says which versions it needs in a file here, a hold, until
that is done. If it was killed, the hold counts until its branch has the version that was to be made.
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lakefold_table.errors import DamagedError, PreconditionError, RetryError
from lakefold_table.roots import below
from lakefold_table.storage.base import Storage, put_or_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

T = TypeVar("T")
FOLDER: Final = "_lakefold/removals"
DECISION: Final = ".decision"
HOLD: Final = ".hold"


@dataclass(frozen=True, slots=True)
class Hold:
    """Versions of a branch that a committer needs for what it is about to publish.

    `until`: the branch that it folds, and a version of it: once that exists, what needs the versions is
    written or never will be. Branches are given as in `VersionRemovals`.
    """

    branch: str
    versions: range
    until: tuple[str, int]


class VersionRemovals:
    """The announcements of clean-ups. `storage`: the store of the main branch.

    A branch is given by its name, empty for the main branch. Each method raises as the store does, and
    `DamagedError` if it can't read an announcement.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def announce(self, branch: str, versions: Collection[int]) -> str:
        """Announces that these versions may be removed. Returns the announcement's name.

        Raises `InvalidError` if the store allows no removal: a decision that can't be carried out would
        refuse these versions for ever.
        """
        name = str(uuid.uuid4())
        self._storage.delete(f"{FOLDER}/{name}")
        self._storage.put(f"{FOLDER}/{name}", [_encoded(branch, versions)])
        return name

    def begin(self, name: str, branch: str, versions: Collection[int]) -> bool:
        """Decides that these versions are removed. Returns False if others decided that they stay."""
        path = f"{FOLDER}/{name}"
        # Who removes a decision has removed the announcement before.
        return self._decide(name, branch, versions) == set(versions) and self._storage.size(path) is not None

    def withdraw(self, name: str) -> None:
        """Removes an announcement, and then what was decided: without the announcement it counts no more."""
        self._storage.delete(f"{FOLDER}/{name}")
        self._storage.delete(f"{FOLDER}/{name}{DECISION}")

    def begun(self, branch: str) -> frozenset[int]:
        """Returns the versions of a branch that are being removed, or were by a clean-up that was killed."""
        decided = (self._read(name + DECISION) for name, _ in self._announced(branch))
        return frozenset[int]().union(*(content[1] for content in decided if content is not None))

    def check_ended(self, branch: str, numbers: Collection[int]) -> None:
        """Raises `PreconditionError` if one of these versions of a branch is being removed.

        A clean-up removes files by their names. A table or branch that was made at the same place meanwhile
        would have versions of the same names. So what removes all versions says so in the newest one, and
        looks here then; a clean-up announces its versions first, and looks at the newest one then.
        """
        going = self.begun(branch).intersection(numbers)
        if going:
            hint = "wait until it ends; if it was killed, `lakefold cleanup` ends what it has begun"
            message = f"a clean-up removes {len(going):,} of its versions"
            raise PreconditionError(message, where=below(self._storage.uri, FOLDER), hint=hint)

    def spares(self, branch: str, needs: Callable[[int], bool]) -> bool:
        """Returns whether no version of a branch that is needed is being removed, nor will be.

        Call it after a clean-up that begins now can see what needs the versions, and look then whether these
        exist: a clean-up may have ended.
        """
        return not any(
            any(map(needs, versions)) and any(map(needs, self._decide(name, branch, ())))
            for name, versions in self._announced(branch)
        )

    @contextmanager
    def held(self, holds: Collection[Hold]) -> Iterator[bool]:
        """Keeps versions until what needs them is written. Yields False if one of them is being removed.

        If True, look then whether they exist.
        """
        paths = [f"{FOLDER}/{uuid.uuid4()}{HOLD}" for _ in holds]
        try:
            for path, hold in zip(paths, holds, strict=True):
                self._storage.put(path, [_encoded_hold(hold)])
            yield all(self.spares(hold.branch, hold.versions.__contains__) for hold in holds)
        finally:
            for path in paths:
                self._storage.delete(path)

    def holds(self) -> dict[str, Hold]:
        """Returns what committers need, or needed when they were killed, by the names of the holds.

        Read it before what is to be protected by itself: tags, branches and versions.
        """
        holds = ((name, self._hold(name)) for name in self._names() if name.endswith(HOLD))
        return {name: hold for name, hold in holds if hold is not None}

    def remove_holds(self, branch: str, version: int) -> None:
        """Removes the holds until versions of this branch up to this one, which exists."""
        for name, hold in self.holds().items():
            if hold.until[0] == branch and hold.until[1] <= version:
                self._storage.delete(f"{FOLDER}/{name}")

    def end(self, branch: str, left: Collection[int]) -> None:
        """Removes the announcements of a branch that name none of the versions that are left.

        Another clean-up that has not begun yet has to announce its versions anew.
        """
        for name, _ in self._announced(branch):
            if not self._decide(name, branch, ()).intersection(left):
                self.withdraw(name)
        for name in self._names():
            # It was decided after the announcement was removed.
            if name.endswith(DECISION) and self._read(name.removesuffix(DECISION)) is None:
                self._storage.delete(f"{FOLDER}/{name}")

    def _announced(self, branch: str) -> Iterator[tuple[str, frozenset[int]]]:
        """Yields the names and versions of a branch's announcements."""
        for name in self._names():
            content = None if name.endswith((DECISION, HOLD)) else self._read(name)
            if content is not None and content[0] == branch:
                yield name, content[1]

    def _names(self) -> list[str]:
        return sorted(self._storage.names(FOLDER))

    def _decide(self, name: str, branch: str, versions: Collection[int]) -> frozenset[int]:
        """Decides which versions are removed, unless that is decided. Returns what holds."""
        path = f"{FOLDER}/{name}{DECISION}"
        put_or_exists(self._storage, path, [_encoded(branch, versions)])
        decided = self._read(name + DECISION)
        if decided is None and self._read(name) is not None:
            message, hint = "the store's answer was lost", "try again"
            raise RetryError(message, where=below(self._storage.uri, path), hint=hint)
        # Without its announcement the clean-up has ended.
        return frozenset() if decided is None else decided[1]

    def _read(self, name: str) -> tuple[str, frozenset[int]] | None:
        """Returns the branch and the versions in a file, None if it doesn't exist."""
        return self._decoded(
            name, lambda content: (str(content["branch"]), frozenset(map(int, content["versions"])))
        )

    def _hold(self, name: str) -> Hold | None:
        return self._decoded(
            name,
            lambda content: Hold(
                str(content["branch"]),
                range(int(content["first"]), int(content["end"])),
                (str(content["until_branch"]), int(content["until_version"])),
            ),
        )

    def _decoded(self, name: str, decode: Callable[[Any], T]) -> T | None:
        """Returns what a file says, None if it doesn't exist."""
        path = f"{FOLDER}/{name}"
        try:
            return decode(json.loads(self._storage.get(path)))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            message, hint = "the file of a clean-up can't be read", "remove it, and clean up again"
            raise DamagedError(message, where=below(self._storage.uri, path), hint=hint) from error


def _encoded(branch: str, versions: Collection[int]) -> bytes:
    return json.dumps({"branch": branch, "versions": sorted(versions)}).encode()


def _encoded_hold(hold: Hold) -> bytes:
    branch, version = hold.until
    content = {"branch": hold.branch, "first": hold.versions.start, "end": hold.versions.stop}
    return json.dumps({**content, "until_branch": branch, "until_version": version}).encode()
