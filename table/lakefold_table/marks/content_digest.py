"""A digest of what a proposal brings, by which a repeated key with different content is noticed.

A batch that is run again writes its rows into new files, in another order and number, so neither the names
nor the bytes of files say that its content is another. What stays the same whenever the same rows are sent is
the kind of operation, the number of rows and the columns they have. Only that goes into the digest: two
batches that differ in nothing but values have the same one.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.entry import Entry

DIGITS: Final = 6
UNKNOWN: Final = "0" * DIGITS
"""Stands for the digest of a batch whose content is not remembered."""


def content_of(entry: Entry) -> str:
    """Returns the digest of a proposal's content: 24 bits, as hexadecimal digits.

    Its format says what its content is (`TableProposal.content`). `UNKNOWN` for a claim that was not fetched.
    """
    text = "" if entry.proposal is None else entry.proposal.content()
    if not text:
        return UNKNOWN
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    return digest if digest != UNKNOWN else "1".zfill(DIGITS)


def differs(known: str, entry: Entry) -> bool:
    """Whether the entry's content is another than the one with this digest, as far as digests say so."""
    return known != UNKNOWN and content_of(entry) not in {known, UNKNOWN}


def digests(contents: Iterable[str | Entry | None]) -> tuple[str, ...]:
    """The digest of each, given as such or by its entry (None: not known); empty if none of them is known."""
    each = tuple(
        one if isinstance(one, str) else UNKNOWN if one is None else content_of(one) for one in contents
    )
    return each if any(one != UNKNOWN for one in each) else ()


def split(text: str, count: int) -> tuple[str, ...]:
    """`count` digests that were written behind one another. Raises `ValueError` if the length is another."""
    if not text:
        return ()
    if len(text) != DIGITS * count:
        raise ValueError(f"{len(text)} digits are no {count} digests of contents")
    return tuple(text[start : start + DIGITS] for start in range(0, len(text), DIGITS))
