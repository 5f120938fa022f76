"""Reports: outcomes, dead letters and the committed offset in one Kafka transaction.

There is one transactional producer per partition. Creating the next producer for the partition fences this
reporter, so that a committer that was thought dead can't answer any more; and readers see only what was
committed, except for a Committed, which a writer accepts before (decision 0096). What a report contains was
published before, so no fact is lost with it: the next committer gives the same answers from the table.

If the answer to a commit is lost, the group's offset shows whether it was committed: each report has a number
of its own in the offset's metadata. Whether that report is complete is checked against its outcomes
(`report_check`). What is missing is reported again, by this reporter from memory, or by another from the
tables, for which the offset is moved back to where it was. The same happens if the outcomes topic has lost
its end.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

import structlog
from confluent_kafka import TopicPartition

from lakefold_log.client.committed_offsets import committed
from lakefold_log.client.requests import max_message_bytes
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.signing import OutcomesKey
from lakefold_log.read.accepted_signers import AcceptedSigners
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.report_check import (
    LastReport,
    ReportCheckpoint,
    answered_since,
    is_whole,
    last_whole,
    report_name,
    thinned,
)
from lakefold_log.read.turns import TURN
from lakefold_log.write.transactional_producer import Session
from lakefold_table.closing import Closing
from lakefold_table.errors import FencedError, InvalidError, OutcomesLostError, RetryError, StopError
from lakefold_table.marks.outcome_messages import outcome_message
from lakefold_table.marks.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import KafkaError, Message

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.report_check import Earlier
    from lakefold_table.entry import Outcome
    from lakefold_table.position import LogId, Position

LOG = structlog.get_logger("lakefold.log")

# The time limit of a request about the group; an offset that is held back for longer hangs.
_QUESTION_S: Final = 3.0

# The limits of the call that may hang after a broker restarts. After a report that failed the limit is twice
# as long: a short one notices soon that the call hangs, and a broker that is slow has the longest in the end.
_LEAST_OFFSET_S: Final = 1.0
_MOST_OFFSET_S: Final = 10.0

# For how long a broker that has just started may not know the topic of the dead letters.
_MISSING_S: Final = 5.0

_DEAD_LETTER_BYTES: Final = 1_048_588

_Mark = tuple[int, str | None]
"""The group's committed offset and its metadata."""


@dataclass(frozen=True, slots=True)
class _Report:
    outcomes: tuple[Outcome, ...]
    dead_letters: tuple[RefusedMessage, ...]
    next_offset: int
    offset_metadata: OffsetMetadata


@dataclass(frozen=True, slots=True)
class _Sent:
    """A report whose commit was requested: its offset, and what shows whether it is complete."""

    report: _Report
    mark: _Mark
    last: LastReport


class Reporter(Closing):
    """Reports about a partition, `log` of the transactions topic; for one thread.

    Creating a reporter fences every other reporter for this group and partition and ends its open
    transaction, so that the offset read afterwards is final. `owner` is the number of this reporter in the
    succession; its generation is greater than that in the offset's metadata and than `above`. `timeout_s` is
    the time limit of each call. `passed_over`: see `AcceptedSigners`. `held` is called before anything is
    reported or taken over; once it returns False, `FencedError` is raised. `lost` is called with the
    number of offsets if the outcomes topic has lost its end. `committer`: the name of the process, for
    people. Raises `RetryError` if no broker answers, `MissingTopicError` if a topic does not exist,
    `InvalidError` if the ACLs refuse.
    """

    def __init__(  # noqa: PLR0913 - its callbacks are passed in
        self,
        admin: Admin,
        group: str,
        log: LogId,
        topics: Topics,
        *,
        timeout_s: float = 30.0,
        held: Callable[[], bool] = lambda: True,
        passed_over: Callable[[int, bool], None] | None = None,
        lost: Callable[[int], None] = lambda _: None,
        above: int = 0,
        committer: str = "",
    ) -> None:
        self.topics = topics
        self.log = log
        self.outcomes_offset = 0
        self._group = group
        self._timeout_s = timeout_s
        self._held, self._lost = held, lost
        self._reading = admin
        self._admin = admin.with_timeout(min(_QUESTION_S, timeout_s))
        self._where = f"{topics.outcomes}/{log.partition}"
        describe(self._admin, topics.outcomes).log_id(log.partition)
        self._max_dead_letter_bytes = self._letter_bytes()
        self._offset_s = _LEAST_OFFSET_S
        self._instance = uuid.uuid4().hex[:12]
        self._committer = committer
        self._numbers = count(1)
        # The offset after the last outcome that was sent; None if the broker did not name it.
        self._delivered: int | None = 0
        self._stopped: StopError | None = None
        # The group's offset before the last report; that report; a report whose commit is in doubt.
        self._before: _Mark | None = None
        self._done: _Sent | None = None
        self._doubtful: _Sent | None = None
        # What is missing of an earlier report; entries whose outcomes are visible though their report is not.
        self._owed: _Report | None = None
        self._given: frozenset[Position] = frozenset()
        self._mark = self._take_over(self._deadline())
        self._key = self._known_key()
        self.signers = AcceptedSigners(self._key, passed_over)
        # The last offset below which all is certainly answered, and the same before earlier reports.
        self._whole: ReportCheckpoint | None = self._checkpoint_before(self._mark)
        self._earlier: tuple[Earlier, ...] = ()
        try:
            self._take_back(self._deadline())
        except BaseException:
            self._session.close()
            raise
        # The successor must find this owner in the offset, so the first report comes before any fold.
        before = OffsetMetadata.of(self._mark[1], self._mark[0])
        last = before.owner if before is not None and before.owner is not None else Owner(self._instance, 0)
        self.owner = Owner(last.chain, max(last.generation, above) + 1)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        """Reports in one Kafka transaction. Returns the offset after the last outcome that was reported here.

        `next_offset` is committed as the group's offset, with `offset_metadata`. When this returns, all of it
        is decided, and visible a moment later; if the process dies before, all or none of it is. With empty
        lists only the offset is committed.

        Raises `RetryError` if that is not settled in time or Kafka aborted it: call again with the same
        arguments, and nothing is reported twice. Raises `StopError` if another reporter took over, and
        `OutcomesLostError` if the outcomes topic has lost its end: the next reporter finds out what is left.
        """
        report = _Report(tuple(outcomes), tuple(dead_letters), next_offset, offset_metadata)
        if self._stopped is not None:
            raise self._stopped
        try:
            return self._report(report, self._deadline())
        except StopError as error:
            # Another try would fence the reporter that took over.
            self._stopped = error
            raise

    def close(self) -> None:
        """Releases the producer; what was not committed stays invisible, and the next reporter ends it."""
        self._session.close()

    def _report(self, report: _Report, deadline: float) -> int:
        is_decided = not self._session.usable and self._renew(deadline) == report
        if self._owed is not None:
            self._transact(self._owed, deadline)
            self._owed = None
        if not is_decided:
            self._transact(report, deadline)
        self._given = frozenset()
        return self.outcomes_offset

    def _transact(self, report: _Report, deadline: float) -> None:
        self._check_held()
        if self._delivered is None:
            # No other process writes to it, so all that it contains was reported before.
            end = self._end(read_committed=False)
            self._check_not_shorter(self.outcomes_offset, end)
            self._delivered = self.outcomes_offset = end
        outcomes = _missing(report, self._given)
        sent = self._named(report, len(outcomes))
        self._delivered = self.outcomes_offset
        try:
            self._session.begin(deadline)
            self._send_outcomes(outcomes)
            for letter in report.dead_letters:
                self._send_dead_letter(letter)
            # Before the offset, because writers accept what was committed to a table as soon as it is there.
            self._session.deliver(self._offset_s)
            self._session.send_offset(self._group_offset(*sent.mark), self._offset_s)
            self._doubtful = sent
            self._session.commit()
        except RetryError:
            # The abort may also remove outcomes that a broker forgot to mark: a new session checks that.
            self._session.usable = False
            self._offset_s = min(2 * self._offset_s, _MOST_OFFSET_S)
            raise
        self._offset_s = _LEAST_OFFSET_S
        self._settle(sent)
        if self._delivered is not None:
            self._check_not_shorter(self.outcomes_offset, self._delivered - len(outcomes))
            self.outcomes_offset = self._delivered

    def _check_not_shorter(self, former_end: int, end: int) -> None:
        """Raises `OutcomesLostError` if the topic, which ended at `former_end`, ends before that now."""
        if end < former_end:
            message = f"it ends at offset {end}, and ended at {former_end} before"
            hint = "answers that were given are lost; they are given again if the tables record them"
            raise OutcomesLostError(message, where=self._where, hint=hint)

    def _named(self, report: _Report, count: int) -> _Sent:
        """Returns the report with a unique name, and with what its successor needs to check it."""
        name = report_name(self._instance, next(self._numbers), self._committer)
        last = LastReport(name, self.outcomes_offset, count, self._whole, self._earlier)
        offset_metadata = replace(report.offset_metadata, outcomes_key=self._key)
        metadata = offset_metadata.metadata(report.next_offset, report=last.encode())
        return _Sent(report, (report.next_offset, metadata), last)

    def _known_key(self) -> OutcomesKey:
        """Returns the key with which the last reporter signed, else a new key."""
        own = OffsetMetadata.of(self._mark[1], self._mark[0])
        if own is None or own.outcomes_key is None:
            return OutcomesKey.make(self.outcomes_offset)
        return own.outcomes_key.not_after(self.outcomes_offset)

    def _settle(self, sent: _Sent) -> None:
        self._before, self._mark, self._done, self._doubtful = self._mark, sent.mark, sent, None
        self._whole = _checkpoint_of(sent.mark)
        self._earlier = thinned(sent.last.history, sent.last.end)

    def _renew(self, deadline: float) -> _Report | None:
        """Opens a new session after the last was lost. Returns the doubtful report if it was committed.

        What is missing of committed reports is then owed. Raises `StopError` if another process moved the
        group's offset meanwhile.
        """
        self._session.close()
        former_end = self.outcomes_offset
        moved = self._committed(stable=False)
        if moved is not None:
            # A session that failed because this process was paused must not fence its successor.
            self._check_not_moved(moved)
        mark = self._take_over(deadline)
        self._check_not_shorter(former_end, self._end(read_committed=False))
        self._check_not_moved(mark)
        done, doubtful = self._done, self._doubtful
        first = done or doubtful
        if first is not None:
            self._given |= self._answered_since(first.last.begin)
        self._doubtful = None
        is_lost, is_committed = mark == self._before, doubtful is not None and mark == doubtful.mark
        if doubtful is not None and is_committed:
            self._settle(doubtful)
        self._mark = mark
        committed_reports = (done, doubtful if is_committed else None)
        self._owe([each for each in committed_reports if each is not None], at_all=is_lost)
        return doubtful.report if doubtful is not None and is_committed else None

    def _check_not_moved(self, mark: _Mark) -> None:
        """Raises `FencedError` if the group's offset is none that this reporter has committed."""
        doubtful = self._doubtful
        if mark not in {self._before, self._mark} and (doubtful is None or mark != doubtful.mark):
            message = f"the offset of group {self._group} was moved to {mark[0]} by another process"
            raise FencedError(message, where=self._where, hint="run one committer for each partition")

    def _owe(self, sent: Sequence[_Sent], *, at_all: bool) -> None:
        """Has the missing part of these reports sent first. Their dead letters may be sent twice.

        If `at_all`, also if only the offset is missing.
        """
        missing = {
            outcome.position: outcome for each in sent for outcome in _missing(each.report, self._given)
        }
        self._owed = None
        if missing or (at_all and sent):
            dead_letters = dict.fromkeys(letter for each in sent for letter in each.report.dead_letters)
            last = sent[-1].report
            self._owed = replace(last, outcomes=tuple(missing.values()), dead_letters=tuple(dead_letters))
            self._whole = sent[0].last.before

    def _answered_since(self, begin: int) -> frozenset[Position]:
        return answered_since(self._reading, self.topics, self.log, begin, self.signers)

    def _take_back(self, deadline: float) -> None:
        """Moves the group's offset back to before the last report, if that report isn't complete.

        If the topic has lost its end, the offset moves back to before the first report that isn't complete,
        as far as that is known. Only the tables record what other reporters sent: from that offset on the
        entries are answered again, except those whose outcomes can still be read.
        """
        own = self._own_metadata(self._mark)
        last = OffsetMetadata.report_of(self._mark[1])
        if own is None or last is None:
            return
        end = self._end(read_committed=False)
        if end < last.end:
            back = last_whole(self._reading, self.topics, self.log, last, self.signers, end)
            self._log_lost(last, end, back)
        elif last.before is None or is_whole(self._reading, self.topics, self.log, last, self.signers):
            back = None
            self._earlier = thinned(last.history, self.outcomes_offset)
        else:
            back = last.begin, last.before
        if back is None:
            return
        before = self._within_log(back[1])
        self._whole = before
        self._earlier = thinned(
            [earlier for earlier in last.history if earlier[0] < back[0]], self.outcomes_offset
        )
        own = replace(own, low_watermark=before.low_watermark, outcomes_offset=before.outcomes_offset)
        self._transact(_Report((), (), before.offset, own), deadline)

    def _log_lost(self, last: LastReport, end: int, back: Earlier | None) -> None:
        """Logs that the outcomes topic ends before the last report did, and what follows from it."""
        LOG.warning(
            "outcomes lost",
            where=self._where,
            ends_at=end,
            ended_at=last.end,
            given_again_from=None if back is None else back[1].offset,
            up_to=self._mark[0],
            not_given_again=f"{end}-{back[0] - 1}" if back is not None and end < back[0] else None,
            hint="the topic lost its end: the answers are given again if the tables record them",
        )
        self._lost(last.end - end)

    def _within_log(self, checkpoint: ReportCheckpoint) -> ReportCheckpoint:
        """Returns the checkpoint, or the start of the log if that is later.

        Entries that the log has removed can't be answered.
        """
        start = watermarks(self._admin, self.topics.transactions, self.log.partition).start
        if checkpoint.offset >= start:
            return checkpoint
        LOG.warning(
            "outcomes lost for good", where=self._where, entries_from=checkpoint.offset, up_to=start - 1
        )
        return replace(checkpoint, offset=start, low_watermark=start)

    def _own_metadata(self, mark: _Mark) -> OffsetMetadata | None:
        """Returns the metadata of the group's offset, if it is for this log."""
        own = OffsetMetadata.of(mark[1], mark[0])
        ours = (self.log.cluster_id, self.log.topic_id)
        return own if own is not None and (own.cluster_id, own.topic_id) == ours else None

    def _checkpoint_before(self, mark: _Mark) -> ReportCheckpoint:
        """Returns the group's position; nothing counts as answered if its offset isn't for this log."""
        checkpoint = None if self._own_metadata(mark) is None else _checkpoint_of(mark)
        return ReportCheckpoint(0, 0, self.outcomes_offset) if checkpoint is None else checkpoint

    def _take_over(self, deadline: float) -> _Mark:
        """Opens a new session; returns the group's offset after all other reporters are fenced.

        A step of a transaction with a topic that was deleted only takes too long: the error here names it.
        """
        self._check_held()
        dead_letters = describe(self._admin, self.topics.dead_letters, wait_s=_MISSING_S)
        self._letter_partitions = dead_letters.partitions
        name = f"lakefold-{self._group}-{self.log.topic_id}-{self.log.partition}"
        self._session = Session(self._admin.config, name, self._group, self._where, deadline)
        try:
            if self._hangs():
                self._end_hanging(deadline)
            mark = self._group_mark(deadline)
            self.outcomes_offset = self._end(read_committed=True)
        except BaseException:
            self._session.close()
            raise
        return mark

    def _check_held(self) -> None:
        if not self._held():
            hint = "nothing has to be done: this process stops folding it"
            raise FencedError("the partition was given to another process", where=self._where, hint=hint)

    def _hangs(self) -> bool:
        """Returns whether brokers hold outcomes back although the session has ended the open transaction."""
        return self._end(read_committed=True) < self._end(read_committed=False)

    def _end_hanging(self, deadline: float) -> None:
        """Writes an abort marker to every partition that a report writes to.

        A broker that is killed after it decided a transaction, and has no other replica to lead meanwhile,
        forgets to mark the partitions when it restarts (tried with 4.3): readers of them, and of the group's
        offset, would wait for ever. The next marker of the same producer ends that.
        """
        self._session.begin(deadline)
        self._session.send(self.topics.outcomes, b"", None, self.log.partition)
        for partition in range(self._letter_partitions):
            self._session.send(self.topics.dead_letters, b"", None, partition)
        self._session.send_offset(self._group_offset(0, ""), _MOST_OFFSET_S)
        self._session.abort()

    def _group_mark(self, deadline: float) -> _Mark:
        """Returns the group's offset and its metadata, once no transaction holds them back."""
        while True:
            mark = self._committed(stable=True)
            if mark is not None:
                return mark
            if self._committed(stable=False) is not None and self._committed(stable=True) is None:
                self._end_hanging(deadline)
            if time.monotonic() >= deadline:
                raise RetryError("the group's offset is held back", where=self._where)

    def _committed(self, *, stable: bool) -> _Mark | None:
        try:
            answer = committed(self._admin, self._group, [self._group_offset(0, "")], stable=stable)[0]
        except RetryError:
            return None
        return None if answer.error is not None else (answer.offset, answer.metadata)

    def _end(self, *, read_committed: bool) -> int:
        marks = watermarks(
            self._admin, self.topics.outcomes, self.log.partition, read_committed=read_committed
        )
        return marks.end

    def _group_offset(self, offset: int, metadata: str | None) -> TopicPartition:
        return TopicPartition(self.topics.transactions, self.log.partition, offset, metadata)

    def _send_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        # All are encoded and signed before the first is sent: the client puts those that follow each other
        # quickly into one request.
        values = [outcome_message(outcome).SerializeToString() for outcome in outcomes]
        signatures = [self._key.sign(value, self.outcomes_offset) for value in values]
        last = len(outcomes) - 1
        for index, outcome in enumerate(outcomes):
            turn = ((TURN, outcome.turn),) if outcome.turn else ()
            self._session.send(
                self.topics.outcomes,
                values[index],
                outcome.table.encode(),
                self.log.partition,
                headers=(signatures[index], *turn),
                # A partition keeps the order, so the offset of the last outcome is enough.
                on_delivery=self._on_last_outcome if index == last else None,
            )

    def _send_dead_letter(self, letter: RefusedMessage) -> None:
        key, value, headers = letter.fitting(self._max_dead_letter_bytes)
        self._session.send(self.topics.dead_letters, value, key, headers=headers)

    def _on_last_outcome(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None:
            # If a batch is sent again after a cut connection, the broker may have it and return no offset.
            self._delivered = None if offset is None or offset < 0 else offset + 1

    def _letter_bytes(self) -> int:
        """Returns the size of the topic's largest dead letter; Kafka's default if the ACLs hide it."""
        try:
            return max_message_bytes(self._admin, self.topics.dead_letters)
        except InvalidError:
            return _DEAD_LETTER_BYTES

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s


def _checkpoint_of(mark: _Mark) -> ReportCheckpoint | None:
    own = OffsetMetadata.of(mark[1], mark[0])
    return None if own is None else ReportCheckpoint(mark[0], own.low_watermark, own.outcomes_offset)


def _missing(report: _Report, seen: frozenset[Position]) -> list[Outcome]:
    return [outcome for outcome in report.outcomes if outcome.position not in seen]
