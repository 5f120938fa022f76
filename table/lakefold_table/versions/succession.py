"""Whether the file of a version was made from the file that lies in the place before it.

The file of a version may arrive late. Its put was on its way while other clients committed under the same
number, went on, and removed old versions, which freed the name. Then it lies among the versions and is none
of them: a stray file. No store can say so, since a name and a time are all that it knows. The files can:
those made after a stray file don't know it.

A committer notes in each version the transaction of the version that it was made from. Other clients note no
such thing, but they carry the table's metadata on, and with it a committer's marks. What neither tells stays
untold, and a file of which nothing is told counts as a version.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Succession(Enum):
    """Whether one file was made from another: proven, refuted, or neither."""

    FOLLOWS = "follows"
    APART = "apart"
    UNTOLD = "untold"


@dataclass(frozen=True, slots=True)
class Link:
    """What the file of a version tells of itself and of the version that it was made from.

    `uuid`: that of its transaction, empty if it isn't known. `parent`: that of the transaction of the version
    before, empty where nobody noted it. `marks`: the marks as they stand in its metadata, whoever made them;
    None if they were not read. `is_own`: a committer made it. `keeps_marks`: neither it nor any version
    between the two that are compared can have changed the marks.
    """

    uuid: str = ""
    parent: str = ""
    marks: Mapping[str, str] | None = None
    is_own: bool = False
    keeps_marks: bool = False


def succession(before: Link, after: Link) -> Succession:
    """Whether the file `after` was made from the file `before`, or from one that was.

    Only `after.parent` needs the two to be neighbours.

    A committer's marks name its own version, so who carries the very same ones has them from that version or
    from a later one. Other marks refute it where nothing between can have changed them. A file without marks
    tells nothing: some clients drop metadata that they don't know.
    """
    if after.parent and before.uuid:
        return Succession.FOLLOWS if after.parent == before.uuid else Succession.APART
    if after.is_own or not after.marks or before.marks is None:
        return Succession.UNTOLD
    if after.marks == before.marks:
        return Succession.FOLLOWS if before.is_own else Succession.UNTOLD
    return Succession.APART if after.keeps_marks else Succession.UNTOLD
