"""Which outcomes a waiter keeps while it reads those of other writers, with a reader of prepared messages."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

from lakefold_ingest.writing.log_client import Unanswered, _Waiter
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Conflict, Outcome, Rejected, Result
from lakefold_table.errors import RetryError
from lakefold_table.marks.outcome_messages import outcome_message
from lakefold_table.position import LogId, Position

TABLE = "s3://lake/flights"
LOG = LogId("c", "t", 0)
MANY = 10_500
"""More than a waiter keeps."""


@dataclass
class Message:
    """As `lakefold_log.read.consumer.Message`, with what a waiter reads of it."""

    offset: int
    key: bytes
    value: bytes


class Reader:
    """Returns prepared messages, as `PartitionReader` does."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.position = 0
        self.connected, self.last_error = True, ""

    def poll(self, max_messages: int, _timeout_s: float) -> list[Message]:
        start = self.position
        taken = self.messages[start : start + max_messages]
        self.position += len(taken)
        return taken

    def end_offset(self) -> int:
        return len(self.messages)

    def seek(self, offset: int) -> None:
        self.position = offset

    def report(self, offset: int, result: Result) -> None:
        app_id, batch_id = ("app", offset) if offset < 10 else ("other", offset)
        outcome = Outcome(at(offset), TABLE, result, f"u{offset}", app_id, batch_id)
        value = outcome_message(outcome).SerializeToString()
        self.messages.append(Message(len(self.messages), TABLE.encode(), value))

    def report_many(self) -> None:
        """The outcomes of another writer of the same table."""
        for number in range(MANY):
            self.report(100 + number, Committed(3))


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
    made._known, made._expected = OrderedDict(), {}
    made._is_closed = made._is_reading = False
    made._changed = threading.Condition()
    return made  # type: ignore[no-any-return]


def refusal() -> Rejected:
    return Rejected(Conflict(retryable=False, message="it conflicts with version 3"))


def test_a_refusal_is_noticed_after_many_outcomes_of_others() -> None:
    reader = Reader()
    sender = _Waiter(waiter(reader))
    sender.note_unasked(at(1), sent(1))
    reader.report(1, refusal())
    reader.report_many()
    (refused,) = sender.make_room("app", Unanswered(1000, math.inf), 5.0)
    assert refused.result == refusal()
    assert not sender.unasked


def test_room_is_made_after_many_outcomes_of_others() -> None:
    reader = Reader()
    sender = _Waiter(waiter(reader))
    for batch in (1, 2):
        sender.note_unasked(at(batch), sent(batch))
        reader.report(batch, Committed(2))
    reader.report_many()
    assert len(sender.make_room("app", Unanswered(1, math.inf), 0.0)) == 2
    assert sender.make_room("app", Unanswered(1, math.inf), 0.0) == []


def test_a_batch_waits_while_another_one_has_no_outcome_for_too_long() -> None:
    reader = Reader()
    sender = _Waiter(waiter(reader))
    for batch in (1, 2):
        sender.note_unasked(at(batch), sent(batch))
    reader.report(1, Committed(2))
    assert len(sender.make_room("app", Unanswered(3, 60.0), 0.0)) == 1
    lag = sender.lag("app")
    assert lag.batches == 1
    assert 0 < lag.seconds < 60
    with pytest.raises(
        RetryError, match=r"1 batches in the log have no outcome yet, the oldest for 0\.\d s: no"
    ):
        sender.make_room("app", Unanswered(3, 0.0), 0.01)
    assert sender.make_room("other", Unanswered(3, 0.0), 0.0) == []
    assert sender.lag("other") == Unanswered()
    reader.report(2, Committed(3))
    assert len(sender.make_room("app", Unanswered(3, 0.0), 0.0)) == 1
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
