"""A checksum of a batch's rows, by which other values under a key that was used are noticed.

A batch that is run again may have its rows in another order, so the order doesn't count: each column adds
the sum of its values' hashes. Rows with the same values in each column that are paired in another way have
the same checksum. Of a text or of bytes the length and 24 bytes are hashed, the first, the middle and the
last eight; the others count by their sum.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

_WORD: Final = 8
"""How many bytes a word has."""
_MODULUS: Final = 2**64
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose bits look random: 2**64 divided by the golden ratio."""
_SHIFT: Final = np.uint64(32)
_MASKS: Final = np.array([2 ** (8 * length) - 1 for length in range(_WORD + 1)], np.uint64)
"""By the number of bytes that a text has in a word, those that are its own; machines are little-endian."""


class RowChecksum:
    """The checksum of the batches that were added, however the rows are divided into them."""

    __slots__ = ("_total",)

    def __init__(self) -> None:
        self._total = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the rows of a batch."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            numbers = count(crc32(name.encode()) << 16)
            for number, leaf in zip(numbers, _leaves(column), strict=False):
                added = (2 * number + 1) * leaf if isinstance(leaf, int) else _hashed(number, leaf)
                self._total = (self._total + added) % _MODULUS

    def __str__(self) -> str:
        """Returns it as 16 hexadecimal digits."""
        return f"{self._total:016x}"


def _hashed(number: int, words: Sequence[Words]) -> int:
    """Returns the sum of the hashes of values, each of which has a word at its place in each of `words`."""
    state = np.full(len(words[0]), number, np.uint64)
    for each in words:
        state ^= each
        state *= _FACTOR
        state ^= state >> _SHIFT
    state *= _FACTOR
    return int(np.sum(state ^ (state >> _SHIFT), dtype=np.uint64))


def _leaves(array: pa.Array) -> Iterator[Sequence[Words] | int]:
    """Yields the words of all values, column by column of those that a nested one consists of.

    Before each column comes the number of its nulls. Numbers are to be added up over all batches.
    """
    yield array.null_count
    kind, present = array.type, array.drop_null() if array.null_count else array
    if isinstance(present, pa.ExtensionArray):
        yield from _leaves(present.storage)
    elif types.is_dictionary(kind):
        yield from _leaves(present.dictionary_decode())
    elif types.is_struct(kind):
        for child in present.flatten():
            yield from _leaves(child)
    elif types.is_map(kind):
        yield from _leaves(present.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    elif types.is_nested(kind):
        if not types.is_fixed_size_list(kind):
            yield [np.diff(present.offsets.to_numpy()).astype(np.uint64)]
        yield from _leaves(present.flatten())
    elif not types.is_null(kind):
        yield from _of_plain(present.cast(pa.uint8()) if types.is_boolean(kind) else present)


def _of_plain(array: pa.Array) -> Iterator[Sequence[Words] | int]:
    """Yields as `_leaves` for values that are not nested, without nulls."""
    kind = array.type
    if types.is_string(kind) or types.is_binary(kind):
        yield from _of_texts(array, np.int32)
    elif types.is_large_string(kind) or types.is_large_binary(kind):
        yield from _of_texts(array, np.int64)
    else:
        yield _of_fixed_width(array)


def _of_fixed_width(array: pa.Array) -> Sequence[Words]:
    """Returns the words of values that have the same number of bytes, e.g. four of a 256 bit decimal."""
    width = array.type.bit_width // 8
    (_, values) = array.buffers()
    read = np.frombuffer(values or b"", np.uint8, len(array) * width, array.offset * width if values else 0)
    if width in {1, 2, 4, _WORD}:
        # A wider type has the same words.
        return [read.view(f"i{width}").astype(np.int64).view(np.uint64)]
    padded = np.zeros((len(array), -(-width // _WORD) * _WORD), np.uint8)
    padded[:, :width] = read.reshape(len(array), width)
    return list(padded.view(np.uint64).T)


def _of_texts(array: pa.Array, offset: type[np.int32 | np.int64]) -> Iterator[Sequence[Words] | int]:
    """Yields the words of each text or of bytes, and the sum of all bytes. `offset`: the type of offsets."""
    (_, offsets, values) = array.buffers()
    if not len(array) or offsets is None:
        return
    bounds = np.frombuffer(offsets, offset)[array.offset :][: len(array) + 1]
    first, last = int(bounds[0]), int(bounds[-1])
    data = np.frombuffer(values or b"", np.uint8)[first:last]
    starts, lengths = bounds[:-1].astype(np.int64) - first, np.diff(bounds).astype(np.int64)
    others = np.maximum(lengths - _WORD, 0)
    mask = _MASKS[np.minimum(lengths, _WORD)]
    # A word that begins at each byte.
    words = np.ndarray(len(data) + 1, np.uint64, np.append(data, np.zeros(_WORD, np.uint8)), strides=(1,))
    parts = (words[starts + skipped] & mask for skipped in (0, others // 2, others))
    yield [lengths.astype(np.uint64), *parts]
    yield int(np.sum(data, dtype=np.uint64))
