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

    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.entry import Entry

DIGITS: Final = 6
UNKNOWN: Final = "0" * DIGITS
"""Stands for the digest of a batch whose content is not remembered."""


def content_of(entry: Entry) -> str:
    """Returns the digest of a proposal's content: 24 bits, as hexadecimal digits.

    For an Append: its rows, and the ids of the fields in its data files. For an Overwrite: its rows; its
    field ids are its own and may change from run to run. Any other operation depends on the table that it was
    built on, so only its kind counts. `UNKNOWN` for a claim that was not redeemed.
    """
    kind = entry.envelope.lance.WhichOneof("operation")
    if kind is None:
        return UNKNOWN
    rows, fields = _rows_and_fields(entry)
    text = f"{kind} {rows} {' '.join(map(str, sorted(fields)))}"
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


def _rows_and_fields(entry: Entry) -> tuple[int, set[int]]:
    if entry.plain is not None:
        return entry.plain.rows, {number for _, _, fields, _ in entry.plain.shape for number in fields}
    if entry.packed is not None:
        files = (file for kind in entry.packed.kinds for file in kind.files)
        return sum(entry.packed.rows), {number for file in files for number in file.fields}
    return _of_message(entry.envelope.lance)


def _of_message(lance: Transaction) -> tuple[int, set[int]]:
    if lance.HasField("overwrite"):
        return sum(one.physical_rows for one in lance.overwrite.fragments), set()
    fragments = lance.append.fragments
    fields = {number for one in fragments for file in one.files for number in file.fields}
    return sum(one.physical_rows for one in fragments), fields
