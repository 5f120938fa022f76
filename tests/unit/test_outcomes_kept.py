"""Which outcomes a waiter keeps while it reads those of other writers, with a reader of prepared messages.

Promises: interrupted-calls (docs/operations/promises.md).
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from lakefold_ingest.writing import sent_batches
from lakefold_ingest.writing.sent_batches import TableWaiter, Unanswered
from lakefold_log.read.outcomes import CommittedReports, OutcomeWaiter
from lakefold_log.read.turns import Turns
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Conflict, Duplicate, Invalid, Outcome, Rejected, Result
from lakefold_table.errors import RetryError
from lakefold_table.marks.outcome_messages import outcome_message
from lakefold_table.position import LogId, Position
from tests.interrupting import Interrupted, interrupt_at

TABLE = "s3://lake/flights"
LOG = LogId("c", "t", 0)
MANY = 10_500
"""More than a waiter keeps."""


COMMITTED = Committed(3)
REFUSAL = Rejected(Conflict(retryable=False, message="it conflicts with version 3"))


@dataclass
class Message:
    """As `lakefold_log.read.consumer.Message`, with what a waiter reads of it."""

    offset: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class Reader:
    """Returns prepared messages, as `PartitionReader` does."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.position = 0
        self.connected, self.last_error = True, ""
        self.aborted: set[int] = set()
        self.committed_readers = 0

    def poll(self, max_messages: int, _timeout_s: float) -> list[Message]:
        start = self.position
        taken = self.messages[start : start + max_messages]
        self.position += len(taken)
        return taken

    def end_offset(self) -> int:
        return len(self.messages)

    def seek(self, offset: int) -> None:
        self.position = offset

    def committed_from(self, offset: int) -> Reader:
        """Returns a reader of the same messages without those that are aborted."""
        self.committed_readers += 1
        reader = CommittedReader()
        reader.messages, reader.aborted, reader.position = self.messages, self.aborted, offset
        return reader

    def close(self) -> None:
        pass

    def report(self, offset: int, result: Result) -> None:
        app_id, batch_id = ("app", offset) if offset < 10 else ("other", offset)
        outcome = Outcome(at(offset), TABLE, result, f"u{offset}", app_id, batch_id)
        value = outcome_message(outcome).SerializeToString()
        self.messages.append(Message(len(self.messages), TABLE.encode(), value))

    def report_many(self, result: Result = COMMITTED) -> None:
        """The outcomes of another writer of the same table."""
        for number in range(MANY):
            self.report(100 + number, result)


class CommittedReader(Reader):
    """As `Reader`, but it passes over the messages that are aborted."""

    def poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        return [each for each in super().poll(max_messages, timeout_s) if each.offset not in self.aborted]


def at(offset: int) -> Position:
    return Position(LOG, offset, "lakefold.transactions")


def sent(batch_id: int) -> Envelope:
    envelope = Envelope(table=TABLE, app_id="app", batch_id=batch_id)
    envelope.lance.uuid = f"u{batch_id}"
    return envelope


def waiter(reader: Reader) -> OutcomeWaiter:
    """A waiter that is connected to no broker."""
    made: Any = object.__new__(OutcomeWaiter)
    made._reader, made._key, made._where = reader, TABLE.encode(), "lakefold.outcomes/0"
    made._known, made._undecided = OrderedDict(), OrderedDict()
    made._expected, made._doubted = {}, {}
    made._committed = CommittedReports(cast("Any", reader.committed_from))
    made._is_closed, made._first = False, 0
    made._reading = made._interrupted_at = None
    made._changing, made._turns = threading.Lock(), Turns()
    made._changed = threading.Condition(made._changing)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("others", [COMMITTED, REFUSAL])
def test_a_refusal_is_noticed_after_many_outcomes_of_others(others: Result) -> None:
    reader = Reader()
    sender = TableWaiter(waiter(reader))
    sender.note_sent(at(1), sent(1), 0, may_repeat=True)
    reader.report(1, REFUSAL)
    reader.report_many(others)
    (refused,) = sender.make_room("app", Unanswered(1, math.inf), 60.0)
    assert refused.result == REFUSAL
    assert not sender.unawaited


def test_room_is_made_after_many_outcomes_of_others() -> None:
    reader = Reader()
    sender = TableWaiter(waiter(reader))
    for batch in (1, 2):
        sender.note_sent(at(batch), sent(batch), 0, may_repeat=True)
        reader.report(batch, Committed(2))
    reader.report_many()
    assert sender.make_room("app", Unanswered(1, math.inf), 0.0) == []
    assert sender.lag("app") == Unanswered()


@pytest.mark.parametrize(
    ("result", "may_repeat", "is_lost"),
    [
        (Duplicate(2), False, True),
        (Duplicate(2), True, False),
        (Duplicate(2, different_content=True), True, True),
        (Duplicate(2, rolled_back_by=3), True, True),
        (Committed(2), False, False),
        (REFUSAL, True, True),
    ],
)
def test_the_outcomes_of_rows_that_are_not_in_the_table_are_returned(
    result: Result, *, may_repeat: bool, is_lost: bool
) -> None:
    reader = Reader()
    sender = TableWaiter(waiter(reader))
    sender.note_sent(at(1), sent(1), 0, may_repeat=may_repeat)
    reader.report(1, result)
    lost = sender.make_room("app", Unanswered(1, math.inf), 60.0)
    assert [outcome.result for outcome in lost] == ([result] if is_lost else [])


def test_a_batch_waits_while_another_one_has_no_outcome_for_too_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader()
    sender = TableWaiter(waiter(reader))
    for batch in (1, 2):
        sender.note_sent(at(batch), sent(batch), 0, may_repeat=True)
    reader.report(1, Committed(2))
    assert sender.make_room("app", Unanswered(3, 60.0), 0.0) == []
    lag = sender.lag("app")
    assert lag.batches == 1
    assert 0 < lag.seconds < 60
    with pytest.raises(
        RetryError, match=r"1 batches in the log have no outcome yet, the oldest for 0\.\d s: no"
    ):
        sender.make_room("app", Unanswered(3, 0.0), 0.01)
    assert not caplog.messages
    monkeypatch.setattr(sent_batches, "QUIET_S", 0.0)
    with pytest.raises(RetryError):
        sender.make_room("app", Unanswered(3, 0.0), 0.01)
    (logged,) = caplog.messages
    assert logged.startswith(f"{TABLE}: waiting for the committer: 1 batches in the log have no outcome yet")
    assert sender.make_room("other", Unanswered(3, 0.0), 0.0) == []
    assert sender.lag("other") == Unanswered()
    reader.report(2, Committed(3))
    assert sender.make_room("app", Unanswered(3, 0.0), 0.0) == []
    assert sender.lag("app") == Unanswered()


def test_an_outcome_that_was_read_before_it_is_expected_is_kept() -> None:
    reader = Reader()
    outcomes = waiter(reader)
    reader.report(1, Committed(2))
    outcomes.reported({}, 5.0)
    outcomes.expect(at(1))
    reader.report_many()
    assert [outcome.position for outcome in outcomes.reported({at(1): sent(1)}, 5.0)] == [at(1)]


def test_what_is_forgotten_is_kept_no_longer_than_others() -> None:
    reader = Reader()
    outcomes = waiter(reader)
    outcomes.expect(at(1))
    outcomes.forget(at(1))
    reader.report(1, Committed(2))
    reader.report_many()
    assert outcomes.reported({at(1): sent(1)}, 5.0) == []
    with pytest.raises(RetryError, match="no outcome within"):
        outcomes.wait(at(1), sent(1), 0.0)


def test_only_a_committed_counts_before_its_report_is_committed() -> None:
    """What else an aborted report said is not the answer: that of the next report is."""
    reader = Reader()
    outcomes = waiter(reader)
    results: list[Result] = [Committed(2), REFUSAL, Duplicate(2), Invalid("no", "")]
    for batch, result in enumerate(results):
        reader.report(batch, result)
    reader.aborted.update(range(4))
    assert outcomes.wait(at(0), sent(0), 120.0).result == Committed(2)
    for batch in (1, 2, 3):
        with pytest.raises(RetryError, match="no outcome within"):
            outcomes.wait(at(batch), sent(batch), 0.01)
    assert outcomes.reported({at(batch): sent(batch) for batch in (1, 2, 3)}, 5.0) == []
    for batch in (1, 2, 3):
        reader.report(batch, Committed(2 + batch))
        assert outcomes.wait(at(batch), sent(batch), 120.0).result == Committed(2 + batch)


def test_the_refusals_of_other_writers_are_not_read_again() -> None:
    reader = Reader()
    outcomes = waiter(reader)
    for batch in range(3):
        reader.report(batch, REFUSAL if batch else Committed(2))
    assert outcomes.wait(at(0), sent(0), 120.0).result == Committed(2)
    assert reader.committed_readers == 0
    assert [outcomes.wait(at(batch), sent(batch), 120.0).result for batch in (1, 2)] == [REFUSAL] * 2
    assert reader.committed_readers == 1


def test_a_thread_that_waits_for_a_refusal_delays_no_other_one() -> None:
    reader = Reader()
    outcomes = waiter(reader)
    reader.report(1, REFUSAL)
    reader.aborted.update((0, 1))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(outcomes.wait, at(1), sent(1), 60.0)
        reader.report(2, Committed(2))
        assert outcomes.wait(at(2), sent(2), 120.0).result == Committed(2)
        assert not first.done()
        reader.report(1, Committed(3))
        assert first.result().result == Committed(3)


def test_an_interrupt_at_any_moment_leaves_no_thread_waiting_and_loses_no_outcome() -> None:
    """Ctrl-C ends a wait of the main thread, whose next wait reads on, and so do those of other threads."""
    for point in count(1):
        reader = Reader()
        waiting = waiter(reader)
        waiting.expect(at(2))
        reader.report(2, COMMITTED)
        reader.report(1, COMMITTED)
        first = partial(waiting.wait, at(1), sent(1), 30.0)
        try:
            interrupt_at(point, first, "lakefold_log/read/outcomes")
        except Interrupted:
            assert first().result == COMMITTED, point
            with ThreadPoolExecutor(1) as other:
                second = other.submit(waiting.wait, at(2), sent(2), 30.0).result()
            assert second.result == COMMITTED, point
        else:
            break
    assert point > 50
