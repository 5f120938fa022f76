"""Decides whether two Updates may have inserted the same key, by their filters of inserted rows.

A filter lists the hashes of the keys, or is a Bloom filter: blocks of eight words of 32 bits, in which each
key sets one bit in every word of one block. Two such filters of the same shape can share a key only if some
block has a common bit in each of its words. pylance 14 writes Bloom filters of 32 KiB whatever the number of
keys (Lance fact 5.5), so the footprint holds their bits as a bitmap, which is small if there are few keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_table.bitmaps import bitmap_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.conflicts.footprint import Filter

WORD_BITS, BLOCK_WORDS = 32, 8
APPENDS, LATER = "lakefold.appends", "later"
"""The property by which an Update states that Appends after its read version count as made after it, and its
only value (decision 0073)."""
PART = 2**16
"""How many bytes of a filter are unpacked at once. Unpacking takes 72 bytes of memory for each."""


def precedes_appends(transaction: Transaction) -> bool:
    """Returns whether an Update states that Appends after its read version count as made after it."""
    return transaction.transaction_properties.get(APPENDS) == LATER


def bits_of(bloom: bytes) -> Bitmap:
    """Returns the bits that are set in a Bloom filter, counted from the lowest bit of its first byte."""
    bitmap = bitmap_of(np.empty(0, np.uint32))
    for start in range(0, len(bloom), PART):
        bits = np.unpackbits(np.frombuffer(bloom[start : start + PART], np.uint8), bitorder="little")
        bitmap |= bitmap_of((np.flatnonzero(bits) + start * 8).astype(np.uint32))
    return bitmap


def hashes_of(hashes: Collection[int]) -> bytes:
    """Returns the hashes in ascending order, 8 bytes each: far smaller than a set of numbers."""
    return np.unique(np.fromiter(hashes, np.uint64, len(hashes))).tobytes()


def may_share_keys(ours: Filter, theirs: Filter) -> bool:
    """Returns whether some key may be in both. Returns True if the columns or the shapes differ."""
    if ours.fields != theirs.fields:
        return True
    if ours.bloom is None and theirs.bloom is None:
        common = np.intersect1d(
            np.frombuffer(ours.hashes, np.uint64), np.frombuffer(theirs.hashes, np.uint64), assume_unique=True
        )
        return bool(len(common))
    if ours.bloom is None or theirs.bloom is None or ours.shape != theirs.shape:
        return True
    words = np.unique(numbers_of(ours.bloom & theirs.bloom) // WORD_BITS)
    return bool((np.bincount(words // BLOCK_WORDS, minlength=1) == BLOCK_WORDS).any())
