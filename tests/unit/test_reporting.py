"""Reports whose answer is lost: each outcome is given once, whatever happens meanwhile."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.loop.reporting import Checkpoints, Reporting
from lakefold_committer.loop.threads import Threads
from lakefold_committer.observability.metrics import Metrics
from lakefold_committer.observability.traces import NO_TRACES
from lakefold_log.read.turns import TURN, Turn
from lakefold_table.entry import Committed, Conflict, Outcome, Rejected
from lakefold_table.errors import RetryError
from tests.folding import URI, append, entry
from tests.unit.test_partition import Log, Message, Reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_log.read.dead_letters import RefusedMessage
    from lakefold_log.read.offset_metadata import OffsetMetadata


@dataclass
class Forgetful(Reports):
    """A broker that decides each report and loses some answers; the same report again changes nothing.

    `stop` is set with the last answer that is lost.
    """

    stop: threading.Event = field(default_factory=threading.Event)
    lost: int = 0
    doubtful: object = None
    watermarks: list[int] = field(default_factory=list)

    def report(
        self,
        outcomes: Sequence[Outcome],
        dead_letters: Sequence[RefusedMessage],
        next_offset: int,
        offset_metadata: OffsetMetadata,
    ) -> int:
        asked = (tuple(outcomes), tuple(dead_letters), next_offset, offset_metadata)
        if self.doubtful != asked:
            super().report(outcomes, dead_letters, next_offset, offset_metadata)
            self.watermarks.append(next_offset)
        self.doubtful = None
        if self.lost:
            self.lost, self.doubtful = self.lost - 1, asked
            if not self.lost:
                self.stop.set()
            raise RetryError("the answer is lost", where="broker")
        return self.outcomes_offset


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with capture_logs():
        yield


def reporting(broker: Forgetful) -> Reporting:
    return Reporting(broker, Log([]), Threads(), Metrics(), Checkpoints(0), NO_TRACES)  # type: ignore[arg-type]


def add(to: Reporting, *offsets: int) -> None:
    for offset in offsets:
        read = entry(append(f"f{offset}"), offset)
        message = Message(offset, URI.encode(), b"")
        to.add(message, read, Outcome(read.position, URI, Committed(1, rebased=False)))  # type: ignore[arg-type]


def offsets_of(outcomes: Sequence[Outcome]) -> list[int]:
    return [outcome.position.offset for outcome in outcomes]


def test_what_was_begun_is_made_again_as_it_was_before_what_came_since() -> None:
    broker = Forgetful(lost=2)
    ours = reporting(broker)
    add(ours, 7, 5)
    assert ours.report(8, broker.stop) is None
    assert ours.waiting == 2
    add(ours, 6, 9)
    reported = ours.report(10, broker.stop)
    assert reported is not None
    assert offsets_of(reported[1]) == [5, 7, 6, 9]
    assert offsets_of(broker.outcomes) == [5, 7, 6, 9]
    assert broker.watermarks == [8, 10]
    assert ours.waiting == 0


def test_nothing_more_is_reported_if_nothing_came_since() -> None:
    broker = Forgetful(lost=1)
    ours = reporting(broker)
    add(ours, 5)
    assert ours.report(6, broker.stop) is None
    reported = ours.report(6, broker.stop)
    assert reported is not None
    assert offsets_of(reported[1]) == offsets_of(broker.outcomes) == [5]
    assert broker.watermarks == [6]


def test_an_offset_alone_is_renewed() -> None:
    broker = Forgetful()
    assert reporting(broker).report(6, broker.stop) == ([], [])
    assert broker.watermarks == [6]


def test_outcomes_get_the_turn_of_their_message() -> None:
    """A refusal all of it; others only what identifies the batch."""
    turn = Turn(b"b" * 16, frozenset({1, 2}), frozenset({3}), 0.5)
    refused = Rejected(Conflict(retryable=True, message="rows"))
    heard = []
    for result in (refused, Committed(1)):
        broker, read = Forgetful(), entry(append("f1"), 1)
        ours, message = reporting(broker), Message(1, URI.encode(), b"", headers=((TURN, turn.encode()),))
        ours.add(message, read, Outcome(read.position, URI, result))  # type: ignore[arg-type]
        ours.report(2, broker.stop)
        heard.append(Turn.decode(broker.outcomes[-1].turn))
    assert heard == [turn, Turn(turn.batch, frozenset(), build_s=0.5)]
