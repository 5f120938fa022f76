"""A digest of a proposal's content, by which a repeated key with different content is noticed.

A batch that is run again writes its rows into new files, in another order and number, so neither the names
nor the bytes of files show whether its content has changed. Whenever the same rows are sent again, the kind
of operation, the number of rows and their columns stay the same. Only these go into the digest: two batches
that differ in nothing but values have the same digest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.entry import Entry

DIGITS: Final = 6
UNKNOWN: Final = "0" * DIGITS
"""The digest of a batch whose content is not remembered."""


def content_of(entry: Entry) -> str:
    """Returns the digest of a proposal's content: 24 bits, as hexadecimal digits.

    Its format says what its content is (`TableProposal.content`). Returns `UNKNOWN` for a claim that was not
    fetched.
    """
    return digest_of("" if entry.proposal is None else entry.proposal.content())


def digest_of(content: str) -> str:
    """Returns the digest of a content as a format describes it, `UNKNOWN` if that is empty."""
    if not content:
        return UNKNOWN
    digest = hashlib.sha256(content.encode()).hexdigest()[:DIGITS]
    return digest if digest != UNKNOWN else "1".zfill(DIGITS)


def differs(known: str, entry: Entry) -> bool:
    """Returns whether the entry's content differs from that with this digest, as far as the digests show."""
    return known != UNKNOWN and content_of(entry) not in {known, UNKNOWN}


def digests(contents: Iterable[str | Entry | None]) -> tuple[str, ...]:
    """Returns the digest of each content, a digest or an entry (None: not known), or () if none is known."""
    each = tuple(
        content if isinstance(content, str) else UNKNOWN if content is None else content_of(content)
        for content in contents
    )
    return each if any(digest != UNKNOWN for digest in each) else ()


def split(text: str, count: int) -> tuple[str, ...]:
    """Returns the `count` digests that a text is made of. Raises `ValueError` if its length is wrong."""
    if not text:
        return ()
    if len(text) != DIGITS * count:
        raise ValueError(f"{len(text)} digits are not {count} digests of contents")
    return tuple(text[start : start + DIGITS] for start in range(0, len(text), DIGITS))
