"""Whether the file of a version was made from the file before it.

The file of a version may arrive late: its put was under way while other clients committed under the same
number, committed more, and removed old versions, which freed the name. Then it is stored among the versions,
but belongs to none: a late version. The store can't detect that, since it knows only names and times. The
files can: those made after a late version don't name it.

A committer records in each version the transaction of the version that it was made from. Other clients don't,
but they carry the table's metadata on, and with it a committer's marks. If neither answers the question, the
file counts as a version.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lakefold_table.marks.marks import PREFIX
from lakefold_table.marks.record import PARENT, is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.format import State, VersionSummary


class Succession(Enum):
    """Whether a file was made from another: yes, no, or not known."""

    FOLLOWS = "follows"
    APART = "apart"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Link:
    """The facts in the file of a version about itself and about the version that it was made from.

    `uuid`: that of its transaction, empty if it isn't known. `parent`: that of the transaction of the version
    before, empty if it is not recorded. `marks`: the marks in its metadata, whichever client wrote them; None
    if they were not read. `is_own`: a committer made it. `keeps_marks`: neither it nor any version between
    the two that are compared can have changed the marks.
    """

    uuid: str = ""
    parent: str = ""
    marks: Mapping[str, str] | None = None
    is_own: bool = False
    keeps_marks: bool = False


def link_of(state: State) -> Link:
    """Returns what a version records of itself and of the version that it was made from."""
    made_here = is_own(state.properties, state.version)
    return Link(
        uuid=state.uuid,
        parent=state.properties.get(PARENT, "") if made_here else "",
        marks={key: value for key, value in state.metadata.items() if key.startswith(PREFIX)},
        is_own=made_here,
        keeps_marks=state.keeps_metadata,
    )


def link_of_summary(summary: VersionSummary) -> Link:
    """Returns what `link_of` returns, with a digest of the marks. Compare it only with that of a summary."""
    made_here = is_own(summary.properties, summary.version)
    return Link(
        uuid=summary.uuid,
        parent=summary.properties.get(PARENT, "") if made_here else "",
        marks={PREFIX: summary.marks} if summary.marks else {},
        is_own=made_here,
        keeps_marks=summary.keeps_metadata,
    )


def succession(before: Link, after: Link) -> Succession:
    """Returns whether the file `after` was made from the file `before`, or from a version that was.

    `after.parent` is set only if the two versions are adjacent.

    A committer's marks name its own version, so a file with the very same marks has them from that version or
    from a later one. If the marks differ, and no version in between can have changed them, it was not made
    from it. A file without marks says nothing: some clients drop metadata that they don't know.
    """
    if after.parent and before.uuid:
        return Succession.FOLLOWS if after.parent == before.uuid else Succession.APART
    if after.is_own or not after.marks or before.marks is None:
        return Succession.UNKNOWN
    if after.marks == before.marks:
        return Succession.FOLLOWS if before.is_own else Succession.UNKNOWN
    return Succession.APART if after.keeps_marks else Succession.UNKNOWN
