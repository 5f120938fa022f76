"""Finds the start of a read of changes, and divides the parts of a change feed into tasks.

A table's whole content at a version is read in the same way: as inserts of all its rows. So a query that
begins with the content and continues with the changes has one form of rows, and one way to read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_reader.format.source import ChangePart, Source
from lakefold_reader.spark.options import LATEST, Given
from lakefold_reader.spark.partitions import Cut, grouped
from lakefold_reader.versions.as_of import version_as_of
from lakefold_reader.versions.late_versions import missing, oldest_of
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.start import EARLIEST
from lakefold_reader.versions.times import time_of
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Sequence

Task = tuple[ChangePart, ...]
"""The parts that one task reads."""


@dataclass(frozen=True, slots=True)
class FeedStart:
    """The start of a read of changes: after version `after`. `whole`: with all rows of that version."""

    after: int
    whole: bool = False


def begin(source: Source, given: Given) -> FeedStart | None:
    """Returns the start that the user set, or None. Raises `InvalidError`, `VersionExpiredError`."""
    version, moment = given.value("startingVersion"), given.value("startingTimestamp")
    if moment is not None:
        return FeedStart(_before(source, moment))
    if version is None:
        return None
    numbers = numbers_of(source)
    if version == EARLIEST:
        return FeedStart(oldest_of(source), whole=True)
    if version == LATEST:
        return FeedStart(numbers[-1])
    if version > numbers[-1] + 1:
        raise missing(source, version)
    return FeedStart(max(source.versions.first, version) - 1)


def _before(source: Source, moment: int) -> int:
    """Returns the version before the first version of this time or later."""
    newest = numbers_of(source)[-1]
    try:
        version = version_as_of(source, moment - 1)
    except VersionExpiredError:
        raise
    except InvalidError:
        return source.versions.first - 1
    if version == newest:
        hint = 'give an earlier time; startingVersion "latest" reads what comes after the start'
        message = f"the newest version, {newest}, is older than {time_of(moment)}"
        raise InvalidError(message, where="startingTimestamp", hint=hint)
    return version


def content(source: Source, version: int, to: int) -> list[ChangePart]:
    """Returns a version's whole content as inserts in the columns of version `to`.

    Raises `VersionExpiredError`.
    """
    return list(source.format.feed.plan_content(source, version, to))


def tasks(parts: Sequence[ChangePart], cut: Cut) -> list[Task]:
    """Returns the parts in their order, with neighbours in one task."""
    return grouped(parts, lambda part: part.cost.bytes, cut)
