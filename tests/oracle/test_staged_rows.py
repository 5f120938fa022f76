"""Rows that tasks have staged are merged in parts as if they had been in one place."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.clauses import (
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
)
from lakefold_ingest.operations.keyed_parts import KeyedParts
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows import staged_rows
from lakefold_ingest.spark.keyed_plan import plan_changes, plan_merge
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.uri import canonical
from tests.change_events import TABLE, Event, Model, applied, rendered
from tests.merging import Folding, people

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_ingest.operations.keyed_parts import KeyedOperation
    from lakefold_ingest.rows.staged_rows import TaskRows
    from lakefold_ingest.spark.keyed_plan import KeyedPlan

KEY = Key("app", 0)
EVENTS, KEYS, TASKS = 300, 30, 3


@pytest.fixture(autouse=True)
def _parts_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of some hundred rows has several parts, and its tasks have several files."""
    for name, size in (("INLINE_BYTES", 1000), ("STAGED_BYTES", 4000), ("PART_ROWS", 60)):
        monkeypatch.setattr(staged_rows, name, size)


def folding_of(path: Path, rows: pa.Table) -> Folding:
    lance.write_dataset(rows, str(path))
    return Folding(path)


def files(folding: Folding) -> set[Path]:
    return set((folding.path / "data").glob("*"))


def staged(plan: KeyedPlan, parts: Sequence[pa.Table]) -> list[TaskRows]:
    """What the tasks of a batch send: each has its rows in batches of ten."""
    return [plan.run(part.to_batches(max_chunksize=10)) for part in parts]


def put(folding: Folding, plan: KeyedPlan, parts: Sequence[pa.Table]) -> KeyedOperation | KeyedParts:
    """Merges what the tasks have staged, and removes it."""
    tasks = staged(plan, parts)
    operation = plan.batch_operation(tasks)
    folding.put(operation)
    plan.stage.remove(tasks)
    return operation


def divided(rows: pa.Table, tasks: int = TASKS) -> list[pa.Table]:
    """The rows in consecutive parts; the last one is so small that it is sent with its rows."""
    size = (rows.num_rows - 5) // (tasks - 1)
    return [rows.slice(start, size) for start in range(0, size * (tasks - 1), size)] + [
        rows.slice(size * (tasks - 1))
    ]


@pytest.mark.parametrize("form", ["plain", "debezium json", "debezium struct", "delta"])
def test_events_in_parts_leave_the_rows_of_their_history(tmp_path: Path, form: str) -> None:
    chosen, model = random.Random(7), Model()
    folding = folding_of(tmp_path / "t", TABLE.empty_table())
    for batch in range(2):
        events = [
            Event(
                chosen.randrange(KEYS),
                1000 * batch + chosen.randrange(EVENTS),
                None if chosen.random() < 0.3 else f"{batch} {number}",
                has_tombstone=True,
                old=chosen.choice([None, chosen.randrange(KEYS)]),
            )
            for number in range(EVENTS)
        ]
        events = list({(event.id, event.at): event for event in events}.values())
        rows, format_ = rendered(form, events)
        plan = plan_changes(folding.settings(), format_, rows.schema, KEY)
        assert isinstance(put(folding, plan, divided(rows)), KeyedParts)
        applied(model, events, deletes_win=form != "delta")
    assert {row["id"]: (row["at"], row["name"]) for row in folding.rows()} == model
    assert not [file for file in files(folding) if "staged" in file.name]


def test_without_an_order_the_row_of_the_last_task_counts(tmp_path: Path) -> None:
    folding = folding_of(tmp_path / "t", TABLE.empty_table())
    events = [Event(number % 20, 0, f"{number}") for number in range(200)]
    rows, format_ = rendered("plain", events)
    rows, format_ = rows.drop_columns(["at"]), replace(format_, order_by=())
    plan = plan_changes(folding.settings(), format_, rows.schema, KEY)
    put(folding, plan, divided(rows))
    assert {row["id"]: row["name"] for row in folding.rows()} == {n: f"{180 + n}" for n in range(20)}


def test_keys_that_are_equal_in_the_table_are_merged_together(tmp_path: Path) -> None:
    """-0.0 and 0.0 are different bytes, and one key."""
    table = pa.table({"k": pa.array([5.0], pa.float64()), "n": pa.array([0], pa.int64())})
    folding = folding_of(tmp_path / "t", table)
    rows = pa.table({"k": pa.array([0.0, *map(float, range(1, 200)), -0.0], pa.float64()), "n": range(201)})
    parts = [rows.slice(0, 100), rows.slice(100)]
    plan = plan_merge(folding.settings(), Merge(("k",)), rows.schema, KEY)
    tasks = staged(plan, parts)
    with pytest.raises(
        BadKeysError, match=r"keys that are in several rows of the batch: 1, such as k=-?0\.0"
    ):
        folding.build(plan.batch_operation(tasks))
    ordered = plan_merge(folding.settings(), Merge(("k",), ("n",)), rows.schema, KEY)
    put(folding, ordered, parts)
    by_key = {row["k"]: row["n"] for row in folding.rows()}
    assert (len(by_key), by_key[0.0], by_key[5.0]) == (200, 200, 5)


@pytest.mark.parametrize("ids", [range(150, 400), range(150, 156)], ids=len)
def test_rows_that_the_batch_lacks_are_changed_by_the_part_that_has_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: range
) -> None:
    """Also those without a key, and those of parts that have no row of the batch."""
    clauses = (
        MatchedUpdate(),
        NotMatchedInsert(),
        NotMatchedBySourceDelete("target.n < 500 or target.id is null"),
        NotMatchedBySourceUpdate({"name": "'gone'", "n": "target.n + 1"}, "target.n < 1000"),
    )
    table = people(list(range(200)))
    unknown = pa.table({"id": [None, None], "name": ["x", "y"], "n": [1, None]}, schema=table.schema)
    paths, rows = [tmp_path / "parts", tmp_path / "whole"], people(list(ids), "second")
    parts, whole = (folding_of(path, pa.concat_tables([table, unknown])) for path in paths)
    monkeypatch.setattr(staged_rows, "PART_ROWS", 3)
    plan = plan_merge(parts.settings(), Merge(("id",), (), clauses), rows.schema, KEY)
    half = len(ids) // 2
    assert isinstance(put(parts, plan, [rows.slice(0, half), rows.slice(half)]), KeyedParts)
    whole.put(UpsertRows(rows, Merge(("id",), (), clauses)))
    merged = parts.rows()
    assert merged == whole.rows()
    assert {row["id"] for row in merged} == {*range(50, 200), *ids}
    assert {row["id"] for row in merged if row["name"] == "gone"} == {*range(50, 100)} - {*ids}


def test_bad_rows_of_any_part_fail_the_batch_or_are_left_out(tmp_path: Path) -> None:
    folding = folding_of(tmp_path / "t", people([1000]))
    rows = people(list(range(200)))
    bad = pa.table({"id": [None, None], "name": ["x", "y"], "n": [1, None]}, schema=rows.schema)
    parts = [pa.concat_tables([rows.slice(0, 100), bad]), rows.slice(100)]
    plan = plan_merge(folding.settings(), Merge(("id",)), rows.schema, KEY)
    before, tasks = files(folding), staged(plan, parts)
    operation = plan.batch_operation(tasks)
    with pytest.raises(BadKeysError, match="the key column id has no value") as caught:
        folding.build(operation)
    assert (caught.value.rows, caught.value.columns) == (2, ("id",))
    view = read_view(canonical(folding.path), {})
    assert view is not None
    assert isinstance(operation, KeyedParts)
    envelope = operation.build(view, KEY, replace(folding.settings(), bad_records="file:///bad"))
    plan.stage.remove(tasks)
    assert envelope is not None
    folding.fold(envelope)
    assert len(folding.rows()) == 201
    assert len(files(folding) - before) == sum(
        len(each.files) for each in envelope.lance.update.new_fragments
    )
    (left_out,) = operation.bad_rows
    assert left_out["column"].to_pylist() == ["id", "id"]


def test_events_that_can_not_be_read_are_the_fault_of_their_batch(tmp_path: Path) -> None:
    folding = folding_of(tmp_path / "t", TABLE.empty_table())
    rows, format_ = rendered("debezium json", [Event(number, 0, "a") for number in range(100)])
    truncate = pa.table({"key": [b"{}"], "value": [b'{"op": "t"}']}, schema=rows.schema)
    plan = plan_changes(folding.settings(), format_, rows.schema, KEY)
    before = files(folding)
    tasks = staged(plan, [rows, pa.concat_tables([rows, truncate])])
    assert [task.fault is None for task in tasks] == [True, False]
    with pytest.raises(InvalidError, match="truncates its source"):
        plan.commit(KEY, tasks)
    assert files(folding) == before


def test_what_other_tasks_staged_is_removed_if_one_fails(tmp_path: Path) -> None:
    folding = folding_of(tmp_path / "t", people([1000]))
    rows = people(list(range(400)))
    plan = plan_merge(folding.settings(), Merge(("id",)), rows.schema, KEY)
    before = files(folding)

    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches(max_chunksize=10)
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        plan.run(failing())
    assert files(folding) == before
    tasks = staged(plan, [rows])
    plan.abort(tasks)
    assert files(folding) > before
    plan.abort([*tasks, None])
    assert files(folding) == before
    with pytest.raises(DamagedError, match="were removed or cut"):
        folding.build(plan.batch_operation(tasks))
