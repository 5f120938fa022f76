"""Searches the topics for a proposal, in every partition that may contain it.

Usually that is only the partition that the table is bound to. But the table may have been moved, and its
marks record from where. And a client that doesn't read the marks sends to the partition that the table's URI
hashes to, where the proposal is answered Invalid. So these partitions are searched as well, until one of them
has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

from lakefold.proposals.entry_comparison import compare, differ
from lakefold_log.read.lookup import Lookup, PartitionStatus
from lakefold_table.branch_names import names_of, root_of
from lakefold_table.entry import Committed, Duplicate, Entry, Outcome
from lakefold_table.errors import InvalidError
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold.proposals.explanation import Brokers, Explanation
    from lakefold_log.codec.envelope import Decoded


def search_the_topics(explanation: Explanation, brokers: Brokers) -> None:
    """Adds to `explanation` what the topics contain about the proposal.

    A log that the brokers no longer have is recorded in `not_looked_at`. Raises what `Lookup` raises if the
    brokers don't answer.
    """
    for partition in _partitions(explanation, brokers):
        if partition.log not in explanation.logs:
            explanation.logs.append(partition.log)
        explanation.status = explanation.status or partition.status
        log = explanation.outcome.position.log if _is_committed(explanation.outcome) else partition.log
        if explanation.sought.offset is None and log != partition.log:
            # The outcome is known; only the proposal's content is missing, which is in the other log.
            continue
        partition.search()
        if partition.has_result:
            return


def _partitions(explanation: Explanation, brokers: Brokers) -> Iterator[_Partition]:
    """Yields the partitions to search: the table's own, its earlier ones, and that of its URI's hash."""
    marks = None if explanation.finding is None else explanation.finding.marks
    bound: list[Position | None] = []
    if marks is not None:
        bound = [marks.position, *(move.before for move in reversed(marks.moves))]
    searched: set[LogId] = set()
    for position in (*(each for each in bound if each is not None), None):
        if position is not None and position.log in searched:
            continue
        lookup = _lookup(explanation, brokers, position)
        if lookup is None or lookup.log in searched:
            continue
        searched.add(lookup.log)
        partition = _Partition(explanation, lookup, lookup.status(brokers.group))
        if explanation.sought.may_lie_in(partition.start):
            yield partition


def _lookup(explanation: Explanation, brokers: Brokers, position: Position | None) -> Lookup | None:
    """Returns a lookup in the partition of a position (None: that to which the table's URI hashes).

    Returns None, and records that, if the brokers no longer have this log.
    """
    topics, partition, branch = brokers.topics, None, explanation.branch
    if position is not None:
        partition = position.log.partition
        topics = replace(topics, transactions=position.topic or topics.transactions)
    try:
        lookup = Lookup(
            brokers.kafka,
            topics,
            explanation.table,
            partition,
            branch=branch,
            timeout_s=brokers.timeout_s,
        )
    except InvalidError as error:
        if position is None:
            raise
        explanation.not_looked_at.append(f"{position.log}: {error}")
        return None
    if position is not None and position.log != lookup.log:
        explanation.not_looked_at.append(f"{position.log}: the brokers have another log, {lookup.log}")
        return None
    return lookup


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition that is searched for the proposal, and its progress at that time."""

    explanation: Explanation
    lookup: Lookup
    status: PartitionStatus

    @property
    def log(self) -> LogId:
        """The log of this partition."""
        return self.lookup.log

    @property
    def start(self) -> Position:
        """Its first position."""
        return Position(self.log, self.status.start, self.status.topic)

    @property
    def has_result(self) -> bool:
        """Whether this partition had the outcome of the proposal, or the proposal waits in it."""
        explanation = self.explanation
        if explanation.proposal is not None and explanation.sought.offset is not None:
            return True
        outcome = explanation.outcome
        if outcome is None:
            return explanation.waits
        return outcome.position.log == self.log and not isinstance(outcome.result, Duplicate)

    def search(self) -> None:
        """Searches the outcomes and the log for the proposal, and adds what it finds to the explanation."""
        explanation, offset = self.explanation, self.explanation.sought.offset
        if offset is not None:
            self._take(self._entry_at(offset))
            compare(explanation, self.lookup, offset)
        if not _is_committed(explanation.outcome):
            self._search_outcomes()
        if explanation.proposal is None and offset is None and explanation.version is None:
            self._take(self._waiting())
        if (
            explanation.proposal is None
            and explanation.outcome is not None
            and explanation.outcome.position.log == self.log
        ):
            self._take(self._entry_at(explanation.outcome.position.offset))
            if offset is None:
                compare(explanation, self.lookup, explanation.outcome.position.offset)
        if explanation.waits:
            waiting = self.lookup.waiting(self.status)
            explanation.before = (
                None if explanation.position is None else waiting(explanation.position.offset)
            )
            explanation.waiting = waiting(self.status.end)

    def _take(self, proposal: Decoded | None) -> None:
        """Records the proposal if this partition has it."""
        if proposal is not None:
            self.explanation.proposal, self.explanation.status = proposal, self.status

    def _is_of_branch(self, table: str, branch: str) -> bool:
        """Returns whether an entry or outcome that names this table and branch is for the branch."""
        return root_of(table, branch) == root_of(self.explanation.table, self.explanation.branch)

    def _search_outcomes(self) -> None:
        explanation, partition = self.explanation, self.lookup.outcomes_where

        def matches(outcome: Outcome) -> bool:
            if explanation.sought.offset is None and not self._is_of_branch(outcome.table, outcome.branch):
                return False
            if explanation.sought.offset is not None and differ(outcome, explanation.proposal):
                # It is the outcome of an entry that the log has lost since.
                return False
            # The topic also has outcomes of entries in earlier logs.
            any_log = explanation.sought.offset is None or explanation.sought.log is not None
            return explanation.sought.is_of(outcome) and (any_log or outcome.position.log == self.log)

        explanation.looked_at.append(f"the outcomes in {partition}")
        answers = self.lookup.outcomes(matches, self.status.signers)
        reported = {outcome.position: (at, outcome) for at, outcome in answers}
        new = explanation.add(outcome for _, outcome in reported.values())
        if explanation.outcome in new:
            at, _ = reported[explanation.outcome.position]
            explanation.known_from = f"the outcome at {partition}@{at}"

    def _waiting(self) -> Entry | None:
        """Returns the proposal if it waits in this partition, perhaps sent again, else None."""
        explanation, status, sought = self.explanation, self.status, self.explanation.sought
        partition = f"{status.topic}/{status.log.partition}"
        explanation.looked_at.append(
            f"the waiting proposals in {partition}, from offset {status.next_offset}"
        )

        def matches(entry: Entry) -> bool:
            if not self._is_of_branch(entry.envelope.table, entry.envelope.branch):
                return False
            if sought.batch_id is None:
                return entry.uuid == sought.uuid
            return (entry.app_id, entry.batch_id) == (sought.app_id, sought.batch_id)

        return self.lookup.newest_entry(matches, from_offset=status.next_offset)

    def _entry_at(self, offset: int) -> Decoded | None:
        """Returns the entry at an offset if it is for this table, else None."""
        explanation, entry = self.explanation, self.lookup.entry_at(offset)
        position = f"offset {offset} of {self.status.topic}/{self.log.partition}"
        if entry is None:
            explanation.looked_at.append(f"{position}, which the log doesn't contain")
            return None
        table = entry.envelope.table if isinstance(entry, Entry) else entry.table
        if table in names_of(explanation.table, explanation.branch):
            explanation.looked_at.append(position)
            return entry
        explanation.looked_at.append(f"{position}, which is for {table or 'no table'}")
        return None


def _is_committed(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and isinstance(outcome.result, Committed)
