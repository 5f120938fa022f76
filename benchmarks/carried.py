"""What it takes to carry a Delete over a compaction, and a compaction over Deletes.

Both are folded by a committer that has just folded what they are carried over, as it is under a stream.
pylance makes the compaction. The CPU time is that of the whole step: reading what the rows are followed by,
the fold, and the version's file.
"""

from __future__ import annotations

import shutil
import time
from statistics import median
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed
from lakefold_table.lance.rows.deletions import BITMAP, deletion_path, encode_deletions
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned, state
from tests.oracle.compactions import envelopes_of
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import copy_files

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_table.entry import Result

FRAGMENTS, ROWS = 100, 10_000
DELETED = 1_000
"""The rows of the Delete that is carried, and how many Deletes the compaction is carried over."""
TOGETHER = 50
"""How many of these Deletes share a version."""
READ, REPEATS = 1, 9


def measure(root: Path, share: int) -> dict[str, float]:
    """Carries Deletes of 1,000 rows over a compaction of a million, then a compaction over 1,000 Deletes."""
    rows = ROWS // share
    figures: dict[str, float] = {"fragments": FRAGMENTS, "rows": FRAGMENTS * rows}
    for name, stable in (("", False), ("stable row ids: ", True)):
        over_rewrite = _delete_over_rewrite(root / f"delete-{stable}", rows, stable=stable)
        over_deletes = _rewrite_over_deletes(
            root / f"rewrite-{stable}", rows, DELETED // share, stable=stable
        )
        figures[f"{name}ms of CPU for a Delete"] = over_rewrite * 1000
        figures[f"{name}s of CPU for a compaction"] = over_deletes
    return figures


def _delete_over_rewrite(path: Path, rows: int, *, stable: bool) -> float:
    """Returns the seconds of CPU for a Delete, the median of several."""
    _create(path, rows, stable=stable)
    each = DELETED // FRAGMENTS
    writer = owned(path)
    rewrite = _compaction(path, writer)
    spread = {number: np.linspace(0, rows - REPEATS - 1, each).astype(int) for number in range(FRAGMENTS)}
    deletes = [
        _delete(path, {number: Bitmap(offsets + shift) for number, offsets in spread.items()}, f"{shift}")
        for shift in range(REPEATS)
    ]
    _committed(fold(writer, [rewrite], 10))
    seconds: list[float] = []
    for number, envelope in enumerate(deletes):
        began = time.process_time()
        _committed(fold(writer, [envelope], 11 + number))
        seconds.append(time.process_time() - began)
    expected = FRAGMENTS * rows - REPEATS * each * FRAGMENTS
    if lance.dataset(str(path)).count_rows() != expected:
        raise ValueError(f"{path} has other rows than {expected}")
    return median(seconds)


def _rewrite_over_deletes(path: Path, rows: int, deletes: int, *, stable: bool) -> float:
    """Returns the seconds of CPU for the compaction."""
    _create(path, rows, stable=stable)
    writer = owned(path)
    rewrite = _compaction(path, writer)
    for first in range(0, deletes, TOGETHER):
        group = [
            _delete(path, {number % FRAGMENTS: Bitmap([number // FRAGMENTS])}, f"{number}")
            for number in range(first, first + TOGETHER)
        ]
        _committed(fold(writer, group, 10 + first))
    began = time.process_time()
    _committed(fold(writer, [rewrite], 10 + deletes))
    seconds = time.process_time() - began
    if lance.dataset(str(path)).count_rows() != FRAGMENTS * rows - deletes:
        raise ValueError(f"{path} has lost rows")
    return seconds


def _create(path: Path, rows: int, *, stable: bool) -> None:
    numbers = pa.table({"a": pa.array(np.arange(FRAGMENTS * rows))})
    lance.write_dataset(numbers, str(path), max_rows_per_file=rows, enable_stable_row_ids=stable)


def _compaction(path: Path, writer: TableWriter) -> Envelope:
    """Returns the Rewrite that a compaction of the first version proposes; its ids are reserved."""
    copy = path.with_name(f"{path.name}-copy")
    shutil.copytree(path, copy)
    lance.dataset(str(copy)).optimize.compact_files()
    copy_files(copy, path)
    reservation, rewrite = envelopes_of(copy, path, len(manifest_files(path)))
    _committed(fold(writer, [reservation], 0))
    rewrite.lance.transaction_properties[ROW_ORDER] = KEPT
    return rewrite


def _delete(path: Path, rows: dict[int, Bitmap], name: str) -> Envelope:
    """Returns a Delete that was built on the first version; its deletion files are written."""
    envelope = Envelope(table=canonical(str(path)))
    envelope.lance.uuid, envelope.lance.read_version = name, READ
    for number, fragment in state(path, READ).fragments.get(rows).items():
        updated = envelope.lance.delete.updated_fragments.add()
        updated.CopyFrom(fragment)
        offsets = rows[number]
        updated.deletion_file.CopyFrom(
            DeletionFile(file_type=BITMAP, read_version=READ, id=int(name), num_deleted_rows=len(offsets))
        )
        file = path / deletion_path(number, updated.deletion_file)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(encode_deletions(offsets, BITMAP))
        envelope.affected_rows[number] = encode_bitmap(offsets)
    return envelope


def _committed(results: list[Result]) -> None:
    for result in results:
        if not isinstance(result, Committed):
            raise TypeError(f"not committed: {result}")
