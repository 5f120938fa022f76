"""Refusals on their way out: as dead letters that keep the message as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_log.read.dead_letters import DeadLetter
from lakefold_table.entry import Invalid, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Outcome


def dead_letters(messages: Sequence[Message], outcomes: Sequence[Outcome]) -> list[DeadLetter]:
    """The messages that were refused, as they came, with the reason."""
    letters: list[DeadLetter] = []
    for message, outcome in zip(messages, outcomes, strict=True):
        if isinstance(outcome.result, Rejected | Invalid):
            reason, hint = _reason(outcome.result)
            letters.append(
                DeadLetter(outcome.position, message.key, message.value, reason, hint, message.headers)
            )
    return letters


def _reason(result: Rejected | Invalid) -> tuple[str, str]:
    if isinstance(result, Invalid):
        return result.message, result.hint
    return result.conflict.message, "build it again" if result.conflict.retryable else ""
