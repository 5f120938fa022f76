"""Whether the entry that stands at a position now is the one that was answered there.

An offset doesn't prove it. A log that lost its end and grew again holds other entries at the same offsets,
and a person would take the answer to a lost proposal for the answer to the entry that stands there now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_log.read.anchor import Anchor, contradiction
from lakefold_table.entry import Committed, Entry
from lakefold_table.position import Fingerprint, Position

if TYPE_CHECKING:
    from lakefold.proposals.explanation import Explanation
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.lookup import Lookup
    from lakefold_reader.versions.proposals import RecordingVersion
    from lakefold_table.entry import Outcome
    from lakefold_table.marks.marks import Marks


def differ(outcome: Outcome, entry: Decoded | None) -> bool:
    """Whether their keys show that the outcome is another entry's. A key that either lacks shows nothing."""
    if not isinstance(entry, Entry) or outcome.position != entry.position:
        return False
    if outcome.uuid and entry.uuid and outcome.uuid != entry.uuid:
        return True
    return bool(outcome.app_id) and (outcome.app_id, outcome.batch_id) != (entry.app_id, entry.batch_id)


def compare(told: Explanation, lookup: Lookup, offset: int) -> None:
    """Note in `told` if the log holds another entry at `offset` than the one that was answered there.

    Keys show it, or the digest of the last entry of the version that holds the answer: if that entry is still
    there, so are all below it. Raises as `Lookup` does.
    """
    position = Position(lookup.log, offset)
    outcome = next((one for one in told.outcomes if one.position == position), None)
    held = _held_at(told, position)
    if outcome is None and held is None:
        return
    with lookup.content() as content:
        now = ""
        if held is not None and held.last_digest:
            now = contradiction(content, Anchor(held.last, Fingerprint(held.last_digest)))
        is_another = bool(now) and held is not None and held.last == offset
        start, end = content.reach()
        there = content.first(offset, offset + 1) if start <= offset < end else None
    if there is None:
        return
    if is_another or (outcome is not None and _is_anothers(outcome, told)):
        told.replace_entry(f"{_answered(told, outcome, held, offset)} was answered; {there} stands there now")
    elif now and held is not None:
        told.unproven = (
            f"whether this is the entry that version {held.version} answered: instead of the last entry that "
            f"the version answered, {held.last}, {now}"
        )


def _held_at(told: Explanation, position: Position) -> RecordingVersion | None:
    """The version that says what became of the entry at the position. Returns None if none is known."""
    held = None if told.finding is None else told.finding.version
    if held is None or held.log != position.log or not held.first <= position.offset <= held.last:
        return None
    return held


def _is_anothers(outcome: Outcome, told: Explanation) -> bool:
    """Whether keys show that the outcome is another entry's: its own, or those that the table remembers."""
    if differ(outcome, told.proposal):
        return True
    marks = None if told.finding is None else told.finding.marks
    return isinstance(outcome.result, Committed) and _was_never_folded(told.proposal, marks)


def _was_never_folded(entry: Decoded | None, marks: Marks | None) -> bool:
    """Whether the marks remember the entry's app, and not this batch of it."""
    if not isinstance(entry, Entry) or entry.batch_id is None or marks is None:
        return False
    mark = marks.apps.get(entry.app_id)
    return mark is not None and not mark.has(entry.batch_id)


def _answered(told: Explanation, outcome: Outcome | None, held: RecordingVersion | None, offset: int) -> str:
    """The entry that was answered, by what is known of it."""
    known, marks = [], None if told.finding is None else told.finding.marks
    if outcome is not None and outcome.app_id:
        known.append(f"{outcome.app_id}:{outcome.batch_id}")
    if outcome is not None and outcome.uuid:
        known.append(f"uuid {outcome.uuid}")
    if held is not None:
        known.append(f"version {held.version}")
        if marks is not None and marks.fingerprint and marks.position == Position(held.log, offset):
            known.append(str(marks.fingerprint))
        elif held.last == offset and held.last_digest:
            known.append(f"digest {held.last_digest}")
    return f"another entry {offset} ({', '.join(known) or 'its key is not known'})"
