"""Which version created each row and which version changed it last, as runs of rows with the same version.

The span of a run is written as the offsets of its rows in the fragment, as pylance does when it computes a
span. When runs are read, only the number of elements of a span counts: after a compaction pylance leaves
others there.

Source: Lance fact 7.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lakefold_protos.lance.rowids_pb2 import RowDatasetVersionSequence
from lakefold_table.bitmaps import numbers_of
from lakefold_table.lance.rows.segments import check_rows, damaged, length, parsed
from lakefold_table.lance.schemas.fragment_files import with_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.table_view import TableView

FIRST_VERSION = 1
"""The version that counts as having created a row if its fragment doesn't state one (Lance fact 7.5)."""
MOST_COUNTED = 2**63 - 1


class Runs(NamedTuple):
    """Consecutive rows with the same version: the number of rows, and the version."""

    rows: NDArray[np.int64]
    versions: NDArray[np.uint64]


def one_version(rows: int, version: int) -> bytes:
    """Returns the encoded sequence that gives `rows` rows the same version."""
    sequence = RowDatasetVersionSequence()
    run = sequence.runs.add(version=version)
    run.span.range.start, run.span.range.end = 0, rows
    return sequence.SerializeToString(deterministic=True)


def decode_runs(data: bytes, rows: int, where: str = "") -> Runs:
    """Returns the stored runs of a sequence for exactly `rows` rows. Raises `DamagedError`."""
    runs = parsed(RowDatasetVersionSequence, data, where).runs
    lengths = [length(run.span, where) for run in runs]
    if sum(lengths) != rows or rows > MOST_COUNTED:
        raise damaged(f"{sum(lengths)} row versions for {rows} rows", where)
    return Runs(np.array(lengths, dtype=np.int64), np.array([run.version for run in runs], dtype=np.uint64))


def encode_runs(runs: Runs) -> bytes:
    """Returns the encoded sequence of these runs; skips empty runs and merges runs of the same version."""
    full = runs.rows > 0
    rows, versions = runs.rows[full], runs.versions[full]
    sequence = RowDatasetVersionSequence()
    if rows.size:
        firsts = _firsts(versions)
        ends = np.cumsum(rows)[np.append(firsts[1:], rows.size) - 1].tolist()
        for start, end, version in zip([0, *ends[:-1]], ends, versions[firsts].tolist(), strict=True):
            run = sequence.runs.add(version=version)
            run.span.range.start, run.span.range.end = start, end
    return sequence.SerializeToString(deterministic=True)


def decode_versions(data: bytes, rows: int, where: str = "") -> NDArray[np.uint64]:
    """Returns the version of each of `rows` rows. Raises `DamagedError`, and as `check_rows` does."""
    runs = decode_runs(data, rows, where)
    check_rows(rows, where)
    return np.repeat(runs.versions, runs.rows)


def encode_versions(versions: NDArray[np.uint64]) -> bytes:
    """Returns the encoded sequence of these rows' versions."""
    firsts = _firsts(versions)
    return encode_runs(Runs(np.diff(firsts, append=versions.size), versions[firsts]))


def replaced_versions(data: bytes, rows: int, offsets: Bitmap, version: int, where: str = "") -> bytes:
    """Returns the sequence of `rows` rows in which the rows at `offsets` have another version.

    Raises as decoding does, and `DamagedError` if an offset is outside of the fragment.
    """
    versions = decode_versions(data, rows, where)
    if offsets and offsets.max() >= rows:
        raise damaged(f"row {offsets.max()} of {rows} rows", where)
    versions[numbers_of(offsets)] = version
    return encode_versions(versions)


def _firsts(versions: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the indices at which another version begins."""
    changes = np.flatnonzero(versions[1:] != versions[:-1]) + 1
    return np.concatenate([np.zeros(min(1, versions.size), dtype=np.int64), changes])


def with_updated_files(table: TableView, before: DataFragment, files: Iterable[DataFile]) -> DataFragment:
    """Returns the fragment with other files, as `with_files` does.

    With stable row ids, all its rows then count as updated in the version in the making.
    """
    fragment = with_files(before, files)
    if table.stable_row_ids:
        fragment.inline_last_updated_at_versions = one_version(fragment.physical_rows, table.version)
    return fragment
