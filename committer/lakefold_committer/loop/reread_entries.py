"""Messages read from the log once more and decoded, as many at once as there is memory for.

Entries that wait in memory are counted by the bytes of their messages. A large message may take a hundred
times as much once it is decoded. So of those only as many are decoded as take `MOST_DECODED` together, by an
estimate from their bytes. The others are read again when their turn comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lakefold_log.codec.envelope import Decoded, decode, decode_large
from lakefold_table.formats import BUILT_IN, Formats
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.loop.ports import LogReader
    from lakefold_log.read.consumer import Message

LARGE_BYTES: Final = 128 * 1024
"""A message of more bytes may hold thousands of fragments: it waits in the log until its turn comes."""
MOST_DECODED: Final = 64 << 20
"""How many bytes of memory large messages that are decoded and wait may take, if there are several."""


class Reread(NamedTuple):
    """A message that was read again. `memory`: about how many bytes it takes decoded; 0 if it is small."""

    message: Message
    decoded: Decoded
    memory: int


def reread(
    reader: LogReader, offsets: Sequence[int], max_bytes: int, held: int = 0, formats: Formats = BUILT_IN
) -> list[Reread]:
    """Returns the messages at the first of these offsets, decoded: at least one of them. A task.

    `held`: how much memory other large messages take that wait. `formats`: the formats whose proposals are
    known. Raises as `LogReader.read_again` does.
    """
    messages: list[Reread] = []
    for message in reader.read_again(offsets, max_bytes):
        decoded = _decoded(reader, message, MOST_DECODED - held if messages else None, formats)
        if decoded is None:
            break
        held += decoded.memory
        messages.append(decoded)
    return messages


def _decoded(reader: LogReader, message: Message, room: int | None, formats: Formats) -> Reread | None:
    """Returns a message, decoded. Returns None if it takes more than `room` bytes of memory (None: any)."""
    position = Position(reader.log, message.offset, reader.topic)
    if len(message.value) <= LARGE_BYTES:
        return Reread(message, decode(message.value, message.key, position, message.time_us, formats), 0)

    def allow(needed: int) -> None:
        if room is not None and needed > room:
            raise _FullError

    try:
        large = decode_large(message.value, message.key, position, message.time_us, allow, formats)
        return Reread(message, *large)
    except _FullError:
        return None


class _FullError(Exception):
    """There is no room for another large message."""
