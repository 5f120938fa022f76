"""Row ids and row versions of new fragments on tables with stable row ids (format facts, section 6)."""

from __future__ import annotations

from lakefold_protos.lance.rowids_pb2 import RowDatasetVersionSequence, RowIdSequence
from lakefold_protos.lance.table_pb2 import DataFragment


def row_id_range(first: int, rows: int) -> bytes:
    """The encoded sequence of `rows` neighbouring row ids from `first`."""
    sequence = RowIdSequence()
    segment = sequence.segments.add()
    segment.range.start, segment.range.end = first, first + rows
    return sequence.SerializeToString(deterministic=True)


def one_version(rows: int, version: int) -> bytes:
    """The encoded sequence that gives `rows` rows the same version."""
    sequence = RowDatasetVersionSequence()
    run = sequence.runs.add(version=version)
    run.span.range.start, run.span.range.end = 0, rows
    return sequence.SerializeToString(deterministic=True)


def lineage(first_row_id: int, rows: int, version: int) -> bytes:
    """The fields of a DataFragment that give a new fragment its row ids and versions, encoded."""
    versions = one_version(rows, version)
    return DataFragment(
        inline_row_ids=row_id_range(first_row_id, rows),
        inline_created_at_versions=versions,
        inline_last_updated_at_versions=versions,
    ).SerializeToString(deterministic=True)
