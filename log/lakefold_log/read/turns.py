"""Whose turn it is after a refusal: a refused upsert comes before others that change the same keys.

Without that, whoever is fast wins each time, and a writer among several of the same keys may be refused
dozens of times. A message of a proposal that may be refused for its rows has a header with hashes of the keys
that it changes. The committer repeats the header in the outcome. So each writer that reads outcomes knows who
was refused as retryable, in the order of the log, and waits for those before it that share a key. It reads
outcomes as soon as they are written, committed or not.

Nothing but the order of attempts depends on it. A message without the header is folded as ever. A refused
proposal that does not come again, as its writer has died, loses its turn after a while.

Pure: the caller says what time it is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from lakefold_table.entry import Outcome, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lakefold_log.read.consumer import Headers

TURN: Final = "lakefold-turn"
"""The header of a proposal's message, and of the outcome that refuses it."""
MOST_HASHES: Final = 4096
"""How many hashes a header has: the smallest ones, so that of two large batches both have the same part."""
WHOLE: Final = 0
"""Among the parts of a turn: the whole table, which has all parts."""
MOST_REFUSED: Final = 256
"""How many refused proposals are known at once; later ones have no turn."""
_LEAST_S: Final = 2.0
_BUILDS: Final = 4
_MOST_S: Final = 60.0
_HEAD: Final = struct.Struct("<16sII")
_MOST_BYTES: Final = _HEAD.size + 8 * MOST_HASHES
"""How long a header may be: with a longer one an outcome might not fit in a message."""
_MILLISECONDS: Final = 1000
_MOST_MS: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Turn:
    """What a proposal says of itself: hashes of 32 bits of its `keys`, and how many seconds it took to build.

    `batch`: 16 bytes that are the same whenever the batch is built again. `parts`: hashes of the parts of the
    table for which it may be refused by changes of other keys, such as Delta's partitions; `WHOLE` for all of
    it. All that changes them has them in its own `parts`.
    """

    batch: bytes
    keys: frozenset[int]
    parts: frozenset[int] = frozenset()
    build_s: float = 0.0

    def encode(self) -> bytes:
        """Returns the header: the batch, and numbers of 32 bits, the lowest byte first.

        They are milliseconds, the number of parts, the parts, the keys.
        """
        parts, keys = sorted(self.parts), sorted(self.keys)
        head = _HEAD.pack(self.batch, min(int(self.build_s * _MILLISECONDS), _MOST_MS), len(parts))
        return head + np.array([*parts, *keys], "<u4").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Returns the turn in a header, or None if there is none: other programs may write anything."""
        if len(data) < _HEAD.size or len(data) % 4 or len(data) > _MOST_BYTES:
            return None
        batch, milliseconds, parts = _HEAD.unpack_from(data)
        hashes = np.frombuffer(data, "<u4", offset=_HEAD.size).tolist()
        return cls(batch, frozenset(hashes[parts:]), frozenset(hashes[:parts]), milliseconds / _MILLISECONDS)

    def meets(self, other: Turn) -> bool:
        """Returns whether both have a key or a part in common."""
        has_both = self.parts and other.parts and WHOLE in self.parts | other.parts
        return bool(has_both) or not (self.keys.isdisjoint(other.keys) and self.parts.isdisjoint(other.parts))

    @property
    def patience_s(self) -> float:
        """How many seconds others wait for it once it is its turn: several times as long as it was built."""
        return min(_LEAST_S + _BUILDS * self.build_s, _MOST_S)


def header_of(message: Headers, *, is_refused: bool) -> bytes:
    """Returns the header of a proposal's outcome by those of its message, empty if there is none to repeat.

    One that is too long is not repeated. If the proposal is not refused, only its first part is.
    """
    data = (message and dict(message).get(TURN)) or b""
    if len(data) > _MOST_BYTES:
        return b""
    return data if is_refused else data[: _HEAD.size]


def smallest(hashes: NDArray[np.uint64]) -> frozenset[int]:
    """Returns those of these hashes that a header has."""
    return frozenset(np.unique(hashes.astype(np.uint32))[:MOST_HASHES].tolist())


@dataclass(slots=True)
class _Refused:
    """A refused proposal. `before`: those refused earlier that it waits for; `since`: when its turn began."""

    turn: Turn
    since: float
    before: set[bytes] = field(default_factory=set)

    @property
    def ends_at(self) -> float:
        """When it loses its turn; it has none yet while others are before it."""
        return self.since + self.turn.patience_s


class Turns:
    """The refused proposals of a table's main branch that have not come again, by the order of the log."""

    def __init__(self) -> None:
        self._refused: dict[bytes, _Refused] = {}

    def hear(self, outcome: Outcome, header: bytes, now: float) -> None:
        """Notes an outcome that was read at a time, with its header.

        A proposal that is refused again stays where it was.
        """
        turn = None if outcome.branch else Turn.decode(header)
        if turn is None:
            return
        result = outcome.result
        if not isinstance(result, Rejected) or not result.conflict.retryable:
            self._end(turn.batch, now)
            return
        if turn.keys and result.conflict.row_addresses:
            # It met a row that both changed, so changes of other keys do not matter.
            turn = replace(turn, parts=frozenset())
        known = self._refused.get(turn.batch)
        if known is not None:
            known.turn, known.since = turn, now
        elif len(self._refused) < MOST_REFUSED:
            before = {name for name, each in self._refused.items() if each.turn.meets(turn)}
            self._refused[turn.batch] = _Refused(turn, now, before)

    def wait_until(self, turn: Turn, now: float) -> float | None:
        """Returns when to ask again, later than `now`, if a proposal waits for those refused before it.

        Returns None if it meets none of them. What is heard meanwhile may end the wait.
        """
        for name in [name for name, each in self._refused.items() if not each.before and each.ends_at <= now]:
            if name != turn.batch:
                self._end(name, now)
        earlier = list(self._before(turn.batch))
        # A proposal that waits itself has no turn yet, so it is asked again once the next turn has ended.
        next_end = min((each.ends_at for each in earlier if not each.before), default=now)
        ends = (next_end if each.before else each.ends_at for each in earlier if each.turn.meets(turn))
        return max(ends, default=None)

    def _before(self, batch: bytes) -> Iterator[_Refused]:
        for name, each in self._refused.items():
            if name == batch:
                return
            yield each

    def _end(self, batch: bytes, now: float) -> None:
        if self._refused.pop(batch, None) is None:
            return
        for each in self._refused.values():
            if batch in each.before:
                each.before.remove(batch)
                each.since = now

    @property
    def is_empty(self) -> bool:
        """Whether no batch waits for a turn."""
        return not self._refused
