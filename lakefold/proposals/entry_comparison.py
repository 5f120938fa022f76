"""Checks whether the entry that is at a position now is the entry that was answered there.

An offset alone doesn't show that. If a log loses its end and new entries are written, they get the same
offsets, and the outcome of a lost entry would be shown as the outcome of a new entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_log.read.anchor import Anchor, contradiction
from lakefold_table.entry import Committed, Entry, Outcome
from lakefold_table.position import Fingerprint, Position

if TYPE_CHECKING:
    from lakefold.proposals.explanation import Explanation
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.lookup import Lookup
    from lakefold_reader.versions.proposals import RecordingVersion
    from lakefold_table.marks.marks import Marks


def differ(outcome: Outcome, entry: Decoded | None) -> bool:
    """Returns whether the keys show that the outcome is of another entry.

    If a key is missing, it isn't compared.
    """
    if not isinstance(entry, Entry) or outcome.position != entry.position:
        return False
    if outcome.uuid and entry.uuid and outcome.uuid != entry.uuid:
        return True
    return bool(outcome.app_id) and (outcome.app_id, outcome.batch_id) != (entry.app_id, entry.batch_id)


def compare(explanation: Explanation, lookup: Lookup, offset: int) -> None:
    """Records in `explanation` if the entry at `offset` is not the entry that was answered there.

    That is decided by the keys, or by the digest of the last entry of the version that records the outcome:
    if the log still has that entry, it has all entries before it. Raises what `Lookup` raises.
    """
    position = Position(lookup.log, offset)
    outcome = next((each for each in explanation.outcomes if each.position == position), None)
    held = _held_at(explanation, position)
    if outcome is None and held is None:
        return
    with lookup.content() as content:
        difference = ""
        if held is not None and held.last_digest:
            difference = contradiction(content, Anchor(held.last, Fingerprint(held.last_digest)))
        is_another = bool(difference) and held is not None and held.last == offset
        start, end = content.reach()
        present = content.first(offset, offset + 1) if start <= offset < end else None
    if present is None:
        return
    if is_another or (outcome is not None and _is_anothers(outcome, explanation)):
        explanation.replace_entry(
            f"{_answered(explanation, outcome, held, offset)} was answered; {present} is there now"
        )
    elif difference and held is not None:
        explanation.unproven = (
            f"whether this is the entry that version {held.version} answered: instead of the last entry of "
            f"that version, {held.last}, {difference}"
        )


def _held_at(explanation: Explanation, position: Position) -> RecordingVersion | None:
    """Returns the version that records the outcome of the entry at the position, None if none is known."""
    held = None if explanation.finding is None else explanation.finding.version
    if held is None or held.log != position.log or not held.first <= position.offset <= held.last:
        return None
    return held


def _is_anothers(outcome: Outcome, explanation: Explanation) -> bool:
    """Returns whether keys, its own or those in the marks, show that the outcome is of another entry."""
    if differ(outcome, explanation.proposal):
        return True
    marks = None if explanation.finding is None else explanation.finding.marks
    return isinstance(outcome.result, Committed) and _was_never_folded(explanation.proposal, marks)


def _was_never_folded(entry: Decoded | None, marks: Marks | None) -> bool:
    """Returns whether the marks have batches of the entry's app, but not this batch."""
    if not isinstance(entry, Entry) or entry.batch_id is None or marks is None:
        return False
    mark = marks.apps.get(entry.app_id)
    return mark is not None and not mark.has(entry.batch_id)


def _answered(
    explanation: Explanation, outcome: Outcome | None, held: RecordingVersion | None, offset: int
) -> str:
    """Returns a description of the entry that was answered: its key, version and digest, as far as known."""
    facts, marks = [], None if explanation.finding is None else explanation.finding.marks
    if outcome is not None and outcome.app_id:
        facts.append(f"{outcome.app_id}:{outcome.batch_id}")
    if outcome is not None and outcome.uuid:
        facts.append(f"uuid {outcome.uuid}")
    if held is not None:
        facts.append(f"version {held.version}")
        if marks is not None and marks.fingerprint and marks.position == Position(held.log, offset):
            facts.append(str(marks.fingerprint))
        elif held.last == offset and held.last_digest:
            facts.append(f"digest {held.last_digest}")
    return f"another entry {offset} ({', '.join(facts) or 'its key is not known'})"
