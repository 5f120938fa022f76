"""Decides whose outcomes count; all others are skipped, counted and logged.

A message that is not an outcome must not stop any reader, and a message that no committer of the group wrote
must not decide anything.
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
class AcceptedSigners:
    """Whose outcomes count: those that `key` signed (None: all), and a callback for the others.

    `passed_over` is called with their number, and with True if they were not outcomes at all.
    """

    key: OutcomesKey | None = None
    passed_over: Callable[[int, bool], None] | None = None


EVERYBODY: Final = AcceptedSigners()


class ForeignOutcomes:
    """Messages that no committer wrote among the outcomes: counted, and logged in one line."""

    def __init__(self, where: str, signers: AcceptedSigners = EVERYBODY, since: int = 0) -> None:
        self._where, self._signers, self._since = where, signers, since
        self._counts = {True: 0, False: 0}
        self._first = -1

    def parse(self, message: Message) -> Outcome | None:
        """Returns the outcome in a message, or None if it is not an outcome or doesn't count.

        Raises `DamagedError` if it counts, but needs a newer release to be read.
        """
        key, since = self._signers.key, self._since
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
                # A committer of a newer release signed it: it counts, but this release can't read it.
                raise
            self._pass_over(message, is_unreadable=True)
        return None

    def log(self) -> None:
        """Logs how many messages were skipped."""
        count = sum(self._counts.values())
        if not count:
            return
        LOG.warning(
            "outcomes passed over",
            where=self._where,
            first_offset=self._first,
            unreadable=self._counts[True],
            unsigned=self._counts[False],
            hint="a program that is no committer writes to this topic: revoke its right to write",
        )
        for is_unreadable, number in self._counts.items():
            if number and self._signers.passed_over is not None:
                self._signers.passed_over(number, is_unreadable)

    def _pass_over(self, message: Message, *, is_unreadable: bool) -> None:
        self._counts[is_unreadable] += 1
        self._first = message.offset if self._first < 0 else self._first
