"""What a process has sent to a table and has no outcome of yet, and the outcomes that come.

A writer that doesn't wait for outcomes learns later of the batches whose rows are not in the table. Another
process may take over the list (`SentBatch`): Spark may commit each batch of a query in another one.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_ingest.writing.settings import MOST_UNANSWERED
from lakefold_protos.lakefold.log_pb2 import Claim, Envelope
from lakefold_table.entry import Committed, Duplicate, Outcome
from lakefold_table.errors import InvalidError, OptionName, RetryError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_log.read.outcomes import OutcomeWaiter
    from lakefold_log.read.turns import Turn

_BEHIND = (
    "see that a committer runs and how far behind it is (lakefold status); the batch may be run again, or ",
    "raise ",
    OptionName("max_unanswered"),
    " or ",
    OptionName("max_lag"),
)
_READ_S = 1.0
_EVERY_S = 1.0
"""Brokers are asked no more often for the end of the outcomes of batches that don't wait.

Reading up to it takes a tenth of a second: the client reports late that only a marker was left.
"""
LOGGER = logging.getLogger("lakefold")
QUIET_S = 5.0
"""A writer that waits for an outcome for longer than this logs it."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """How far the committer is behind what an app has sent from this process without waiting.

    `batches` have no outcome yet, the oldest of them for `seconds`.
    """

    batches: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.batches} batches in the log have no outcome yet, the oldest for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was sent without waiting and has no known outcome, for another process to wait for.

    `sent_at`: when, in seconds since 1970. `may_repeat`: it may have been sent before. `outcomes_from`: its
    outcome is at or after this offset.
    """

    batch_id: int
    position: Position
    sent_at: float
    may_repeat: bool
    outcomes_from: int


@dataclass(frozen=True, slots=True)
class _SentProposal:
    """A proposal that was sent without waiting: see `SentBatch`. `sent_at` is of the monotonic clock."""

    named: Envelope
    sent_at: float
    may_repeat: bool
    outcomes_from: int

    def is_lost(self, outcome: Outcome) -> bool:
        """Returns whether its outcome says that its rows are not in the table, or may not be."""
        match outcome.result:
            case Committed():
                return False
            case Duplicate() as result:
                return bool(result.rolled_back_by or result.different_content) or not self.may_repeat
        return True


SentProposals = OrderedDict[Position, _SentProposal]
"""What was sent without waiting and has no known outcome yet, by position."""


def sent_batches(sent: SentProposals, app_id: str) -> list[SentBatch]:
    """Returns the batches of the app among these, the oldest first."""
    since_1970 = time.time() - time.monotonic()
    return [
        SentBatch(
            each.named.batch_id, position, each.sent_at + since_1970, each.may_repeat, each.outcomes_from
        )
        for position, each in sent.items()
        if each.named.app_id == app_id
    ]


@dataclass(slots=True)
class TableWaiter:
    """Waits for the outcomes of this process's proposals for a table; for any number of threads.

    `users`: how many calls of a `LogClient` use it now. `asking`: how many proposals are awaited now.
    `unawaited`: what was sent without waiting and has no known outcome yet, by position. `is_blind`: this
    user may not read outcomes. `read_at`: when brokers were asked for them last, by the monotonic clock.
    """

    outcomes: OutcomeWaiter
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    asking: int = 0
    unawaited: SentProposals = field(default_factory=OrderedDict)
    is_blind: bool = False
    read_at: float = -math.inf

    @property
    def is_idle(self) -> bool:
        """Whether no call uses it and no outcome is awaited now."""
        return not (self.users or self.asking)

    def resume(self, unawaited: SentProposals) -> None:
        """Takes over what another waiter of this process has sent without waiting, which is closed.

        Raises `RetryError` if no broker answers.
        """
        for position in unawaited:
            self.outcomes.expect(position)
        if unawaited:
            self.outcomes.read_again_from(min(each.outcomes_from for each in unawaited.values()))
        self.unawaited = unawaited

    def await_turn(self, turn: Callable[[], Turn], timeout_s: float) -> float:
        """See `OutcomeWaiter.await_turn`. Waits no longer if no broker answers."""
        self.enter()
        try:
            return self.outcomes.await_turn(turn, timeout_s)
        except RetryError:
            return 0.0
        finally:
            self.leave()

    def enter(self) -> None:
        """Begins to wait for a proposal that is sent next; reads on from the end if no other is awaited."""
        with self.lock:
            if not self.asking and not self.unawaited:
                with suppress(RetryError):
                    # It only saves reading. If the brokers are unreachable, the send waits for them.
                    self.outcomes.skip_to_end()
            self.asking += 1

    def note_sent(
        self, position: Position, envelope: Envelope, outcomes_from: int, *, may_repeat: bool
    ) -> None:
        """Notes a proposal that was sent without waiting; the caller holds the lock.

        Its outcome is kept until it is asked for, even if those of many others are read before.
        """
        self.unawaited[position] = _SentProposal(
            _named(envelope), time.monotonic(), may_repeat, outcomes_from
        )
        self.outcomes.expect(position)
        while len(self.unawaited) > MOST_UNANSWERED:
            oldest, _ = self.unawaited.popitem(last=False)
            self.outcomes.forget(oldest)

    def sent_batches(self, app_id: str) -> list[SentBatch]:
        """Returns what the app has sent without waiting and has no known outcome, the oldest first."""
        with self.lock:
            return sent_batches(self.unawaited, app_id)

    def take_over(self, table: str, app_id: str, sent: Sequence[SentBatch]) -> None:
        """See `LogClient.take_over`. A batch is identified by its key alone, whatever the format."""
        since_1970 = time.time() - time.monotonic()
        with self.lock:
            own = dict(self._of(app_id))
            for position in own:
                del self.unawaited[position]
                if all(position != each.position for each in sent):
                    self.outcomes.forget(position)
            new = [each.outcomes_from for each in sent if each.position not in own]
            for each in sent:
                named = Envelope(table=table, app_id=app_id, batch_id=each.batch_id, claim=Claim())
                self.unawaited[each.position] = own.get(each.position) or _SentProposal(
                    named, each.sent_at - since_1970, each.may_repeat, each.outcomes_from
                )
                self.outcomes.expect(each.position)
            if new:
                self.outcomes.read_again_from(min(new))

    def leave(self) -> None:
        """Ends what `enter` began."""
        with self.lock:
            self.asking -= 1

    def lag(self, app_id: str) -> Unanswered:
        """Returns how many batches of the app have no outcome yet, and for how long."""
        with self.lock:
            return self._lag(app_id)

    def make_room(self, app_id: str, most: Unanswered, timeout_s: float) -> list[Outcome]:
        """Waits until what the app sent without waiting and has no outcome is less than `most`.

        Returns as `LogClient.make_room`, and logs that it waits. Raises `RetryError` if it is still more
        after `timeout_s` seconds.
        """
        deadline, is_quiet = time.monotonic() + timeout_s, True
        with self.lock:
            reported = self._reported(app_id, every_s=_EVERY_S)
            while (lag := self._lag(app_id)).batches and not self.is_blind:
                if lag.batches < most.batches and lag.seconds <= most.seconds:
                    break
                oldest, named = next(iter(self._sent_by(app_id).items()))
                remaining_s = deadline - time.monotonic()
                try:
                    self.outcomes.wait(oldest, named, min(remaining_s, QUIET_S) if is_quiet else remaining_s)
                except RetryError as error:
                    if is_quiet and remaining_s > QUIET_S:
                        is_quiet = False
                        LOGGER.warning("%s: waiting for the committer: %s", named.table, self._lag(app_id))
                        continue
                    if reported:
                        # The caller learns first what was refused.
                        break
                    message = f"{lag}: {error.message}"
                    raise RetryError(message, where=str(oldest), hint=_BEHIND) from error
                reported += self._reported(app_id)
        return reported

    def _sent_by(self, app_id: str) -> dict[Position, Envelope]:
        return {position: each.named for position, each in self._of(app_id)}

    def _lag(self, app_id: str) -> Unanswered:
        sent = [each.sent_at for _, each in self._of(app_id)]
        return Unanswered(len(sent), time.monotonic() - sent[0]) if sent else Unanswered()

    def _of(self, app_id: str) -> list[tuple[Position, _SentProposal]]:
        return [(position, each) for position, each in self.unawaited.items() if each.named.app_id == app_id]

    def _reported(self, app_id: str, every_s: float = 0.0) -> list[Outcome]:
        """Reads the outcomes that were reported since the last call, without waiting for any.

        Asks no broker if one was asked less than `every_s` seconds ago. Returns those of rows that are not in
        the table.
        """
        sent = self._sent_by(app_id)
        if self.is_blind or not sent:
            return []
        now = time.monotonic()
        is_due = now - self.read_at >= every_s
        if is_due:
            self.read_at = now
        try:
            reported = self.outcomes.reported(sent, _READ_S if is_due else 0.0)
        except InvalidError as error:
            self.is_blind = True
            LOGGER.warning("refusals of batches that were sent to the log are not seen here: %s", error)
            return []
        except RetryError:
            # The next call reads again.
            return []
        lost = []
        for outcome in reported:
            self.outcomes.forget(outcome.position)
            if self.unawaited.pop(outcome.position).is_lost(outcome):
                lost.append(outcome)
        return lost


def _named(envelope: Envelope) -> Envelope:
    """Returns an envelope with the fields that identify this one, without the proposal of Lance.

    A proposal of Delta is identified by its content.
    """
    named = type(envelope)(table=envelope.table, app_id=envelope.app_id)
    if envelope.HasField("batch_id"):
        named.batch_id = envelope.batch_id
    if envelope.HasField("delta"):
        named.delta.CopyFrom(envelope.delta)
    else:
        named.lance.uuid = envelope.lance.uuid
    return named
