"""Late versions: files among a table's versions that belong to no version, and what readers do about them.

Such a file was written too late, under a name that a clean-up had freed
(`lakefold_table.versions.succession`). Its number is that of a version which is gone, and readers treat it
so: a reader that would read it next learns that the next version was cleaned up, and a list of versions
leaves it out.

To recognise a late version, the version after it is read. A reader that follows versions reads that version
next anyway. The newest version is never a late version: a name is freed only after later versions were made,
and the last version stays.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_reader.versions.branches import main_and_branch
from lakefold_reader.versions.listing import numbers_of, remaining, unbroken_from
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LakefoldError,
    NotPublishedYetError,
    VersionExpiredError,
)
from lakefold_table.marks.marks import PREFIX, decode_marks
from lakefold_table.marks.record import PARENT, decode_record
from lakefold_table.roots import above
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.succession import Link, Succession, succession
from lakefold_table.versions.version_removals import VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary


def link_of(summary: VersionSummary) -> Link:
    """Returns what a version's file says of itself and of the version that it was made from."""
    marks = None
    if summary.metadata is not None:
        marks = {key: value for key, value in summary.metadata.items() if key.startswith(PREFIX)}
    return Link(
        uuid=summary.uuid,
        parent=summary.properties.get(PARENT, "") if summary.own else "",
        marks=marks,
        is_own=summary.own,
        keeps_marks=summary.keeps_metadata,
    )


def is_late(source: Source, summary: VersionSummary, after: VersionSummary) -> bool:
    """Returns whether the file of a version is a late version beside `after`, the next version.

    The version is read whole if its head doesn't contain enough.
    """
    before, following = link_of(summary), link_of(after)
    if before.marks is None and not following.parent:
        if not following.marks or _carries(summary, after):
            return False
        whole = source.summary(summary.version, whole=True)
        if whole is None:
            return False
        before = link_of(whole)
    return succession(before, following) is Succession.APART


def check_not_late(source: Source, version: int, summary: VersionSummary | None = None) -> None:
    """Raises `VersionExpiredError` if the file of this version is a late version.

    `summary`: the version's, if known. Does nothing if the version or the next one is gone or can't be
    read.
    """
    if is_late_at(source, version, summary):
        raise expired_late(source, version)


def expired_late(source: Source, version: int) -> VersionExpiredError:
    """Returns the error for a version whose number a late version has."""
    numbers = [number for number in numbers_of(source) if number > version]
    return VersionExpiredError(
        f"version {version} is gone: the file of that number is a late version, written too late",
        oldest=unbroken_from(numbers) if numbers else version,
        where=source.uri,
        hint=f'{remaining(numbers)}; start from "earliest" to read all that exists and continue from there'
        if numbers
        else "",
    )


def missing(source: Source, version: int) -> LakefoldError:
    """Returns the error for a version that does not exist (any more).

    Lists the versions to find out which it is.
    """
    numbers = without_late(source, numbers_of(source))
    oldest = unbroken_from(numbers)
    if version > numbers[-1]:
        return NotPublishedYetError(version, newest=numbers[-1], oldest=oldest, where=source.uri)
    message = f"version {version} is gone: it was cleaned up"
    hint = f'{remaining(numbers)}; start from "earliest" to read all that exists and continue from there'
    return VersionExpiredError(message, oldest=oldest, where=source.uri, hint=hint)


def without_late(source: Source, numbers: Sequence[int]) -> list[int]:
    """Returns these numbers, ascending, without those of late versions.

    A clean-up frees a name only together with those of all older versions that no tag keeps. So only the
    oldest versions are checked, up to the first version that no tag keeps.
    """
    kept = list(numbers)
    tagged: frozenset[int] | None = None
    for version in numbers[:-1]:
        if is_late_at(source, version):
            kept.remove(version)
            continue
        tagged = tagged_versions(source) if tagged is None else tagged
        if version not in tagged:
            break
    return kept


def oldest_of(source: Source) -> int:
    """Returns the oldest version after which none is missing, nor may miss what it needs.

    A clean-up that was killed may have left versions whose files are gone. Raises `NotATableError` if the
    table does not exist.
    """
    numbers = numbers_of(source)
    main, branch = main_and_branch(source)
    going = VersionRemovals(main.storage).begun(branch)
    return unbroken_from(without_late(source, [number for number in numbers if number not in going]))


def keeps_names_behind(source: Source, version: int, branch: str) -> bool:
    """Returns whether this version exists and no tag keeps it: then no clean-up has freed the name after it.

    Raises `RetryError`, `DamagedError` if the store or a tag can't be read.
    """
    return source.versions.exists(version) and version not in _tagged_on(source, branch)


def is_late_at(source: Source, version: int, summary: VersionSummary | None = None) -> bool:
    """Returns whether the file of this version is a late version.

    Returns False if it or the next version is gone, damaged, or needs features that this release doesn't
    know.
    """
    with suppress(DamagedError, InvalidError):
        after = source.summary(version + 1)
        if after is not None:
            summary = source.summary(version) if summary is None else summary
            return summary is not None and is_late(source, summary, after)
    return False


def _carries(summary: VersionSummary, after: VersionSummary) -> bool:
    """Returns whether another client's version carries the marks that a committer's version was made with."""
    with suppress(DamagedError):
        record = decode_record(summary.properties)
        marks = None if after.metadata is None else decode_marks(after.metadata)
        if record is None or marks is None or marks.position is None:
            return False
        own_marks = summary.version, record.epoch, record.log, record.last_offset
        return own_marks == (marks.version, marks.epoch, marks.position.log, marks.position.offset)
    return False


def tagged_versions(source: Source) -> frozenset[int]:
    """Returns the versions of this branch that have tags; none if the tags can't be read."""
    with suppress(LakefoldError):
        newest = source.summary(source.versions.latest(), whole=True)
        return _tagged_on(source, newest.branch if newest is not None and newest.branch else "")
    return frozenset()


def _tagged_on(source: Source, branch: str) -> frozenset[int]:
    root = source.other(above(source.uri, source.format.branch_root(branch))) if branch else source
    storage = root.storage
    return frozenset(tag.version for tag in Refs(storage).tags().values() if (tag.branch or "") == branch)
