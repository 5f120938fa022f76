"""Which partition a table's proposals go to: the same answer as Kafka's own clients in every language.

A table lives in one partition, so everybody who sends, waits or asks must compute the same number. Kafka's
Java clients hash the key with murmur2 and take the remainder; librdkafka does so when it is told to.
"""

from __future__ import annotations

from functools import lru_cache

# The constants of the hash and the seed that Kafka's clients use (Kafka protocol: default partitioner).
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_WORD = 0xFFFFFFFF
# Kafka drops the sign bit instead of taking the absolute value, which has no answer for the smallest number.
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """The 32 bit murmur2 hash of `key`, unsigned, with the seed of Kafka's clients."""
    length = len(key)
    state = (_SEED ^ length) & _WORD
    whole = length & ~3
    for start in range(0, whole, 4):
        word = (int.from_bytes(key[start : start + 4], "little") * _MULTIPLIER) & _WORD
        word = ((word ^ (word >> _SHIFT)) * _MULTIPLIER) & _WORD
        state = ((state * _MULTIPLIER) & _WORD) ^ word
    if whole != length:
        state = ((state ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER) & _WORD
    state = ((state ^ (state >> 13)) * _MULTIPLIER) & _WORD
    return state ^ (state >> 15)


@lru_cache(maxsize=4096)
def partition_of(table: str, partitions: int) -> int:
    """The partition of a topic with `partitions` partitions that the canonical URI `table` is hashed to.

    A table that is bound already stays in the partition of its marks, whatever this says.
    """
    return (murmur2(table.encode()) & _POSITIVE) % partitions


def home_of(table: str, bound: int | None, partitions: int) -> int:
    """The partition of a topic with `partitions` partitions that the table's entries are sent to.

    `bound`: the one that its marks name (None: none). A topic that was made anew may have fewer.
    """
    return partition_of(table, partitions) if bound is None or bound >= partitions else bound
