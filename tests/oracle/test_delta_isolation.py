"""What an operation has read and did not change, by level: one example for each kind of operation that reads.

Two batches are built on one version. Under `Serializable` the second is refused if the first changed what the
second has read. Without a level, both are committed: the rows that they change differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.merge.clauses import (
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
)
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.entry import Committed, Rejected
from tests.delta_merging import VECTORS, DeltaFolding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.merge.clauses import Clause
    from lakefold_ingest.writing.operation import Operation

SERIALIZABLE = {"delta.isolationLevel": "Serializable"}


def rows(*given: tuple[str, int]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([name for name, _ in given], pa.string()),
            "v": pa.array([v for _, v in given], pa.int64()),
        }
    )


def upsert(*clauses: Clause, batch: pa.Table | None = None) -> UpsertRows:
    return UpsertRows(rows(("a", 0), ("b", 0)) if batch is None else batch, Merge(("id",), clauses=clauses))


def increase(odd: int) -> UpsertRows:
    return upsert(MatchedUpdate([], f"target.v % 2 = {odd}", {"v": "target.v + 1"}))


def events(name: str, v: int) -> ApplyChanges:
    form = change_format(
        "id", "v", operation_column="op", operations=None, envelope=None, debezium_types=None
    )
    return ApplyChanges(rows((name, v)).append_column("op", pa.array(["u"])), form)


def appended() -> Operation:
    return append_source(RowSource(rows(("c", 1))))


READS: dict[str, Callable[[], tuple[Operation, Operation]]] = {
    "the condition of an update": lambda: (increase(1), increase(0)),
    "the condition of a delete": lambda: (increase(1), upsert(MatchedDelete("target.v = 2"))),
    "a row that stays because of a condition": lambda: (
        delete_keys(rows(("b", 0)), ["id"]),
        upsert(MatchedUpdate(None, "target.v = 1"), NotMatchedInsert(), batch=rows(("a", 8), ("b", 9))),
    ),
    "a key without a row": lambda: (appended(), upsert(MatchedUpdate(), batch=rows(("a", 5), ("c", 5)))),
    "a key to delete without a row": lambda: (appended(), delete_keys(rows(("a", 0), ("c", 0)), ["id"])),
    "the condition of a delete by SQL": lambda: (appended(), DeleteWhere("v = 1")),
    "rows that the batch lacks, to delete": lambda: (
        appended(),
        upsert(NotMatchedBySourceDelete("target.v = 1"), batch=rows(("b", 0))),
    ),
    "rows that the batch lacks, to update": lambda: (
        appended(),
        upsert(NotMatchedBySourceUpdate({"v": "7"}, "target.v = 1"), batch=rows(("b", 0))),
    ),
}


def started(path: Path, *properties: dict[str, str]) -> DeltaFolding:
    folding = DeltaFolding(path / "t")
    folding.create(rows().schema, {name: text for each in properties for name, text in each.items()})
    folding.append(rows(("a", 1), ("b", 2)))
    return folding


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("vectors", [True, False])
def test_what_a_batch_has_read_is_judged_if_the_level_is_serializable(
    tmp_path: Path, what: str, *, vectors: bool
) -> None:
    folding = started(tmp_path, SERIALIZABLE, VECTORS if vectors else {})
    first, second = (folding.build(operation) for operation in READS[what]())
    assert first is not None
    assert second is not None
    (committed,) = folding.fold(first)
    assert isinstance(committed, Committed)
    folding.refused(second)
    again = folding.build(READS[what]()[1], again=True)
    if again is not None:
        assert isinstance(folding.fold(again)[0], Committed)


@pytest.mark.parametrize("what", READS)
def test_without_a_level_only_rows_that_change_are_judged(tmp_path: Path, what: str) -> None:
    folding = started(tmp_path, VECTORS)
    first, second = (folding.build(operation) for operation in READS[what]())
    assert first is not None
    assert second is not None
    results = [folding.fold(each)[0] for each in (first, second)]
    assert [type(result) for result in results] == [Committed, Committed]


def test_two_rows_show_what_the_levels_mean(tmp_path: Path) -> None:
    outcomes = {}
    for name, level in (("none", {}), ("serializable", SERIALIZABLE)):
        folding = started(tmp_path / name, VECTORS, level)
        proposals = [folding.build(increase(odd)) for odd in (1, 0)]
        assert None not in proposals
        results = folding.fold(*filter(None, proposals))
        outcomes[name] = [type(each) for each in results], {row["id"]: row["v"] for row in folding.rows()}
    assert outcomes == {
        "none": ([Committed, Committed], {"a": 2, "b": 3}),
        "serializable": ([Committed, Rejected], {"a": 2, "b": 2}),
    }


@pytest.mark.parametrize("level", [{}, SERIALIZABLE])
def test_batches_of_disjoint_keys_share_a_file_and_a_version(tmp_path: Path, level: dict[str, str]) -> None:
    folding = started(tmp_path, VECTORS, level)
    clauses = (MatchedUpdate(None, "target.v < 10"), NotMatchedInsert())
    upserts = [upsert(*clauses, batch=rows((name, v))) for name, v in (("a", 5), ("b", 6), ("d", 7))]
    operations: list[Operation] = [*upserts, events("e", 9)]
    proposals = [folding.build(operation) for operation in operations]
    results = folding.fold(*filter(None, proposals))
    assert [type(each) for each in results] == [Committed] * 4
