"""How much of what was polled is decoded at once: what a message becomes in memory is its sender's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.consumer import Message


def portions_of(messages: Sequence[Message], max_bytes: int) -> list[tuple[Sequence[Message], bool]]:
    """The messages of one poll, cut so that few large ones are decoded at once; each with "is the last".

    Decoded, a message may take a hundred times its size: what is decoded together is bounded, whoever sent
    it.
    """
    portions: list[Sequence[Message]] = []
    start, size = 0, 0
    for index, message in enumerate(messages):
        if index > start and size + len(message.value) > max_bytes:
            portions.append(messages[start:index])
            start, size = index, 0
        size += len(message.value)
    if start < len(messages):
        portions.append(messages[start:])
    return [(portion, number == len(portions)) for number, portion in enumerate(portions, start=1)]
