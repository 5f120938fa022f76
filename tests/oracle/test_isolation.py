"""What an operation has read and did not change, by level: one example for each kind of operation that reads.

Two batches are built on one version. Under `Serializable` the second is refused if the first changed what the
second has read. Without a level, both are committed: the rows that they change differ.

Promise: serializable (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.lance.format import LanceWriting
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
from lakefold_ingest.operations.overwrite import OverwriteRows
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.errors import InvalidError
from lakefold_table.lance.isolation import ISOLATION
from tests.delta_merging import VECTORS, DeltaFolding
from tests.merging import Folding
from tests.oracle.test_compacting import BatchLog, compaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.merge.clauses import Clause
    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope

SERIALIZABLE = {"delta.isolationLevel": "Serializable"}
KINDS = ["delta", "delta with vectors", "lance", "lance with stable row ids"]
"""The kinds of tables."""


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
    "a key without a row that another upsert inserts": lambda: (
        upsert(NotMatchedInsert(), batch=rows(("c", 1))),
        upsert(MatchedUpdate(), batch=rows(("a", 5), ("c", 5))),
    ),
    "a condition that holds for a changed row": lambda: (increase(0), DeleteWhere("v = 1 or v = 3")),
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


def started(path: Path, kind: str, *, serializable: bool = True) -> DeltaFolding | Folding:
    """A table with two rows."""
    if kind.startswith("lance"):
        stable = kind == "lance with stable row ids"
        dataset = lance.write_dataset(rows(("a", 1), ("b", 2)), str(path / "t"), enable_stable_row_ids=stable)
        if serializable:
            dataset.update_config({ISOLATION: "serializable"})
        return Folding(path / "t")
    folding = DeltaFolding(path / "t")
    vectors = VECTORS if kind == "delta with vectors" else {}
    folding.create(rows().schema, vectors | (SERIALIZABLE if serializable else {}))
    folding.append(rows(("a", 1), ("b", 2)))
    return folding


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_batch_has_read_is_judged_if_the_level_is_serializable(
    tmp_path: Path, what: str, kind: str
) -> None:
    folding = started(tmp_path, kind)
    first, second = (folding.build(operation) for operation in READS[what]())
    assert first is not None
    assert second is not None
    (committed,) = folding.fold(first)
    assert isinstance(committed, Committed)
    folding.refused(second)
    again = folding.build(READS[what]()[1], again=True)
    if again is not None:
        assert isinstance(folding.fold(again)[0], Committed)


@pytest.mark.parametrize("other", [appended, lambda: increase(0)], ids=["added", "changed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_replacement_has_read_the_rows_of_its_condition(
    tmp_path: Path, kind: str, other: Callable[[], Operation]
) -> None:
    folding = started(tmp_path, kind)
    new, where = RowSource(rows(("d", 1))), "v = 1 or v = 3"
    first, second = (folding.build(each) for each in (other(), OverwriteRows(new, where, folding.settings())))
    assert first is not None
    assert isinstance(folding.fold(first)[0], Committed)
    folding.refused(second)
    again = folding.put(OverwriteRows(new, where, folding.settings()))
    assert again is not None
    assert [row["id"] for row in folding.rows()] == (["b", "d"] if other is appended else ["d"])


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("kind", ["delta with vectors", "lance"])
def test_without_a_level_only_rows_that_change_are_judged(tmp_path: Path, what: str, kind: str) -> None:
    folding = started(tmp_path, kind, serializable=False)
    first, second = (folding.build(operation) for operation in READS[what]())
    assert first is not None
    assert second is not None
    results = [folding.fold(each)[0] for each in (first, second)]
    assert [type(result) for result in results] == [Committed, Committed]


@pytest.mark.parametrize("kind", ["delta with vectors", "lance"])
def test_two_rows_show_what_the_levels_mean(tmp_path: Path, kind: str) -> None:
    outcomes = {}
    for name in ("none", "serializable"):
        folding = started(tmp_path / name, kind, serializable=name == "serializable")
        proposals = [folding.build(increase(odd)) for odd in (1, 0)]
        assert None not in proposals
        results = folding.fold(*filter(None, proposals))
        outcomes[name] = [type(each) for each in results], {row["id"]: row["v"] for row in folding.rows()}
    assert outcomes == {
        "none": ([Committed, Committed], {"a": 2, "b": 3}),
        "serializable": ([Committed, Rejected], {"a": 2, "b": 2}),
    }


@pytest.mark.parametrize("serializable", [True, False])
def test_batches_of_disjoint_keys_share_a_file_and_a_version(tmp_path: Path, *, serializable: bool) -> None:
    folding = started(tmp_path, "delta with vectors", serializable=serializable)
    clauses = (MatchedUpdate(None, "target.v < 10"), NotMatchedInsert())
    upserts = [upsert(*clauses, batch=rows((name, v))) for name, v in (("a", 5), ("b", 6), ("d", 7))]
    operations: list[Operation] = [*upserts, events("e", 9)]
    proposals = [folding.build(operation) for operation in operations]
    results = folding.fold(*filter(None, proposals))
    assert [type(each) for each in results] == [Committed] * 4


def test_batches_of_disjoint_keys_are_committed_to_a_serializable_lance_table(tmp_path: Path) -> None:
    folding = started(tmp_path, "lance")
    clauses = (MatchedUpdate(None, "target.v < 10"), NotMatchedInsert())
    upserts = [upsert(*clauses, batch=rows((name, v))) for name, v in (("a", 5), ("b", 6), ("d", 7))]
    operations: list[Operation] = [*upserts, events("e", 9), increase(7), delete_keys(rows(("f", 0)), ["id"])]
    proposals = [folding.build(operation) for operation in operations]
    assert proposals[4:] == [None, None]
    results = [folding.fold(each)[0] for each in filter(None, proposals)]
    assert [type(each) for each in results] == [Committed] * 4
    assert [row["v"] for row in folding.rows()] == [5, 6, 7, 9]


def kept_row(folding: Folding) -> Envelope:
    """An upsert that has read the row b and changes the row a."""
    clauses = (MatchedUpdate(None, "target.v = 1"), NotMatchedInsert())
    built = folding.build(upsert(*clauses, batch=rows(("a", 8), ("b", 9))))
    assert built is not None
    assert [*built.reads.rows] == [0]
    return built


def compact(folding: Folding) -> None:
    """Compacts the table; the proposals of the compaction are folded."""
    log = BatchLog(folding.path, folding=folding)
    report = compaction(folding.path, log).run(full=True)
    assert all(isinstance(result, Committed) for result in log.results)
    assert (report.failed, report.fragments_after) == ([], 1)


def more_rows(folding: Folding, name: str) -> None:
    lance.write_dataset(rows((name, 10)), str(folding.path), mode="append")


@pytest.mark.parametrize("deleted", ["nothing", "before", "between", "after"])
@pytest.mark.parametrize("kind", ["lance", "lance with stable row ids"])
def test_rows_that_were_read_are_followed_through_compactions(
    tmp_path: Path, kind: str, deleted: str
) -> None:
    folding = cast("Folding", started(tmp_path, kind))
    more_rows(folding, "c")
    envelope = kept_row(folding)

    def delete(when: str) -> None:
        if when == deleted:
            assert folding.put(delete_keys(rows(("b", 0)), ["id"])) is not None

    delete("before")
    compact(folding)
    delete("between")
    lance.dataset(str(folding.path)).delete("id = 'c'")
    compact(folding)
    delete("after")
    if deleted == "nothing":
        assert isinstance(folding.fold(envelope)[0], Committed)
    else:
        assert "were deleted or moved since it was read" in folding.refused(envelope).conflict.message


def test_a_proposal_that_does_not_say_what_it_has_read_may_have_read_anything(tmp_path: Path) -> None:
    folding = cast("Folding", started(tmp_path, "lance"))
    first, second = (folding.build(delete_keys(rows((name, 0)), ["id"])) for name in "ab")
    assert first is not None
    assert second is not None
    second.ClearField("reads")
    assert isinstance(folding.fold(first)[0], Committed)
    assert "doesn't name it" in folding.refused(second).conflict.message
    again = folding.build(delete_keys(rows(("b", 0)), ["id"]))
    assert again is not None
    again.ClearField("reads")
    assert isinstance(folding.fold(again)[0], Committed)


def test_pylance_upserts_beside_upserts_that_insert_no_key(tmp_path: Path) -> None:
    folding = cast("Folding", started(tmp_path, "lance"))
    before = lance.dataset(str(folding.path))
    assert folding.put(increase(1)) is not None
    merge = before.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(("b", 7), ("c", 8)))
    assert [row["v"] for row in folding.rows()] == [2, 7, 8]


def test_malformed_reads_are_refused(tmp_path: Path) -> None:
    folding = cast("Folding", started(tmp_path, "lance"))
    envelope = kept_row(folding)
    envelope.reads.rows[0] = b"no bitmap"
    append = folding.build(appended())
    assert append is not None
    append.reads.any_row = True
    results = [folding.fold(each)[0] for each in (envelope, append)]
    messages = [result.message for result in results if isinstance(result, Invalid)]
    assert [message.partition(":")[0] for message in messages] == [
        "the read rows of fragment 0 can't be read",
        "an envelope with the operation append has `reads`",
    ]


def test_a_level_is_set_by_a_proposal_and_only_to_one_that_exists(tmp_path: Path) -> None:
    folding = cast("Folding", started(tmp_path, "lance", serializable=False))
    results = []
    for value in ("snapshot", "serializable"):
        envelope = folding.view().nothing(Key("app", next(folding.batches)))
        envelope.lance.update_config.upsert_values[ISOLATION] = value
        results.append(folding.fold(envelope)[0])
    assert isinstance(results[0], Invalid)
    assert results[0].message == "lakefold.isolation can't be 'snapshot'"
    assert isinstance(results[1], Committed)
    assert lance.dataset(str(folding.path)).config()[ISOLATION] == "serializable"


def test_a_write_gives_the_level_to_a_lance_table_that_it_creates(tmp_path: Path) -> None:
    folding = Folding(tmp_path / "t")
    wrong, right = (
        replace(folding.settings(), table_properties={name: "serializable"})
        for name in ("delta.isolationLevel", ISOLATION)
    )
    with pytest.raises(InvalidError, match="no such properties"):
        LanceWriting().creation(wrong, Key("app", 0), rows().schema)
    (created,) = folding.fold(LanceWriting().creation(right, Key("app", 0), rows().schema))
    assert isinstance(created, Committed)
    assert lance.dataset(str(folding.path)).config() == {ISOLATION: "serializable"}
