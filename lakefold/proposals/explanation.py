"""What is known of a proposal, as a value: its outcome, the reason, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lakefold_table.author import Author
from lakefold_table.entry import BUILD_AGAIN, LOOK_FIRST, Committed, Duplicate, Entry, Invalid, Rejected
from lakefold_table.marks.marks import Marks, Rebinding, RebindReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.lookup import PartitionStatus
    from lakefold_reader.versions.proposals import ProposalName, RecordedProposal
    from lakefold_table.entry import Outcome
    from lakefold_table.errors import LakefoldError
    from lakefold_table.position import LogId, Position

COMMITTED: Final = "committed"
DUPLICATE: Final = "duplicate"
WAITING: Final = "waiting"
REPLACED: Final = "replaced"
"""Another entry was answered at this position. The entry that is at it now isn't answered yet."""
ANSWERED: Final = "answered"
"""The entry is below the committed offset of the committers, but its outcome is no longer stored."""
WAIT: Final = (
    "nothing while a committer runs and its lag shrinks; `lakefold status` shows both. "
    "If the lag doesn't shrink, the committer's log lines `parked` and `gap` say why"
)

REGROWN: Final = (
    "the log lost its end and got new entries at the same offsets, so the committer stops with a gap: "
    "restore the lost entries with their offsets and times, or continue without them by "
    "`lakefold committer --accept-new-log`"
)


ROLLED_BACK: Final = (
    'these rows were removed; to put them back, send them with on_rolled_back="again", or with another app_id'
)
REVERTED: Final = (
    "to have it again, `lakefold revert TABLE --version {}`; to correct it, send the corrected batch with "
    '--on-rolled-back again (on_rolled_back="again"), or with another app_id'
)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers and topics, the committers' group, and how many seconds a search may take."""

    kafka: KafkaConfig
    topics: Topics
    group: str
    timeout_s: float


@dataclass
class Explanation:
    """What is known of a proposal. `format`: the name of the table's, `lance` or `delta`.

    `outcomes` are the newest first, those of the log that the table is bound to before those of earlier logs.
    `another` names the entry that was answered at the position and the entry that is there now, if they
    differ; `unproven` says why that isn't known. `known_from` names the source of the decisive outcome.
    `status` is the progress in the partition of `proposal`, or else in that to which the table is bound.
    `before` is the number of waiting proposals before this proposal, `waiting` the number of all that wait
    there. `logs` are those that were searched, the table's own first. `looked_at` and `not_looked_at` name
    for people the sources that were searched, and those that could not be searched with the reason.
    `undoing`: "restore", "revert" or "promote", by which the proposal was undone; empty: none of them, or
    it is not known. `other_client`: who made the version that the proposal conflicts with, if another client
    did and says it.
    """

    table: str
    sought: ProposalName
    format: str
    branch: str = ""
    finding: RecordedProposal | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    known_from: str = ""
    proposal: Decoded | None = None
    status: PartitionStatus | None = None
    before: int | None = None
    waiting: int | None = None
    logs: list[LogId] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)
    trouble: LakefoldError | None = None
    another: str = ""
    unproven: str = ""
    undoing: str = ""
    other_client: Author | None = None

    @property
    def waits(self) -> bool:
        """Whether the proposal was sent, perhaps again, and is not answered yet."""
        if self.proposal is None or self.status is None:
            return False
        position = self.proposal.position
        held = self.finding is not None and self.finding.committed_in is not None
        answered = held or position in {outcome.position for outcome in self.outcomes}
        return not answered and position.offset >= self.status.next_offset

    @property
    def outcome(self) -> Outcome | None:
        """The newest outcome that is not a Duplicate, else the newest one. None while the proposal waits."""
        if self.waits:
            return None
        outcomes = self.outcomes
        if self.sought.offset is not None and self.proposal is not None:
            # The same offset of another log is another proposal.
            outcomes = [outcome for outcome in outcomes if outcome.position == self.proposal.position]
        others = (outcome for outcome in outcomes if not isinstance(outcome.result, Duplicate))
        return next(others, outcomes[0] if outcomes else None)

    @property
    def position(self) -> Position | None:
        """The proposal's position in the log, None if it is not known."""
        if self.outcome is not None:
            return self.outcome.position
        return None if self.proposal is None else self.proposal.position

    @property
    def author(self) -> Author | None:
        """Who sent the proposal, None if that was not said or is not known.

        A version records authors by position. If the position isn't known, it is one that sent all entries.
        """
        if isinstance(self.proposal, Entry) and self.proposal.envelope.HasField("author"):
            return Author.of(self.proposal.envelope.author)
        held = None if self.finding is None else self.finding.version
        if held is None or self.position is not None:
            return None if held is None or self.position is None else held.author_of.get(self.position.offset)
        authors = set(held.author_of.values()) if len(held.author_of) == held.entries else set[Author]()
        return authors.pop() if len(authors) == 1 else None

    @property
    def state(self) -> str:
        """The proposal's state as a single word; empty if nothing is known of the proposal."""
        if self.outcome is not None:
            return self.outcome.kind
        if self.finding is not None and self.finding.committed_in is not None:
            return COMMITTED
        if self.proposal is None and not self.another:
            return ""
        if self.another:
            return REPLACED
        return WAITING if self.waits else ANSWERED

    @property
    def version(self) -> int | None:
        """The version that contains the proposal. None if it was not committed, or the version is unknown."""
        if self.outcome is not None:
            result = self.outcome.result
            if isinstance(result, Committed):
                return result.version
            return result.version or None if isinstance(result, Duplicate) else None
        return (self.finding.committed_in or None) if self.finding is not None else None

    @property
    def rolled_back_by(self) -> int:
        """The version that left the proposal's rows out of the table or undid them, 0 if none is known.

        The key identifies it, which is not always known if the proposal is named by an offset.
        """
        if self.state not in {COMMITTED, DUPLICATE}:
            return 0
        marks = None if self.finding is None else self.finding.marks
        by = 0 if marks is None else marks.rolled_back_by(*self._key)
        result = None if self.outcome is None else self.outcome.result
        return by or (result.rolled_back_by if isinstance(result, Duplicate) else 0)

    @property
    def _key(self) -> tuple[str, int | None, str]:
        """The app id, batch id and uuid of the proposal, as far as they are known."""
        source = self.proposal if isinstance(self.proposal, Entry) else self.outcome or self.sought
        if self.sought.batch_id is not None:
            source = self.sought
        return source.app_id, source.batch_id, source.uuid

    @property
    def advice(self) -> str:
        """What the writer of the proposal, or the operator, should do."""
        if self.rolled_back_by:
            return REVERTED.format(self.rolled_back_by) if self.undoing == "revert" else ROLLED_BACK
        if self.outcome is not None and isinstance(self.outcome.result, Rejected):
            conflict = self.outcome.result.conflict
            if conflict.retryable:
                return f"{BUILD_AGAIN} and send it under the same key"
            return LOOK_FIRST
        if self.outcome is not None and isinstance(self.outcome.result, Invalid):
            return self.outcome.result.hint or "correct the proposal and send it under the same key"
        if self.state == REPLACED:
            return REGROWN
        if self.state == WAITING:
            return self._wrong_partition or WAIT
        if self._given_up:
            return "the table was restored to an earlier copy without it: send it again under its own key"
        if self.state == ANSWERED:
            return (
                "`lakefold redrive` lists the refused proposals; sending it again under its key adds nothing "
                "twice"
            )
        return "nothing"

    @property
    def _given_up(self) -> bool:
        """Whether the proposal was committed to versions that a later `rebind --restored` gave up."""
        finding, at = self.finding, self.position
        if at is None or finding is None or finding.marks is None:
            return False
        if finding.version is not None or finding.committed_in is not None:
            return False
        return any(_gives_up(move, at) for move in finding.marks.moves)

    @property
    def _wrong_partition(self) -> str:
        """What to do if the proposal waits in a log that the table isn't bound to; else empty."""
        marks = None if self.finding is None else self.finding.marks
        bound = None if marks is None else marks.position
        if marks is None or bound is None or self.proposal is None or self.proposal.position.log == bound.log:
            return ""
        if _is_another_of_its_name(marks, bound, self.proposal.position):
            return (
                "the committer stops before it: the table was folded from the topic with id "
                f"{bound.log.topic_id} of cluster {bound.log.cluster_id}, and this is another topic of the "
                "same name. Name the brokers that have that topic, or restore it; or continue with this "
                "topic by `lakefold committer --accept-new-log`"
            )
        return (
            f"it will be Invalid, because the table is bound to {bound.topic}/{bound.log.partition} now: "
            "restart its writer, which looks up the partition, and send it again under the same key"
        )

    def add(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Adds outcomes that were reported. Returns those that were not known before."""
        positions = {outcome.position for outcome in self.outcomes}
        new = [outcome for outcome in outcomes if outcome.position not in positions]

        def order(outcome: Outcome) -> tuple[int, int]:
            log = outcome.position.log
            return self.logs.index(log) if log in self.logs else len(self.logs), -outcome.position.offset

        self.outcomes = sorted((*self.outcomes, *new), key=order)
        return new

    def replace_entry(self, another: str) -> None:
        """Records that the known outcomes and the known entry at their position are of different proposals.

        If the user named an offset, the entry that is there now is meant, so the outcomes are dropped. If the
        user named a key, the proposal that was answered is meant, so the entry is dropped.
        """
        self.another = another
        if self.sought.offset is None:
            self.proposal = None
            return
        self.outcomes, self.known_from = [], ""
        if self.finding is not None:
            self.finding = replace(self.finding, outcomes=(), version=None, committed_in=None)


def _gives_up(move: Rebinding, at: Position) -> bool:
    if move.why is not RebindReason.RESTORED or move.after is None or move.after.log != at.log:
        return False
    last = move.before.offset if move.before is not None and move.before.log == at.log else -1
    return last < at.offset <= move.after.offset


def _is_another_of_its_name(marks: Marks, bound: Position, at: Position) -> bool:
    """Returns whether the topic is another one of the same name, to which no verb has moved the table."""
    if bound.topic != at.topic:
        return False
    if (bound.log.cluster_id, bound.log.topic_id) == (at.log.cluster_id, at.log.topic_id):
        return False
    departures = [move for move in marks.moves if move.before is not None and move.before.log == at.log]
    return not (departures and departures[-1].why.by_verb)
