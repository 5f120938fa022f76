"""Hashes of the keys that an upsert inserts, by which the committer notices that two upserts insert one key.

An Update lists the hashes of the keys that it inserts. Of two Updates that have a hash in common and were
built beside each other, the committer refuses the second (Lance fact 5.5). So every writer has to compute the
same 64 bits for the same key, whatever release it has: this module must never compute others.
`docs/format/inserted-keys.md` describes them for other languages.

pylance's own upserts carry a Bloom filter instead. It can't be compared with a list, so such a pair counts as
a conflict, in pylance as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]

WORD_BYTES = 8
AT_ONCE = 2**16
"""How many texts are hashed at once: an index of 8 bytes is made for each of their bytes."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)


def key_hashes(columns: Sequence[pa.Array]) -> Numbers:
    """Returns a hash for each row of these key columns, which have no nulls and are `comparable`."""
    words = np.stack([_column_hashes(column) for column in columns], axis=1)
    return _sequence_hashes(words)


def _column_hashes(column: pa.Array) -> Numbers:
    """Returns 64 bits for each value: the value itself if it has no more than that, else a hash."""
    kind = column.type
    if types.is_uint64(kind):
        return _numpy(column)
    if types.is_floating(kind):
        return _numpy(pc.cast(column, pa.float64()))
    if types.is_decimal(kind):
        return _sequence_hashes(_decimal_words(column))
    if types.is_boolean(kind) or types.is_integer(kind):
        return _numpy(pc.cast(column, pa.int64()))
    if types.is_temporal(kind):
        number = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
        return _numpy(pc.cast(column.view(number), pa.int64()))
    texts = pc.cast(column, pa.large_binary())
    parts = [_text_hashes(texts.slice(start, AT_ONCE)) for start in range(0, len(texts), AT_ONCE)]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _numpy(column: pa.Array) -> Numbers:
    """Returns the bits of each value of a column whose values have 64 bits."""
    return cast("Numbers", column.to_numpy(zero_copy_only=False).view(np.uint64))


def _decimal_words(column: pa.Array) -> Numbers:
    """Returns the words of each unscaled value, lowest first."""
    width = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * width
    return data[start : start + len(column) * width].view(np.uint64).reshape(-1, width // WORD_BYTES)


def _text_hashes(texts: pa.Array) -> Numbers:
    """Returns hashes of texts of any length: of their words of 8 bytes, the last filled up with zeros."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    counts = -(-lengths // WORD_BYTES)
    ends = np.cumsum(counts)
    starts = ends - counts
    padded = np.zeros(int(counts.sum()) * WORD_BYTES, np.uint8)
    padded[np.arange(data.size) + np.repeat(starts * WORD_BYTES - (offsets[:-1] - offsets[0]), lengths)] = (
        data
    )
    positions = np.arange(padded.size // WORD_BYTES) - np.repeat(starts, counts)
    mixed = _mixed(padded.view(np.uint64) + _salts(positions))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return _mixed(sums[ends] - sums[starts] + _mixed(lengths.astype(np.uint64)))


def _sequence_hashes(words: Numbers) -> Numbers:
    """Returns the hash of each row of words; the order of the words counts."""
    mixed = _mixed(words + _salts(np.arange(words.shape[1])))
    return _mixed(mixed.sum(axis=1, dtype=np.uint64))


def _salts(positions: NDArray[np.int64]) -> Numbers:
    return _mixed(positions.astype(np.uint64) + np.uint64(1))


def _mixed(words: Numbers) -> Numbers:
    """Returns each word with its bits mixed: one step of the generator SplitMix64."""
    mixed = words + _STEP
    for shift, factor in _ROUNDS:
        mixed = (mixed ^ (mixed >> shift)) * factor
    return mixed ^ (mixed >> _LAST)
