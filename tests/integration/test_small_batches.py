"""The driver writes small batches as Spark's tasks write others, and leaves those that grow to the tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_faults import BadRowsError
from lakefold_ingest.spark.file_layout import FileLayout
from lakefold_ingest.spark.sink import Sink
from lakefold_ingest.spark.small_batches import RecentSizes, recent_sizes
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakefold_ingest.merge.clauses import Merge

LIMIT = 100


@dataclass
class Batches:
    """A table that is written batch by batch, and whether a task that runs Python wrote the last one."""

    folding: Folding
    python_frames: list[None]
    layout: FileLayout = field(default_factory=lambda: FileLayout(driver_rows=LIMIT))
    merge: Merge | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def put(self, frame: DataFrame) -> tuple[bool, int]:
        """Whether tasks wrote the batch, and how many fragments the table has then."""
        self.python_frames.clear()
        key, self.number = Key("app", self.number), self.number + 1
        layout = self.layout if self.merge is None else FileLayout()
        settings = replace(self.folding.settings(), **self.settings)
        with Sink(settings, merge=self.merge, layout=layout)._operation(frame, key) as operation:
            self.folding.put(operation, key, **self.settings)
        return bool(self.python_frames), len(lance.dataset(str(self.folding.path)).get_fragments())

    @property
    def recent(self) -> RecentSizes:
        return recent_sizes(self.folding.settings().table, "app")


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[pa.Schema], Batches]:
    """Creates a table with this schema."""
    frames = list[None]()
    map_in_arrow = ClassicFrame.mapInArrow

    def recorded(frame: ClassicFrame, *arguments: Any, **named: Any) -> DataFrame:  # noqa: ANN401 - as Spark's
        frames.append(None)
        return map_in_arrow(frame, *arguments, **named)

    def create(schema: pa.Schema) -> Batches:
        lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
        return Batches(Folding(tmp_path / "t"), frames)

    monkeypatch.setattr(ClassicFrame, "mapInArrow", recorded)
    return create


def test_a_batch_that_grows_beyond_the_limit_is_written_by_tasks_once(
    spark: SparkSession, batches: Callable[[pa.Schema], Batches]
) -> None:
    table = batches(pa.schema({"n": pa.int64()}))
    assert table.put(spark.range(0, 40, 1, 2).toDF("n")) == (True, 2)
    assert table.put(spark.range(40, 80, 1, 2).toDF("n")) == (False, 3)
    assert table.put(spark.range(80, 80, 1, 2).toDF("n")) == (False, 3)
    # All rows but two are in the second of three partitions, and more of them than the driver takes.
    uneven = spark.range(0, 1200, 1, 3).where("id between 399 and 800").selectExpr("id - 319 n")
    assert table.put(uneven) == (True, 6)
    assert table.put(spark.range(482, 500, 1, 2).toDF("n")) == (True, 8)
    rows = lance.dataset(str(table.folding.path)).to_table()["n"].to_pylist()
    assert rows == list(range(500))


def test_a_batch_of_exactly_the_limit_is_complete(
    spark: SparkSession, batches: Callable[[pa.Schema], Batches]
) -> None:
    table = batches(pa.schema({"n": pa.int64()}))
    table.put(spark.range(0, 40, 1, 2).toDF("n"))
    assert table.put(spark.range(40, 140, 1, 1).toDF("n")) == (False, 3)
    assert table.put(spark.range(140, 241, 1, 1).toDF("n"))[0]
    rows = lance.dataset(str(table.folding.path)).to_table()["n"].to_pylist()
    assert rows == list(range(241))


def test_rows_that_do_not_fit_fail_a_small_batch_or_are_left_out(
    spark: SparkSession, batches: Callable[[pa.Schema], Batches]
) -> None:
    table = batches(pa.schema({"n": pa.uint8()}))
    table.put(spark.range(0, 4, 1, 2).selectExpr("cast(id as int) n"))
    files = set((table.folding.path / "data").iterdir())
    wrong = spark.range(0, 40, 1, 2).selectExpr("cast(if(id in (7, 30), 300 + id, id) as int) n")
    with pytest.raises(BadRowsError, match="2 rows") as caught:
        table.put(wrong)
    assert not table.python_frames
    assert (caught.value.columns, set((table.folding.path / "data").iterdir())) == (("n",), files)
    table.settings = {"bad_records": "file:///bad"}
    assert table.put(wrong) == (False, 3)
    assert lance.dataset(str(table.folding.path)).count_rows() == 4 + 38


def test_types_that_spark_can_not_give_to_the_driver_are_written_by_tasks(
    spark: SparkSession, batches: Callable[[pa.Schema], Batches]
) -> None:
    frame = spark.sql("select parse_json(if(id = 0, null, '1')) v from range(2)")
    value, metadata = (pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata"))
    table = batches(pa.schema({"v": pa.struct([value, metadata])}))
    for _ in range(3):
        assert table.put(frame)[0]
    assert not table.recent.is_possible
    assert lance.dataset(str(table.folding.path)).count_rows() == 6


def test_a_small_batch_is_merged_without_a_task_that_runs_python(
    spark: SparkSession, batches: Callable[[pa.Schema], Batches]
) -> None:
    table = batches(pa.schema({"n": pa.int64(), "m": pa.int64()}))
    table.merge = merge_of("upsert", "n")
    for m in range(3):
        assert not table.put(spark.range(m, m + 20, 1, 2).selectExpr("id n", f"{m}L m"))[0]
    expected = {n: min(n, 2) for n in range(22)}
    assert {row["n"]: row["m"] for row in table.folding.rows()} == expected


def jobs_so_far(spark: SparkSession) -> int:
    """Spark's tracker learns of a job by an event, which may come after the result of the job."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_small_batch_costs_few_calls_of_the_jvm_one_job_and_three_syncs(
    spark: SparkSession, batches: Callable[[pa.Schema], Batches], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call takes about a tenth of a millisecond of CPU, and a job twenty; a sync is what a disk does.

    Nearly all calls are those of `toArrow` itself, which are counted as well.
    """
    calls, syncs = list[str](), list[int]()
    send, fsync = ClientServerConnection.send_command, os.fsync

    def counted(connection: ClientServerConnection, command: str, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as py4j's
        # Objects that Python has forgotten are released at any time.
        if not command.startswith("m\n"):
            calls.append(command)
        return send(connection, command, *arguments, **named)

    def synced(descriptor: int) -> None:
        syncs.append(descriptor)
        fsync(descriptor)

    table = batches(pa.schema({"n": pa.int64()}))
    table.put(spark.range(0, 40, 1, 2).toDF("n"))
    table.put(spark.range(40, 80, 1, 2).toDF("n"))
    given, batch = spark.range(80, 120, 1, 2).toDF("n"), spark.range(120, 160, 1, 2).toDF("n")
    jobs = jobs_so_far(spark)
    # The folding of this test is the committer's work.
    monkeypatch.setattr(table.folding, "put", table.folding.build)
    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    given.toArrow()
    least = len(calls)
    calls.clear()
    monkeypatch.setattr(os, "fsync", synced)
    table.put(batch)
    # Those beside `toArrow`: the schema of the frame, two, and the condition that limits its rows, one.
    assert len(calls) <= least + 3, calls
    assert len(syncs) == 3, "the file, its folder, and the table"
    assert jobs_so_far(spark) == jobs + 2, "one for each of the two frames"
