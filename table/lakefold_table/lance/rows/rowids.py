"""Stable row ids: the id of each physical row of a fragment (Lance facts 7.1 and 7.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_protos.lance.rowids_pb2 import RowIdSequence
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.lance.rows.row_versions import one_version
from lakefold_table.lance.rows.segments import (
    ceiling,
    check_rows,
    damaged,
    length,
    numbers,
    parsed,
    segment_of,
)
from lakefold_table.wire import varints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def row_id_range(first: int, rows: int) -> bytes:
    """Returns the encoded sequence of `rows` consecutive row ids from `first`."""
    sequence = RowIdSequence()
    segment = sequence.segments.add()
    segment.range.start, segment.range.end = first, first + rows
    return sequence.SerializeToString(deterministic=True)


def lineage(first_row_id: int, rows: int, version: int) -> bytes:
    """Returns the encoded fields of a DataFragment with the row ids and versions of a new fragment."""
    versions = one_version(rows, version)
    return DataFragment(
        inline_row_ids=row_id_range(first_row_id, rows),
        inline_created_at_versions=versions,
        inline_last_updated_at_versions=versions,
    ).SerializeToString(deterministic=True)


def lineages(first_row_id: int, rows: Sequence[int], version: int) -> Iterator[bytes]:
    """Yields what `lineage` returns for each of several fragments, whose rows have consecutive ids."""
    ends = varints(np.cumsum(np.array([first_row_id, *rows], dtype=np.uint64)))
    starts = [b"\x08" + start for start in ends[:-1]]
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
    """Returns the number of ids in an encoded sequence without decoding them. Raises `DamagedError`."""
    return sum(length(segment, where) for segment in parsed(RowIdSequence, data, where).segments)


def decode_row_ids(data: bytes, rows: int, where: str = "") -> NDArray[np.uint64]:
    """Returns the ids of exactly `rows` rows in order, from any number of segments of any form.

    Raises `DamagedError` if the bytes are no well-formed sequence of `rows` ids, before any memory of their
    size is allocated, and raises as `check_rows` does. Doesn't check whether an id occurs twice.
    """
    segments = parsed(RowIdSequence, data, where).segments
    lengths = [length(segment, where) for segment in segments]
    if sum(lengths) != rows:
        raise damaged(f"{sum(lengths)} row ids for {rows} rows", where)
    check_rows(rows, where)
    return numbers(segments, lengths, where)


def row_ids_below(data: bytes, ids: NDArray[np.uint64], next_row_id: int) -> bytes:
    """Returns the encoded sequence of these ids, `data`, or another one if a range in it ends too high.

    pylance calls a table damaged in which a range of row ids ends above the next free one, whatever ids the
    range has.
    """
    segments = parsed(RowIdSequence, data, "").segments
    return data if max(map(ceiling, segments), default=-1) < next_row_id else encode_row_ids(ids)


def encode_row_ids(ids: NDArray[np.uint64]) -> bytes:
    """Returns the sequence of these ids in pylance's form: one segment, or none if there are no ids."""
    sequence = RowIdSequence(segments=[segment_of(ids)] if ids.size else [])
    return sequence.SerializeToString(deterministic=True)
