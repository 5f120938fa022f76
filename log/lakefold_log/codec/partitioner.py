"""Computes the partition of a table's proposals, as Kafka's own clients do in every language.

All proposals of a table are in the same partition, so every client that sends, waits or looks up must compute
the same number. Kafka's Java clients hash the key with murmur2 and take the remainder; librdkafka does so if
it is configured to.
"""

from __future__ import annotations

from functools import lru_cache

# The constants of the hash and the seed that Kafka's clients use (Kafka protocol: default partitioner).
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_WORD = 0xFFFFFFFF
# Kafka drops the sign bit instead of taking the absolute value, which overflows for the smallest number.
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Returns the 32 bit murmur2 hash of `key`, unsigned, with the seed of Kafka's clients."""
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
    """Returns the partition, of `partitions`, that the canonical URI `table` is hashed to.

    A table that is bound to a log stays in the partition that its marks name, whatever this returns.
    """
    return (murmur2(table.encode()) & _POSITIVE) % partitions


def home_of(table: str, bound: int | None, partitions: int) -> int:
    """Returns the partition, of `partitions`, that the table's entries are sent to.

    `bound` is the partition that its marks name (None: the table is not bound). It is ignored if the topic
    was created again with fewer partitions.
    """
    return partition_of(table, partitions) if bound is None or bound >= partitions else bound
