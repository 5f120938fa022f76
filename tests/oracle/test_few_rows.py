"""Tasks with few rows share files, which the driver writes as the tasks would have written their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.formats import FORMATS
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows import few_rows, staged_rows
from lakefold_ingest.rows.few_rows import FewRows
from lakefold_ingest.rows.row_faults import BadRowsError
from lakefold_ingest.rows.task_files import TaskFiles, bad_rows_of, collect_files
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_table.errors import DamagedError
from tests.delta_merging import DeltaFolding
from tests.merging import Folding, people

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.spark.write_plan import WritePlan

    AnyFolding = Folding | DeltaFolding

KEY = Key("app", 0)
TARGET = 40_000
FOLDINGS: dict[str, Callable[[Path], AnyFolding]] = {"lance": Folding, "delta": DeltaFolding}
SCHEMA = people([1]).schema


@pytest.fixture
def table(tmp_path: Path) -> Folding:
    """A table without rows."""
    lance.write_dataset(SCHEMA.empty_table(), str(tmp_path / "t"))
    return Folding(tmp_path / "t")


def planned(
    table: AnyFolding, *, bad_records: str = "", overwrite: bool = False, **options: str
) -> WritePlan:
    given = read_write_options({"path": str(table.path), **options})
    sort_by = given.value("sortBy") or ()
    settings = replace(table.settings(), bad_records=bad_records, sort_by=sort_by)
    return plan_write(given, settings, SCHEMA, KEY, use=WriteUse.BATCH, overwrite=overwrite)


def run(plan: WritePlan, *parts: pa.Table) -> list[TaskFiles | FewRows]:
    """What the tasks of a batch send: each has its rows in batches of a hundred."""
    return [plan.run(part.to_batches(max_chunksize=100)) for part in parts]


def files(table: AnyFolding) -> set[str]:
    return {file.name for file in table.path.rglob("*") if file.suffix in {".lance", ".parquet"}}


def test_tasks_with_few_rows_share_a_file_and_the_others_write_their_own(table: Folding) -> None:
    plan = planned(table, driverRows="300", sortBy="id")
    tasks = run(plan, people([5, 1]), people(list(range(10, 311))), SCHEMA.empty_table(), people([3, 2]))
    assert [type(task) for task in tasks] == [FewRows, TaskFiles, TaskFiles, FewRows]
    fragments = collect_files(plan.target, plan.with_few(tasks))
    assert [fragment.physical_rows for fragment in fragments] == [301, 4]
    table.put(plan.operation.with_files(fragments, bad_rows_of([])), KEY)
    assert table.rows("id") == sorted(({"id": n} for n in [1, 2, 3, 5, *range(10, 311)]), key=repr)
    last = lance.dataset(str(table.path)).get_fragments()[1]
    assert last.to_table()["id"].to_pylist() == [1, 2, 3, 5]
    # 256 KiB are too many for the driver, whatever their number of rows.
    wide = people([1, 2]).set_column(1, "name", pa.array(["x" * few_rows.FEW_BYTES, "y"]))
    assert [type(task) for task in run(planned(table), wide, people([1]))] == [TaskFiles, FewRows]
    assert all(isinstance(task, TaskFiles) for task in run(planned(table, driverRows="0"), people([1])))


@pytest.mark.parametrize("name", ["lance", "delta"])
def test_files_have_the_size_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever the number of tasks, and whether they send their rows or stage them in files."""
    monkeypatch.setattr(staged_rows, "INLINE_BYTES", TARGET // 4)
    table: AnyFolding = FOLDINGS[name](tmp_path / "t")
    table.fold(FORMATS[name].creation(table.settings(), KEY, SCHEMA))
    plan = planned(table, targetFileSize=str(TARGET))
    tasks = run(plan, *(people(list(range(n, n + 500))) for n in range(0, 10_000, 500)), people([10_000]))
    assert [bool(task.path) for task in tasks if isinstance(task, FewRows)] == [True] * 20 + [False]
    staged = {file for file in files(table) if "staged" in file}
    assert len(staged) == 20
    written = collect_files(plan.target, plan.with_few(tasks))
    assert not staged & files(table)
    sizes = [(table.path / path).stat().st_size for file in written for path in plan.target.paths(file)]
    assert len(sizes) > 2
    assert all(TARGET * 0.5 < size < TARGET * 1.5 for size in sizes[1:-1]), sizes
    table.fold(table.view().append(KEY, written))
    assert len(files(table)) == len(sizes)


def test_thousands_of_tasks_send_less_than_spark_allows(table: Folding) -> None:
    """Spark ends a batch whose tasks send more than 1 GiB, unless `spark.driver.maxResultSize` is higher."""
    assert sum(map(staged_rows.inline_bytes, range(100_000))) < 600 * 2**20
    plan, rows = planned(table), people([1]).set_column(1, "name", pa.array(["x" * 200_000]))
    tasks = [plan.run(rows.to_batches(), task) for task in (0, 299, 5000)]
    assert [task.path != "" for task in tasks if isinstance(task, FewRows)] == [False, False, True]
    assert [each.physical_rows for each in collect_files(plan.target, plan.with_few(tasks))] == [3]


def test_bad_rows_are_counted_or_left_out_over_all_tasks(table: Folding) -> None:
    before = files(table)
    parts = [people(list(range(n, n + 10))) for n in (0, 10, 20)]
    missing = pa.array([None] * 10, pa.int64())
    field = pa.field("id", pa.int64(), nullable=False)
    lance.write_dataset(
        pa.table([[0], ["a"], pa.array([1], pa.int32())], schema=SCHEMA.set(0, field)),
        str(table.path),
        mode="overwrite",
    )
    before = files(table)
    large = people(list(range(100, 500)))
    faulty = [large, parts[0].set_column(0, "id", missing), parts[1].set_column(0, "id", missing), parts[2]]
    plan = planned(table, driverRows="300")
    with pytest.raises(BadRowsError, match="20 rows"):
        plan.commit(KEY, run(plan, *faulty))
    assert files(table) == before
    plan = planned(table, driverRows="300", bad_records="file:///bad")
    tasks = plan.with_few(run(plan, *faulty))
    assert bad_rows_of(tasks).num_rows == 20
    assert [each.physical_rows for each in collect_files(plan.target, tasks)] == [400, 10]


def test_rows_that_do_not_satisfy_the_condition_are_counted_over_all_tasks(table: Folding) -> None:
    plan = planned(table, overwrite=True, driverRows="20", replaceWhere="id >= 15")
    tasks = run(plan, people(list(range(30))), people([1, 20]), people([2, 21]))
    assert [type(task) for task in tasks] == [TaskFiles, FewRows, FewRows]
    with pytest.raises(Exception, match="17 rows of the batch don't satisfy"):
        plan.commit(KEY, tasks)


def test_what_is_staged_is_removed_if_a_task_or_the_driver_fails(
    table: Folding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_rows, "INLINE_BYTES", 10)
    before = files(table)
    plan = planned(table, driverRows="300")
    tasks = run(plan, people(list(range(400))), people([1]), people([2]))
    assert len(files(table) - before) == 3
    plan.abort(tasks)
    assert len(files(table) - before) == 3
    plan.abort([*tasks, None])
    assert files(table) == before
    tasks = run(plan, people(list(range(400))), people([1]), people([2]))
    (
        table.path / "data" / next(task.path for task in tasks if isinstance(task, FewRows)).partition("/")[2]
    ).unlink()
    with pytest.raises(DamagedError, match="were removed while their batch was written"):
        plan.commit(KEY, tasks)
    assert files(table) == before
