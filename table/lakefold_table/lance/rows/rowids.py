"""Stable row ids: which id each physical row of a fragment has (Lance facts 7.1 and 7.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.rowids_pb2 import RowIdSequence
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.lance.manifests.wire import varints
from lakefold_table.lance.rows.row_versions import one_version
from lakefold_table.lance.rows.segments import check_rows, damaged, length, numbers, parsed, segment_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray


def row_id_range(first: int, rows: int) -> bytes:
    """The encoded sequence of `rows` neighbouring row ids from `first`."""
    sequence = RowIdSequence()
    segment = sequence.segments.add()
    segment.range.start, segment.range.end = first, first + rows
    return sequence.SerializeToString(deterministic=True)


def lineage(first_row_id: int, rows: int, version: int) -> bytes:
    """The fields of a DataFragment that give a new fragment its row ids and versions, encoded."""
    versions = one_version(rows, version)
    return DataFragment(
        inline_row_ids=row_id_range(first_row_id, rows),
        inline_created_at_versions=versions,
        inline_last_updated_at_versions=versions,
    ).SerializeToString(deterministic=True)


def lineages(first_row_id: int, rows: Sequence[int], version: int) -> Iterator[bytes]:
    """What `lineage` gives for each of some fragments, whose rows have neighbouring ids."""
    ends = varints(np.cumsum(np.array([first_row_id, *rows], dtype=np.uint64)))
    starts = [b"\x08" + one for one in ends[:-1]]
    if not first_row_id and starts:
        starts[0] = b""
    versions: dict[int, bytes] = {}
    for start, end, count in zip(starts, ends[1:], rows, strict=True):
        if count not in versions:
            fields = DataFragment.FromString(lineage(0, count, version))
            fields.ClearField("inline_row_ids")
            versions[count] = fields.SerializeToString(deterministic=True)
        span = b"%s\x10%s" % (start, end)
        size = len(span)
        yield b"\x2a%c\x0a%c\x0a%c%s%s" % (size + 4, size + 2, size, span, versions[count])


def count_row_ids(data: bytes, where: str = "") -> int:
    """How many ids an encoded sequence has, without laying them out. Raises `DamagedError`."""
    return sum(length(one, where) for one in parsed(RowIdSequence, data, where).segments)


def decode_row_ids(data: bytes, rows: int, where: str = "") -> NDArray[np.uint64]:
    """The ids of exactly `rows` rows, in their order; any forms, any number of segments.

    Raises `DamagedError` where the bytes are no well-formed sequence of `rows` ids, before anything of their
    size is made, and what `check_rows` raises. Whether an id stands twice is not looked at.
    """
    segments = parsed(RowIdSequence, data, where).segments
    lengths = [length(one, where) for one in segments]
    if sum(lengths) != rows:
        raise damaged(f"{sum(lengths)} row ids for {rows} rows", where)
    check_rows(rows, where)
    return numbers(segments, lengths, where)


def encode_row_ids(ids: NDArray[np.uint64]) -> bytes:
    """The sequence of these ids, in the form that pylance would choose: one segment, none for no ids."""
    sequence = RowIdSequence(segments=[segment_of(ids)] if ids.size else [])
    return sequence.SerializeToString(deterministic=True)


def concat_row_ids(parts: Iterable[bytes]) -> bytes:
    """One sequence after the other, with all their segments: joined bytes are joined sequences."""
    return b"".join(parts)
