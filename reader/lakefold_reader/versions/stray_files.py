"""Files among a table's versions that are no versions of it, and what readers do about them.

Such a file arrived late, in a place that a clean-up had freed (`lakefold_table.versions.succession`). Its
number looks like that of a version which is gone, so that is what readers take it for: a reader that stands
before it learns that the next version was cleaned up, and a list of versions passes over it.

To know one costs a look at the version behind it. Who follows versions reads that one next anyway. The newest
version is never such a file: a name is freed only after later versions were made, and the last one stays.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_reader.versions.source import left, numbers_of, read_step, unbroken_from
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, VersionExpiredError
from lakefold_table.lance.carrying import keeps_metadata, transaction_uuid
from lakefold_table.lance.refs.names import branch_root
from lakefold_table.marks.marks import PREFIX, decode_marks
from lakefold_table.marks.record import PARENT, decode_record
from lakefold_table.roots import above
from lakefold_table.storage import open_storage
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.succession import Link, Succession, succession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.versions.source import Source, Step


def link_of(step: Step) -> Link:
    """What a version tells of itself and of the one that it was made from."""
    head = step.head
    marks = None
    if head is not None:
        marks = {key: value for key, value in head.table_metadata.items() if key.startswith(PREFIX)}
    return Link(
        uuid=transaction_uuid(step.transaction, "" if head is None else head.transaction_file),
        parent=step.properties.get(PARENT, "") if step.own else "",
        marks=marks,
        is_own=step.own,
        keeps_marks=keeps_metadata(step.transaction),
    )


def is_stray(source: Source, step: Step, after: Step) -> bool:
    """Whether the file of a version is none of the line that `after`, the next version, belongs to.

    The version is read whole if its head doesn't tell enough.
    """
    before, behind = link_of(step), link_of(after)
    if before.marks is None and not behind.parent:
        if not behind.marks or _carries(step, after):
            return False
        whole = read_step(source, step.version, whole=True)
        if whole is None:
            return False
        before = link_of(whole)
    return succession(before, behind) is Succession.APART


def check_in_line(source: Source, version: int, step: Step | None = None) -> None:
    """Raises `VersionExpiredError` if the file of this version is none; `step`: what it says, if known.

    Where it or the version behind it is gone or can't be read, nothing is told.
    """
    if is_stray_at(source, version, step):
        raise expired_behind(source, version)


def expired_behind(source: Source, version: int) -> VersionExpiredError:
    """The error for a version in whose place lies a file that arrived late."""
    numbers = [number for number in numbers_of(source) if number > version]
    return VersionExpiredError(
        f"version {version} is gone: the file in its place arrived late, and is no version of the table",
        oldest=unbroken_from(numbers) if numbers else version,
        where=source.uri,
        hint=f'{left(numbers)}; "earliest" reads all that is there and goes on from it' if numbers else "",
    )


def missing(source: Source, version: int) -> LakefoldError:
    """The error for a version that isn't there (any more); lists to tell which."""
    numbers = in_line(source, numbers_of(source))
    if version > numbers[-1]:
        message, hint = (
            f"version {version} is not there yet, the newest is {numbers[-1]}",
            "ask for an older one",
        )
    else:
        message = f"version {version} is gone: it was cleaned up"
        hint = f'{left(numbers)}; "earliest" reads all that is there and goes on from it'
    return VersionExpiredError(message, oldest=unbroken_from(numbers), where=source.uri, hint=hint)


def in_line(source: Source, numbers: Sequence[int]) -> list[int]:
    """These numbers, ascending, without those of files that arrived late.

    A clean-up frees a name only with those of all older versions that no tag keeps. So only the oldest ones
    are looked at, up to the first version that no tag keeps.
    """
    found = list(numbers)
    tagged: frozenset[int] | None = None
    for version in numbers[:-1]:
        if is_stray_at(source, version):
            found.remove(version)
            continue
        tagged = tagged_versions(source) if tagged is None else tagged
        if version not in tagged:
            break
    return found


def oldest_of(source: Source) -> int:
    """The oldest version behind which none is missing. Raises `NotATableError` if there is no table."""
    return unbroken_from(in_line(source, numbers_of(source)))


def keeps_names_behind(source: Source, version: int, branch: str) -> bool:
    """Whether this version is there and no tag keeps it: then no clean-up has freed the name behind it.

    Raises `RetryError`, `DamagedError` if the store or a tag can't be read.
    """
    return source.versions.exists(version) and version not in _tagged_on(source, branch)


def is_stray_at(source: Source, version: int, step: Step | None = None) -> bool:
    """Whether the file of this version is none.

    False if it or the one behind it is gone, damaged, or needs features that this release doesn't know.
    """
    with suppress(DamagedError, InvalidError):
        after = read_step(source, version + 1)
        if after is not None:
            step = read_step(source, version) if step is None else step
            return step is not None and is_stray(source, step, after)
    return False


def _carries(step: Step, after: Step) -> bool:
    """Whether another client's version carries the marks that a committer's version was made with."""
    with suppress(DamagedError):
        record = decode_record(step.properties)
        marks = None if after.head is None else decode_marks(after.head.table_metadata)
        if record is None or marks is None or marks.position is None:
            return False
        made = step.version, record.epoch, record.log, record.last_offset
        return made == (marks.version, marks.epoch, marks.position.log, marks.position.offset)
    return False


def tagged_versions(source: Source) -> frozenset[int]:
    """The versions of this line that tags keep; none if the tags can't be read."""
    with suppress(LakefoldError):
        newest = read_step(source, source.versions.latest(), whole=True)
        return _tagged_on(source, newest.branch if newest is not None and newest.branch else "")
    return frozenset()


def _tagged_on(source: Source, branch: str) -> frozenset[int]:
    root = above(source.uri, branch_root(branch)) if branch else source.uri
    storage = open_storage(root, source.options) if branch else source.storage
    return frozenset(tag.version for tag in Refs(storage).tags().values() if (tag.branch or "") == branch)
