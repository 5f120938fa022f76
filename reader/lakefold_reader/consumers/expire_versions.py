"""Removes old versions that no consumer and no tag needs, and that are older than the minimum age.

This module decides which versions are removed. pylance's own clean-up gets the list of them, and makes sure
that only files are removed that no other version, branch or tag needs. Files that no version names yet are
left alone for seven days, as they may belong to a proposal that waits in the log.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_reader.consumers.consumers import Consumer, Consumers
from lakefold_reader.format.snapshots import Cleaned
from lakefold_reader.versions.listing import newest_of, numbers_of
from lakefold_reader.versions.prefetch import PrefetchedVersions
from lakefold_reader.versions.times import nearest_time
from lakefold_table.errors import InvalidError, OptionName, PreconditionError, VersionExpiredError
from lakefold_table.marks.marks import decode_marks
from lakefold_table.versions.version_removals import VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_reader.format.source import Source

AGE: Final = timedelta(days=14)
"""The age from which a version is removed, if nothing else is set; pylance's default, too."""

POLICY: Final = "policy"
"""What keeps a version: its age, or that it is one of the newest."""
CONSUMERS: Final = "consumers"
REFS: Final = "tags and branches"
MARKS: Final = "marks"
"""That it is the newest version that a committer made, or one after it: they verify the table's marks."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a clean-up of a branch removes, and which consumers keep older versions.

    `versions`: those to remove. `oldest`, `newest`: what exists now. `held_by`: the consumers that keep
    versions which are old enough to be removed, the farthest behind first. `kept`: how many versions stay,
    by what keeps them.
    """

    versions: Sequence[int]
    oldest: int
    newest: int
    held_by: Sequence[Consumer]
    kept: Mapping[str, int] = field(default_factory=dict)


def plan(
    source: Source,
    older_than: timedelta = AGE,
    *,
    keep: int = 1,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Plan:
    """Returns the old versions of the branch that nothing needs, without the newest `keep`.

    A consumer needs the version it read last and all after it; a consumer that hasn't committed yet needs
    all. A version that a branch was made from is kept, as the branch uses its files. If other clients made
    the newest versions, these and the last one of a committer are kept: only they show that the marks in the
    newest one are the table's. Reads the heads of the old versions. Raises as `Consumers.all`, and
    `InvalidError` for invalid limits, or if a version that a branch was made from is gone: then it is not
    known which files the branch needs.
    """
    if older_than < timedelta(0) or keep < 1:
        hint = ("use ", OptionName("keep"), " 1 or more")
        raise InvalidError("an age can't be negative, and one version stays", hint=hint)
    numbers = numbers_of(source)
    consumers = Consumers(source)
    begun = VersionRemovals(consumers.main).begun(consumers.branch)
    consumers_here, needed, protected = _needed(source, consumers, numbers)
    old = _old(source, numbers[:-keep], _before(now(), older_than))
    verifying = min(_verifying(source, numbers), needed)
    needless = {number for number in old if number < verifying and number not in protected}
    held = [consumer for consumer in consumers_here if old and consumer.version < old[-1]]
    going = [number for number in numbers[:-1] if number in begun or number in needless]
    kept = {
        POLICY: len(numbers) - len(old),
        CONSUMERS: sum(number >= needed for number in old),
        MARKS: sum(verifying <= number < needed for number in old),
        REFS: sum(number < verifying and number in protected for number in old),
    }
    return Plan(going, numbers[0], numbers[-1], held, kept)


def clean_up(source: Source, planned: Plan, *, dry_run: bool = False) -> Cleaned:
    """Removes the versions of a plan and the files that only they need; `dry_run`: only reports them.

    The versions are announced first, and those that are needed since the plan was made stay. Raises
    `RetryError` if the store fails midway; another call continues. Raises `VersionExpiredError` if
    another client removes versions at the same time and a version that is needed here is gone, `InvalidError`
    if the store allows no removal, `PreconditionError` if the table is being dropped or the branch deleted.
    """
    if not planned.versions:
        return Cleaned(0, 0, 0)
    if dry_run:
        return _cleaned(source, planned.newest, planned.versions, None)
    consumers = Consumers(source)
    versions = planned.versions
    done = Cleaned(0, 0, 0)
    while versions:
        try:
            done = _cleaned(source, planned.newest, versions, partial(_begin, source, consumers))
            break
        except _NeededError as needed:
            versions = needed.others
    VersionRemovals(consumers.main).end(consumers.branch, numbers_of(source))
    return done


class _NeededError(Exception):
    """Some of the versions of a clean-up are needed by now. `others`: those that may be removed."""

    def __init__(self, others: Sequence[int]) -> None:
        super().__init__("some versions are needed by now")
        self.others = others


def _cleaned(
    source: Source, newest: int, versions: Sequence[int], begin: Callable[[Sequence[int]], None] | None
) -> Cleaned:
    """Removes versions after `begin` was called with those that go; None: a dry run."""
    try:
        return source.format.clean_up(source, newest, versions, begin=begin)
    except FileNotFoundError as error:
        raise VersionExpiredError(
            f"another client removes old versions at the same time: {error}",
            oldest=0,
            where=source.uri,
            hint="run it again if versions are left",
        ) from error


def _begin(source: Source, consumers: Consumers, versions: Sequence[int]) -> None:
    """Announces versions and begins to remove them. Raises `_NeededError` if they don't all go any more.

    What an earlier clean-up has begun to remove is announced already.
    """
    removals, branch = VersionRemovals(consumers.main), consumers.branch
    begun = removals.begun(branch)
    new = [version for version in versions if version not in begun]
    if not new:
        return
    name = removals.announce(branch, new)
    _, needed, protected = _needed(source, consumers, numbers_of(source))
    going = [version for version in new if version < needed and version not in protected]
    if going == new and removals.begin(name, branch, new):
        try:
            _check_stays(source, branch)
        except PreconditionError:
            removals.withdraw(name)
            raise
        return
    removals.withdraw(name)
    raise _NeededError([version for version in versions if version in begun or version in going])


def _check_stays(source: Source, branch: str) -> None:
    """Raises `PreconditionError` if the table is being dropped, or the branch deleted.

    Another one may have been made at its place before the last file is removed: see
    `VersionRemovals.check_ended`.
    """
    marks = decode_marks(source.format.open(source, newest_of(source)).state.metadata, source.uri)
    # Another client's clone carries the marks of the branch that it was made from.
    is_own = marks is not None and marks.branch == branch
    if marks is not None and is_own and (marks.dropped or marks.deleted_by is not None):
        message = "the table is being dropped, or this branch deleted"
        raise PreconditionError(message, where=source.uri, hint="leave its versions to that")


def _needed(
    source: Source, consumers: Consumers, numbers: Sequence[int]
) -> tuple[list[Consumer], int, frozenset[int]]:
    """Returns the branch's consumers, the oldest version they need, and those that tags and branches need.

    What committers need is read first, so that what they need it for is seen once they hold it no more.
    """
    held = consumers.held(numbers)
    here = sorted(
        (consumer for consumer in consumers.all() if consumer.branch == consumers.branch),
        key=lambda consumer: consumer.version,
    )
    protected = held | consumers.tagged() | _forked(source, consumers, numbers)
    return here, min((consumer.version for consumer in here), default=numbers[-1]), protected


def _verifying(source: Source, numbers: Sequence[int]) -> int:
    """Returns the newest version that a committer made, if the marks in a later one name it or an older one.

    Returns the newest version if there are no such marks, or a version in between is gone.
    """
    newest = numbers[-1]
    head = source.summary(newest)
    if head is None or head.own:
        return newest
    marks = decode_marks(source.format.open(source, newest).state.metadata, source.uri)
    if marks is None:
        return newest
    for number in range(newest - 1, marks.version - 1, -1):
        summary = source.summary(number)
        if summary is None or summary.begins_clone:
            return newest
        if summary.own:
            return number
    return newest


def _forked(source: Source, consumers: Consumers, numbers: Sequence[int]) -> frozenset[int]:
    """Returns the versions that branches were made from.

    pylance ignores branches if it gets version numbers.
    """
    forked = consumers.forked()
    gone = sorted(forked.keys() - set(numbers))
    if gone:
        raise InvalidError(
            f"version {gone[0]}, which the branch {forked[gone[0]]} was made from, is gone",
            where=source.uri,
            hint="it is not known which files that branch needs: remove the branch, or clean up by "
            "pylance's cleanup_old_versions(older_than=…), which reads all files that branches name",
        )
    return frozenset(forked)


def _before(now: datetime, age: timedelta) -> datetime:
    """Returns the time this many seconds ago, or the earliest time that Python has."""
    try:
        return now - age
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _old(source: Source, numbers: Sequence[int], limit: datetime) -> list[int]:
    """Returns those of these versions that were made before `limit`, up to the first that was not."""
    old: list[int] = []
    with closing(PrefetchedVersions(source)) as following:
        for number in numbers:
            summary = following.take(number, newest=numbers[-1])
            if summary is not None and nearest_time(summary.time_us) >= limit:
                break
            old.append(number)
    return old
