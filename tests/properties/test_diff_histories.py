"""Random histories: a diff of any two versions is what two bags of rows differ by, as other readers see them.

Rows come more than once, are rewritten as they were, go and come back, and are moved by compactions. The rows
of each version are those that pylance or delta-rs reads.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefold
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_source import RowSource
from lakefold_reader.diff import differing_rows
from tests.delta_merging import VECTORS, DeltaFolding, delta_rs_rows
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.merging import Batches

Row = dict[str, Any]
MOST = 5
IDS = st.lists(st.integers(0, MOST), min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "upsert", "delete", "compact", "overwrite", "restore"]), IDS
    ),
    min_size=1,
    max_size=7,
)


def rows(ids: list[int], name: str = "a") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"{name}{n}" if n < MOST else None for n in ids], pa.string()),
            "v": pa.array([[n, None] for n in ids], pa.list_(pa.float32())),
        }
    )


def change(batches: Batches, kind: str, ids: list[int]) -> None:
    """A change by the product's own operations, folded as committers do."""
    if kind == "append":
        batches.put(append_source(RowSource(rows(ids))), max_rows_per_file=2)
    elif kind == "upsert":
        batches.put(UpsertRows(rows(sorted(set(ids)), "b" if ids[0] % 2 else "a"), Merge(("id",))))
    elif kind == "delete":
        batches.put(DeleteWhere(f"id in ({', '.join(map(str, ids))})"))


def lance_history(folder: Path, steps: list[tuple[str, list[int]]]) -> list[Counter[str]]:
    path = folder / "t"
    lance.write_dataset(rows([1, 1, 2]), path)
    batches = Folding(path)
    for kind, ids in steps:
        dataset = lance.dataset(path)
        if kind == "compact":
            dataset.optimize.compact_files()
        elif kind == "overwrite":
            lance.write_dataset(rows(ids), path, mode="overwrite")
        elif kind == "restore":
            lance.dataset(path, version=1 + ids[0] % dataset.version).restore()
        else:
            change(batches, kind, ids)
    newest = lance.dataset(path).version
    return [bag(lance.dataset(path, version=each).to_table().to_pylist()) for each in range(1, newest + 1)]


def delta_history(folder: Path, steps: list[tuple[str, list[int]]], *, vectors: bool) -> list[Counter[str]]:
    path = folder / "t"
    batches = DeltaFolding(path)
    batches.create(
        rows([]).schema, VECTORS if vectors else {}, features=("deletionVectors",) if vectors else ()
    )
    for kind, ids in steps:
        table = DeltaTable(path)
        # delta-rs doesn't write all tables with deletion vectors.
        with suppress(DeltaError):
            if kind == "compact":
                table.optimize.compact()
            elif kind == "overwrite":
                write_deltalake(path, rows(ids), mode="overwrite")
            elif kind == "restore" and table.version():
                table.restore(ids[0] % table.version())
            else:
                change(batches, kind, ids)
    return [bag(delta_rs_rows(path, each)) for each in range(DeltaTable(path).version() + 1)]


def bag(read: list[Row]) -> Counter[str]:
    return Counter(map(repr, read))


def check(path: Path, bags: list[Counter[str]], first: int) -> None:
    """All diffs of all versions, one way and the other."""
    for (a, old), (b, new) in product(enumerate(bags, first), repeat=2):
        difference = lakefold.diff(path, a, b)
        shown = difference.to_arrow().to_pylist()
        sides: dict[str, list[Row]] = {"added": [], "removed": []}
        for row in shown:
            sides[row.pop("_difference")].append(row)
        assert bag(sides["added"]) == new - old, (a, b)
        assert bag(sides["removed"]) == old - new, (a, b)
        assert (difference.rows_added, difference.rows_removed) == (
            len(sides["added"]),
            len(sides["removed"]),
        )


@pytest.fixture(params=[1 << 20, -(1 << 20)], ids=["by files", "by the feed"])
def bytes_of_version(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether the rows come from the files of both versions, or, if the feed has any, always from that."""
    with patch.object(differing_rows, "BYTES_OF_VERSION", request.param):
        yield


def in_a_folder(test: Callable[[Path], None]) -> None:
    folder = Path(mkdtemp())
    try:
        test(folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.usefixtures("bytes_of_version")
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, at_once=st.booleans())
def test_a_diff_of_lance_versions_is_that_of_their_rows(
    steps: list[tuple[str, list[int]]], *, at_once: bool
) -> None:
    def compare(folder: Path) -> None:
        with patch.object(differing_rows, "BYTES_AT_ONCE", 1 << 30 if at_once else 0):
            check(folder / "t", lance_history(folder, steps), 1)

    in_a_folder(compare)


@pytest.mark.usefixtures("bytes_of_version")
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, vectors=st.booleans(), at_once=st.booleans())
def test_a_diff_of_delta_versions_is_that_of_their_rows(
    steps: list[tuple[str, list[int]]], *, vectors: bool, at_once: bool
) -> None:
    def compare(folder: Path) -> None:
        with patch.object(differing_rows, "BYTES_AT_ONCE", 1 << 30 if at_once else 0):
            check(folder / "t", delta_history(folder, steps, vectors=vectors), 0)

    in_a_folder(compare)
