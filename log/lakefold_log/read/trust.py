"""Whose outcomes count, and what becomes of the others: they are passed over, counted and told.

A message that is no outcome may not stop anybody, nor may one that no committer of the group wrote decide
anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from google.protobuf.message import DecodeError

from lakefold_protos.lakefold import log_pb2
from lakefold_table.allocation import check_allocated
from lakefold_table.errors import DamagedError
from lakefold_table.marks.outcome_messages import outcome_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_log.codec.signing import OutcomesKey
    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Outcome

LOG = structlog.get_logger("lakefold.log")


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose outcomes count: those that `key` proves (None: everybody's), and who is told of the others.

    `passed_over` is called with how many there were, and whether those were no outcomes at all.
    """

    key: OutcomesKey | None = None
    passed_over: Callable[[int, bool], None] | None = None


EVERYBODY: Final = Trust()


class ForeignOutcomes:
    """What others than committers wrote among the outcomes: counted, and told in one line."""

    def __init__(self, where: str, trust: Trust = EVERYBODY, since: int = 0) -> None:
        self._where, self._trust, self._since = where, trust, since
        self._counts = {True: 0, False: 0}
        self._first = -1

    def parse(self, message: Message) -> Outcome | None:
        """The outcome that a message is. Returns None if it is none, or none that counts.

        Raises `DamagedError` if it counts, but only a newer release knows what it says.
        """
        key, since = self._trust.key, self._since
        if key is not None and not key.proves(message.offset, message.value, message.headers, since=since):
            self._pass_over(message, is_unreadable=False)
            return None
        try:
            return outcome_value(log_pb2.Outcome.FromString(message.value))
        except DecodeError as error:
            check_allocated(error)
            self._pass_over(message, is_unreadable=True)
        except DamagedError:
            if key is not None and message.offset >= key.since:
                # A committer of a newer release signed it: it counts, and can't be read here.
                raise
            self._pass_over(message, is_unreadable=True)
        return None

    def tell(self) -> None:
        """Writes what was passed over into the log."""
        count = sum(self._counts.values())
        if not count:
            return
        LOG.warning(
            "outcomes passed over",
            where=self._where,
            first_offset=self._first,
            unreadable=self._counts[True],
            unsigned=self._counts[False],
            hint="something else than a committer writes there: take the right to write from it",
        )
        for is_unreadable, number in self._counts.items():
            if number and self._trust.passed_over is not None:
                self._trust.passed_over(number, is_unreadable)

    def _pass_over(self, message: Message, *, is_unreadable: bool) -> None:
        self._counts[is_unreadable] += 1
        self._first = message.offset if self._first < 0 else self._first
