"""A digest of a proposal's content, by which a repeated key with different content is noticed.

A batch that is run again writes its rows into new files, in another order and number, so neither the names
nor the bytes of files show whether its content has changed. Whenever the same rows are sent again, the kind
of operation, the number of rows and their columns stay the same.

The writer says what the content is, as it knows the rows of an upsert or a delete, and the envelope alone
shows what became of them in one version of the table. It adds a checksum of the values if it has one. Of an
envelope that says nothing, the proposal's format says it: the operation, the number of rows, their columns.
Digests of the two kinds have different letters, and are never compared with one another.
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


_SAID: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
"""The letters of the digest of a content that the writer says, for hexadecimal digits."""


def content_of(entry: Entry) -> str:
    """Returns the digest of a proposal's content: 24 bits, as six letters or digits.

    Returns `UNKNOWN` for a claim that was not fetched.
    """
    said = entry.envelope.content
    return said_digest(said) if said else _by_format(entry)


def _by_format(entry: Entry) -> str:
    return digest_of("" if entry.proposal is None else entry.proposal.content())


def said_digest(content: str) -> str:
    """Returns the digest of a content as its writer says it, `UNKNOWN` if that is empty."""
    return digest_of(content).translate(_SAID) if content else UNKNOWN


def is_said(digest: str) -> bool:
    """Returns whether it is the digest of a content that the writer said."""
    return digest[0] >= "g"


def digest_like(known: str, said: str, by_format: str) -> str:
    """Returns the digest of what the writer says, or the format, whichever has digests of this kind."""
    return said_digest(said) if is_said(known) else digest_of(by_format)


def digest_of(content: str) -> str:
    """Returns the digest of a content as a format describes it, `UNKNOWN` if that is empty."""
    if not content:
        return UNKNOWN
    digest = hashlib.sha256(content.encode()).hexdigest()[:DIGITS]
    return digest if digest != UNKNOWN else "1".zfill(DIGITS)


def differs(known: str, entry: Entry) -> bool:
    """Returns whether the entry's content differs from that with this digest, as far as the digests show."""
    if known == UNKNOWN:
        return False
    by_format = "" if is_said(known) or entry.proposal is None else entry.proposal.content()
    return digest_like(known, entry.envelope.content, by_format) not in {known, UNKNOWN}


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
