"""Messages read from the log once more and decoded, no more of them at once than memory is meant for.

What waits in memory is counted by its bytes as they came. A large message may take a hundred times as much
once it is decoded, so of those only as many are decoded as may take `MOST_DECODED` together, by an estimate
from their bytes. The others are read again when their turn comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lakefold_log.codec.envelope import decode, decode_large
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.loop.ports import LogReader
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.consumer import Message
    from lakefold_table.formats import Formats

LARGE_BYTES: Final = 128 * 1024
"""A message of so many bytes may hold thousands of fragments: it waits in the log until its turn comes."""
MOST_DECODED: Final = 64 << 20
"""So many bytes of memory may large messages take that are decoded and wait, if there are several of them."""


class Reread(NamedTuple):
    """A message that was read again. `memory`: about how many bytes it takes decoded; 0 if it is small."""

    message: Message
    decoded: Decoded
    memory: int


def reread(
    reader: LogReader, offsets: Sequence[int], max_bytes: int, held: int = 0, formats: Formats = BUILT_IN
) -> list[Reread]:
    """The messages at the first of these offsets, decoded: at least one of them. A task.

    `held`: how much memory other large messages take that wait.
    `formats`: those whose proposals are known. Raises as `LogReader.read_again` does.
    """
    found: list[Reread] = []
    for message in reader.read_again(offsets, max_bytes):
        one = _decoded(reader, message, None if not found else MOST_DECODED - held, formats)
        if one is None:
            break
        held += one.memory
        found.append(one)
    return found


def _decoded(reader: LogReader, message: Message, room: int | None, formats: Formats) -> Reread | None:
    """A message, decoded. Returns None if it takes more than `room` bytes of memory (None: any number)."""
    place = Position(reader.log, message.offset, reader.topic)
    if len(message.value) <= LARGE_BYTES:
        return Reread(message, decode(message.value, message.key, place, message.time_us, formats), 0)

    def allow(needed: int) -> None:
        if room is not None and needed > room:
            raise _FullError

    try:
        large = decode_large(message.value, message.key, place, message.time_us, allow, formats)
        return Reread(message, *large)
    except _FullError:
        return None


class _FullError(Exception):
    """There is no room for one more large message."""
