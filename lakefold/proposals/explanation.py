"""What is known of one proposal, as a value: what became of it, why, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lakefold_table.entry import BUILD_AGAIN, LOOK_FIRST, Committed, Duplicate, Entry, Invalid, Rejected
from lakefold_table.marks.marks import RebindReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.lookup import Standing
    from lakefold_reader.versions.proposals import Finding, Sought
    from lakefold_table.entry import Outcome
    from lakefold_table.errors import LakefoldError
    from lakefold_table.marks.marks import Marks, Rebinding
    from lakefold_table.position import LogId, Position

COMMITTED: Final = "committed"
DUPLICATE: Final = "duplicate"
REJECTED: Final = "rejected"
INVALID: Final = "invalid"
WAITING: Final = "waiting"
REPLACED: Final = "replaced"
"""Another entry stood here when it was answered; this one isn't answered yet."""
UNTOLD: Final = "answered"
"""It lies below what the committer has answered, but no outcome of it is left."""
WAIT: Final = (
    "nothing while a committer runs and its lag shrinks; `lakefold status` shows both. "
    "Where it doesn't shrink, the committer's log lines `parked` and `gap` say why"
)

REGROWN: Final = (
    "the log lost its end and grew again, so the committer stops with a gap: bring the lost entries back as "
    "they were, with their offsets and times; `lakefold committer --accept-new-log` goes on without them"
)


ROLLED_BACK: Final = (
    "nothing, if its rows are to stay away; else send them under another key, as this one is folded once: "
    "a sink under another app_id"
)


@dataclass(frozen=True, slots=True)
class Brokers:
    """Where the topics are, and how long to look. `group` is the committer's."""

    kafka: KafkaConfig
    topics: Topics
    group: str
    timeout_s: float


@dataclass
class Explanation:
    """What is known of a proposal.

    `outcomes`: newest first, those of the log that the table is bound to before those of logs that it left.
    `another`: which entry was answered at the position, and which stands there now, if they are not the same;
    `unproven`: why it isn't known whether they are.
    `told_by`: where the decisive one stands. `standing`: of the partition that `proposal` stands in, else of
    the one that the table is bound to. `before`: how many proposals stand before one that waits and wait as
    well; `waiting`: how many wait there in all. `logs`: those that were asked, the
    table's own first. `looked_at` and `not_looked_at` say for people which places
    were asked, and which could not be asked and why.
    """

    table: str
    sought: Sought
    branch: str = ""
    finding: Finding | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    told_by: str = ""
    proposal: Decoded | None = None
    standing: Standing | None = None
    before: int | None = None
    waiting: int | None = None
    logs: list[LogId] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)
    trouble: LakefoldError | None = None
    another: str = ""
    unproven: str = ""

    @property
    def waits(self) -> bool:
        """Whether it was sent, perhaps again, and the committer has not come to it yet."""
        if self.proposal is None or self.standing is None:
            return False
        position = self.proposal.position
        held = self.finding is not None and self.finding.committed_in is not None
        answered = held or position in {one.position for one in self.outcomes}
        return not answered and position.offset >= self.standing.next_offset

    @property
    def outcome(self) -> Outcome | None:
        """The one that decided: the newest that is no Duplicate, else the newest. None while it waits."""
        if self.waits:
            return None
        told = self.outcomes
        if self.sought.offset is not None and self.proposal is not None:
            # The same offset of another log is another proposal.
            told = [one for one in told if one.position == self.proposal.position]
        others = (one for one in told if not isinstance(one.result, Duplicate))
        return next(others, told[0] if told else None)

    @property
    def position(self) -> Position | None:
        """Where it stands in the log, as far as that is known."""
        if self.outcome is not None:
            return self.outcome.position
        return None if self.proposal is None else self.proposal.position

    @property
    def state(self) -> str:
        """What became of it, in a word; empty where nothing is known of it."""
        if self.outcome is not None:
            kinds = {Committed: COMMITTED, Duplicate: DUPLICATE, Rejected: REJECTED, Invalid: INVALID}
            return kinds[type(self.outcome.result)]
        if self.finding is not None and self.finding.committed_in is not None:
            return COMMITTED
        if self.proposal is None and not self.another:
            return ""
        if self.another:
            return REPLACED
        return WAITING if self.waits else UNTOLD

    @property
    def version(self) -> int | None:
        """The version that holds it, where it is committed and that is known."""
        if self.outcome is not None:
            result = self.outcome.result
            return result.version or None if isinstance(result, Committed | Duplicate) else None
        return (self.finding.committed_in or None) if self.finding is not None else None

    @property
    def rolled_back_by(self) -> int:
        """The version of the Restore that left its rows out of the table, 0 if none is known.

        The marks tell it by the key, which isn't known of every proposal that is named by an offset.
        """
        if self.state not in {COMMITTED, DUPLICATE}:
            return 0
        marks = None if self.finding is None else self.finding.marks
        by = 0 if marks is None else marks.rolled_back_by(*self._key)
        result = None if self.outcome is None else self.outcome.result
        return by or (result.rolled_back_by if isinstance(result, Duplicate) else 0)

    @property
    def _key(self) -> tuple[str, int | None, str]:
        """App id, batch id and uuid, as far as they are known."""
        known = self.proposal if isinstance(self.proposal, Entry) else self.outcome or self.sought
        return known.app_id, known.batch_id, known.uuid

    @property
    def advice(self) -> str:
        """What its writer or the operator should do."""
        if self.rolled_back_by:
            return ROLLED_BACK
        if self.outcome is not None and isinstance(self.outcome.result, Rejected):
            conflict = self.outcome.result.conflict
            if conflict.retryable:
                return f"{BUILD_AGAIN} and send it under the same key"
            return LOOK_FIRST
        if self.outcome is not None and isinstance(self.outcome.result, Invalid):
            return self.outcome.result.hint or "mend the proposal and send it under the same key"
        if self.state == REPLACED:
            return REGROWN
        if self.state == WAITING:
            return self._stray or WAIT
        if self._given_up:
            return (
                "the table was set back behind it since and doesn't hold it: send it again under its own key"
            )
        if self.state == UNTOLD:
            return "`lakefold redrive` lists the refused proposals; sending it again is safe, it has its key"
        return "nothing"

    @property
    def _given_up(self) -> bool:
        """Whether it was committed into what a later `rebind --restored` gave up."""
        found, at = self.finding, self.position
        if at is None or found is None or found.marks is None:
            return False
        if found.version is not None or found.committed_in is not None:
            return False
        return any(_gives_up(move, at) for move in found.marks.moves)

    @property
    def _stray(self) -> str:
        """What to do about one that waits where the table isn't bound; empty where it is."""
        marks = None if self.finding is None else self.finding.marks
        bound = None if marks is None else marks.position
        if marks is None or bound is None or self.proposal is None or self.proposal.position.log == bound.log:
            return ""
        if _is_another_of_its_name(marks, bound, self.proposal.position):
            return (
                "the committer stops before it: the table was folded from topic id "
                f"{bound.log.topic_id} of cluster {bound.log.cluster_id}, and this is another topic of that "
                "name. Name the brokers that hold that log, or bring it back; "
                "`lakefold committer --accept-new-log` goes on with this one"
            )
        return (
            f"it will be Invalid, as the table is bound to {bound.topic}/{bound.log.partition} now: start "
            "its writer again, which looks that up, and send it there under the same key"
        )

    def add(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Takes in outcomes that were reported; gives back those that weren't known."""
        known = {one.position for one in self.outcomes}
        new = [one for one in outcomes if one.position not in known]

        def order(outcome: Outcome) -> tuple[int, int]:
            log = outcome.position.log
            return self.logs.index(log) if log in self.logs else len(self.logs), -outcome.position.offset

        self.outcomes = sorted((*self.outcomes, *new), key=order)
        return new

    def replace_entry(self, another: str) -> None:
        """Take it that the answers known so far are those of another entry.

        Who named the offset asked for the entry that stands there now, so those answers are dropped. Who
        named a key asked for the one that was answered, so the entry is.
        """
        self.another = another
        if self.sought.offset is None:
            self.proposal = None
            return
        self.outcomes, self.told_by = [], ""
        if self.finding is not None:
            self.finding = replace(self.finding, outcomes=(), version=None, committed_in=None)


def _gives_up(move: Rebinding, at: Position) -> bool:
    if move.why is not RebindReason.RESTORED or move.after is None or move.after.log != at.log:
        return False
    kept = move.before.offset if move.before is not None and move.before.log == at.log else -1
    return kept < at.offset <= move.after.offset


def _is_another_of_its_name(marks: Marks, bound: Position, at: Position) -> bool:
    """Whether the topic was made again, or the brokers are others, and no verb took the table from there."""
    if bound.topic != at.topic:
        return False
    if (bound.log.cluster_id, bound.log.topic_id) == (at.log.cluster_id, at.log.topic_id):
        return False
    left = [move for move in marks.moves if move.before is not None and move.before.log == at.log]
    return not (left and left[-1].why.by_verb)
