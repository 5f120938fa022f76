"""Removes old versions that nobody needs any more: no consumer, no tag, nothing within an age.

Which versions go is decided here; that only their files go that no other version, branch or tag needs is left
to pylance's own clean-up, which is told the versions one by one. Files that no version names yet are left
alone for seven days, as they may be of a proposal that waits in the log.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.format.snapshots import Cleaned
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.prefetch import PrefetchedVersions
from lakefold_reader.versions.times import time_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_reader.consumers.consumers import Consumer
    from lakefold_reader.format.source import Source

AGE: Final = timedelta(days=14)
"""As old a version is before it goes, where nothing else is said; what pylance takes, too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a clean-up of one line removes, and what it keeps older versions for.

    `versions`: those to remove. `oldest`, `newest`: what is there now. `held_by`: the consumers that keep
    versions which are old enough to go, the one farthest behind first.
    """

    versions: Sequence[int]
    oldest: int
    newest: int
    held_by: Sequence[Consumer]


def plan(
    source: Source,
    older_than: timedelta = AGE,
    *,
    keep: int = 1,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Plan:
    """Which versions of the line can go: older than this, not among the newest `keep`, needed by no one.

    A consumer needs the version it read last and all after it, one that hasn't committed yet all there are.
    A version that a branch was made from stays, as the branch lives on its files. Reads the heads of the old
    versions. Raises as `Consumers.all` does, `InvalidError` for limits that mean nothing, and where such a
    version is gone: what its branch needs can't be told then.
    """
    if older_than < timedelta(0) or keep < 1:
        raise InvalidError("an age can't be negative, and one version stays", hint="say --keep 1 or more")
    numbers = numbers_of(source)
    consumers = Consumers(source)
    here = sorted(
        (one for one in consumers.all() if one.branch == consumers.branch), key=lambda one: one.version
    )
    kept = consumers.tagged() | _forked(source, consumers, numbers)
    old = _old(source, numbers[:-keep], _before(now(), older_than))
    needed = min((one.version for one in here), default=numbers[-1])
    held = [one for one in here if old and one.version < old[-1]]
    going = [number for number in old if number < needed and number not in kept]
    return Plan(going, numbers[0], numbers[-1], held)


def clean_up(source: Source, planned: Plan, *, dry_run: bool = False) -> Cleaned:
    """Remove the versions of a plan and the files that only they need; `dry_run`: only tell what would go.

    Raises `RetryError` where the store fails midway; asking again goes on.
    """
    if not planned.versions:
        return Cleaned(0, 0, 0)
    return source.format.clean_up(source, planned.newest, planned.versions, dry_run=dry_run)


def _forked(source: Source, consumers: Consumers, numbers: Sequence[int]) -> frozenset[int]:
    """The versions that branches were made from: told versions by number, pylance looks at no branch."""
    forked = consumers.forked()
    gone = sorted(forked.keys() - set(numbers))
    if gone:
        raise InvalidError(
            f"version {gone[0]}, which the branch {forked[gone[0]]} was made from, is gone",
            where=source.uri,
            hint="what that branch needs of this line can't be told: remove the branch, or clean up by "
            "pylance's cleanup_old_versions(older_than=…), which reads all that branches name",
        )
    return frozenset(forked)


def _before(now: datetime, age: timedelta) -> datetime:
    """The time so long ago; the first of all times where there was none."""
    try:
        return now - age
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _old(source: Source, numbers: Sequence[int], limit: datetime) -> list[int]:
    """The oldest of these versions, up to the first one that isn't made before `limit`."""
    found: list[int] = []
    with closing(PrefetchedVersions(source)) as following:
        for number in numbers:
            summary = following.take(number, newest=numbers[-1])
            if summary is not None and time_of(summary.time_us) >= limit:
                break
            found.append(number)
    return found
