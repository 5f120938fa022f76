"""What becomes of a proposal to delete a branch, and of what is proposed for a branch that was deleted.

The version that commits the deletion is the branch's last: its marks say that the branch was dropped, and by
which position. A branch that others need is not deleted. Whoever has sent the proposal removes the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.branch_names import MAIN
from lakefold_table.entry import Invalid
from lakefold_table.marks.marks import Rebinding, RebindReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.entry import Entry
    from lakefold_table.format import State
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import Position

MOST_NAMED: Final = 5
"""A refusal names at most this many tags and branches."""


def deletion_fault(state: State | None, entry: Entry, needed_by: Sequence[str] | None) -> Invalid | None:
    """Returns why a table is not a branch that the entry may delete; None if it may.

    `needed_by`: the tags and branches that need it, None if they are not known.
    """
    envelope = entry.envelope
    if state is None:
        hint = (
            "nothing has to be done, unless another name was meant: `lakefold refs TABLE` lists the branches"
        )
        return Invalid(f"the table at {envelope.table} has no branch {envelope.branch or MAIN}", hint)
    if not state.branch:
        hint = "name a branch in the envelope; `lakefold drop` deletes a table with all its branches"
        return Invalid("the main branch can't be deleted", hint)
    if envelope.app_id or envelope.HasField("batch_id"):
        hint = "leave app_id and batch_id out: a branch that was deleted is not deleted again"
        return Invalid("the deletion of a branch is kept under no batch id", hint)
    if needed_by is None:
        hint = (
            "check the files in `_refs` of the main branch, and that its root is among the committer's roots"
        )
        return Invalid(f"it can't be read which tags and branches need the branch {state.branch}", hint)
    if needed_by:
        more = f" and {len(needed_by) - MOST_NAMED} more" if len(needed_by) > MOST_NAMED else ""
        names = f"{', '.join(needed_by[:MOST_NAMED])}{more}"
        hint = "first delete these by `lakefold tag`, `lakefold consumers` or `lakefold branch`"
        return Invalid(f"the branch {state.branch} is needed by {names}", hint)
    return None


def ended(marks: Marks, at: Position, time_us: int) -> Marks:
    """Returns the marks of a branch's last version, which the entry at this position and time has made."""
    return marks.moved(Rebinding(RebindReason.DROPPED, at, None, time_us))


def after_end(by: Position) -> Invalid:
    """Returns the refusal of what is proposed for a branch after the entry at `by` has deleted it."""
    hint = (
        "`lakefold branch TABLE NAME --delete` removes its files, then a branch of its name can be created; "
        "`lakefold adopt --keep` keeps it"
    )
    return Invalid(f"the branch was deleted by the proposal at {by}", hint)


def after_removal(entry: Entry, last: Position) -> Invalid:
    """Returns the refusal of what is proposed for a branch that no longer exists.

    `last`: the position of the last entry that was committed to it. It has deleted the branch, if no other
    client did.
    """
    envelope = entry.envelope
    message = (
        f"the branch {envelope.branch} of the table at {envelope.table} was deleted; the last proposal that "
        f"was committed to it is {last}"
    )
    return Invalid(
        message, "send this to a branch that exists, or create the branch again: `lakefold branch`"
    )
