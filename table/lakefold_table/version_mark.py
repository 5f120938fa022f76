"""What distinguishes a version from any other of its number, as in a table that was removed and made anew.

Cursors name it, and so do proposals that name a version: tags, branches and restores.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from lakefold_table.entry import Invalid

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.format import State, VersionHead, VersionSummary

MARK_DIGITS: Final = 16


def mark_of(version: State | VersionSummary) -> str:
    """Returns the mark of a version: a digest of its transaction's uuid.

    If no uuid is known, a digest of its time. It is the same whether the version was read by the first bytes
    of its file or whole, and whether the file of its transaction still exists.
    """
    return _digest(version.uuid or str(version.time_us))


def mark_of_head(head: VersionHead) -> str:
    """Returns the mark of a version that a committer made, whose transaction always has a uuid."""
    return _digest(head.uuid)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:MARK_DIGITS]


def version_fault(envelope: Envelope, version: int, mark: str) -> Invalid | None:
    """Returns why a proposal doesn't mean this version, which has this mark ("": not known); None if it does.

    It was made when another version had the number: the table or the branch was made anew since, or restored
    to an earlier copy.
    """
    named = envelope.version_mark
    if not named or not mark or named == mark:
        return None
    return Invalid(
        f"version {version} is another one than when this was proposed: the table or the branch was made "
        "anew, or restored to an earlier copy",
        "choose the version again: `lakefold log TABLE` lists those that exist",
    )
