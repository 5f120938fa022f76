"""Asks the topics about one proposal, in every partition where it may stand.

That is mostly one, the one that the table is bound to. But a table may have been moved, and its marks
remember from where; and who doesn't look at marks sends to the partition that the table's name is hashed to,
where it is answered Invalid. So these are asked too, until one of them tells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

from lakefold.proposals.entry_comparison import compare, differ
from lakefold_log.read.lookup import Lookup
from lakefold_table.entry import Committed, Duplicate, Entry
from lakefold_table.errors import InvalidError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold.proposals.explanation import Brokers, Explanation
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.lookup import Standing
    from lakefold_table.entry import Outcome
    from lakefold_table.position import LogId


def ask_the_log(told: Explanation, brokers: Brokers) -> None:
    """Adds to what is told what the topics know.

    Raises what `Lookup` does where a question can't be answered, but for places that aren't there any more:
    those are noted.
    """
    for place in _places(told, brokers):
        if place.log not in told.logs:
            told.logs.append(place.log)
        told.standing = told.standing or place.standing
        where = told.outcome.position.log if _is_committed(told.outcome) else place.log
        if told.sought.offset is None and where != place.log:
            # What it was is all that there is to ask, and that only where it stands.
            continue
        place.ask()
        if place.tells:
            return


def _places(told: Explanation, brokers: Brokers) -> Iterator[_Place]:
    """The partitions to ask, each once: the table's own, those that it left, newest first, then its home."""
    marks = None if told.finding is None else told.finding.marks
    bound: list[Position | None] = []
    if marks is not None:
        bound = [marks.position, *(move.before for move in reversed(marks.moves))]
    seen: set[LogId] = set()
    for position in (*(one for one in bound if one is not None), None):
        if position is not None and position.log in seen:
            continue
        lookup = _lookup(told, brokers, position)
        if lookup is None or lookup.log in seen:
            continue
        seen.add(lookup.log)
        place = _Place(told, lookup, lookup.standing(brokers.group))
        if told.sought.may_lie_in(place.start):
            yield place


def _lookup(told: Explanation, brokers: Brokers, position: Position | None) -> Lookup | None:
    """Questions about the partition of a position (None: where the table's name is hashed to).

    None where the brokers don't hold it any more, which is noted.
    """
    topics, partition = brokers.topics, None
    if position is not None:
        partition = position.log.partition
        topics = replace(topics, transactions=position.topic or topics.transactions)
    try:
        lookup = Lookup(brokers.kafka, topics, told.table, partition, timeout_s=brokers.timeout_s)
    except InvalidError as error:
        if position is None:
            raise
        told.not_looked_at.append(f"{position.log}: {error}")
        return None
    if position is not None and position.log != lookup.log:
        told.not_looked_at.append(f"{position.log}: the brokers hold another log, {lookup.log}")
        return None
    return lookup


@dataclass(frozen=True, slots=True)
class _Place:
    """One partition that is asked about the proposal, and where it stood then."""

    told: Explanation
    lookup: Lookup
    standing: Standing

    @property
    def log(self) -> LogId:
        """Which log it is."""
        return self.lookup.log

    @property
    def start(self) -> Position:
        """Its first position."""
        return Position(self.log, self.standing.start, self.standing.topic)

    @property
    def tells(self) -> bool:
        """Whether it told what became of the proposal, or that it waits."""
        told = self.told
        if told.proposal is not None and told.sought.offset is not None:
            return True
        outcome = told.outcome
        if outcome is None:
            return told.waits
        return outcome.position.log == self.log and not isinstance(outcome.result, Duplicate)

    def ask(self) -> None:
        """Looks for it."""
        told, offset = self.told, self.told.sought.offset
        if offset is not None:
            self._take(self._entry_at(offset))
            compare(told, self.lookup, offset)
        if not _is_committed(told.outcome):
            self._ask_for_outcomes()
        if told.proposal is None and offset is None and told.version is None:
            self._take(self._waiting())
        if told.proposal is None and told.outcome is not None and told.outcome.position.log == self.log:
            self._take(self._entry_at(told.outcome.position.offset))
            if offset is None:
                compare(told, self.lookup, told.outcome.position.offset)
        if told.waits:
            waiting = self.lookup.waiting(self.standing)
            told.before = None if told.position is None else waiting(told.position.offset)
            told.waiting = waiting(self.standing.end)

    def _take(self, proposal: Decoded | None) -> None:
        """Take what was proposed, where it stands here."""
        if proposal is not None:
            self.told.proposal, self.told.standing = proposal, self.standing

    def _ask_for_outcomes(self) -> None:
        told, place = self.told, self.lookup.outcomes_place

        def wanted(outcome: Outcome) -> bool:
            if told.sought.offset is None and outcome.branch != told.branch:
                return False
            if told.sought.offset is not None and differ(outcome, told.proposal):
                # Of an entry that the log has lost since.
                return False
            # Outcomes of a log that is gone stand beside the others.
            elsewhere = told.sought.offset is None or told.sought.place is not None
            return told.sought.is_of(outcome) and (elsewhere or outcome.position.log == self.log)

        told.looked_at.append(f"the outcomes in {place}")
        answers = self.lookup.outcomes(wanted, self.standing.trust)
        reported = {outcome.position: (at, outcome) for at, outcome in answers}
        new = told.add(outcome for _, outcome in reported.values())
        if told.outcome in new:
            at, _ = reported[told.outcome.position]
            told.told_by = f"the outcome at {place}@{at}"

    def _waiting(self) -> Entry | None:
        """It, where the committer has still to come to it, perhaps sent again after a refusal."""
        told, standing, sought = self.told, self.standing, self.told.sought
        place = f"{standing.topic}/{standing.log.partition}"
        told.looked_at.append(f"the waiting proposals in {place}, from offset {standing.next_offset}")

        def wanted(entry: Entry) -> bool:
            if entry.envelope.branch != told.branch:
                return False
            if sought.batch_id is None:
                return entry.uuid == sought.uuid
            return (entry.app_id, entry.batch_id) == (sought.app_id, sought.batch_id)

        return self.lookup.newest_entry(wanted, from_offset=standing.next_offset)

    def _entry_at(self, offset: int) -> Decoded | None:
        """What stands there, where it is for this table."""
        told, found = self.told, self.lookup.entry_at(offset)
        place = f"offset {offset} of {self.standing.topic}/{self.log.partition}"
        if found is None:
            told.looked_at.append(f"{place}, which the log doesn't hold")
            return None
        table = found.envelope.table if isinstance(found, Entry) else found.table
        if table == told.table:
            told.looked_at.append(place)
            return found
        told.looked_at.append(f"{place}, which is for {table or 'no table'}")
        return None


def _is_committed(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and isinstance(outcome.result, Committed)
