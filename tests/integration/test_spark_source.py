"""Spark reads tables as pylance does: rows, versions, filters; and says what went wrong as it was said."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from lakefold.spark import register
from tests.servers.s3 import BUCKET, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.s3 import S3Server

MOMENT = dt.datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Reading:
    """A session that knows the format."""

    spark: SparkSession

    def load(self, path: str | Path, **options: str | int) -> DataFrame:
        """A table as a user reads it."""
        return self.spark.read.format("lakefold").options(**options).load(str(path))

    def refused(self, path: str | Path, **options: str | int) -> str:
        """What a user reads who asked for what can't be had."""
        with pytest.raises(PySparkException) as raised:
            self.load(path, **options).collect()
        return str(raised.value)


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Reading:
    """The shared session, once the source is registered."""
    register(spark)
    return Reading(spark)


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    """Three versions: a hundred rows in ten fragments, a fragment more, and then rows deleted of two."""
    numbers = pa.table({"n": pa.array(range(100), pa.int64()), "s": [f"row {n % 7}" for n in range(100)]})
    lance.write_dataset(numbers, tmp_path / "t", max_rows_per_file=10)
    more = pa.table({"n": pa.array([100, 101, None], pa.int64()), "s": ["it's", None, "row 1"]})
    dataset = lance.write_dataset(more, tmp_path / "t", mode="append")
    dataset.delete("n in (3, 4, 55)")
    return dataset


def rows(frame: DataFrame) -> list[dict[str, object]]:
    return sorted(frame.toArrow().to_pylist(), key=repr)


def same(frame: DataFrame, expected: pa.Table) -> bool:
    return rows(frame) == sorted(expected.to_pylist(), key=repr)


def test_the_newest_version_is_read_as_pylance_reads_it(reading: Reading, table: lance.LanceDataset) -> None:
    assert same(reading.load(table.uri), table.to_table())


def test_a_session_without_register_reads_tables_and_filters_their_rows_itself(
    reading: Reading, table: lance.LanceDataset
) -> None:
    fresh = Reading(reading.spark.newSession())
    few = fresh.load(table.uri).where("n > 90")
    assert same(few, table.to_table(filter="n > 90"))
    with pytest.raises(PySparkException, match=r"writeMode.*none of its values"):
        few.write.format("lakefold").mode("append").option("writeMode", "put").save(table.uri)


@pytest.mark.parametrize("by", ["number", "time", "tag", "branch"])
def test_an_older_version_is_read_as_pylance_reads_it(
    reading: Reading, table: lance.LanceDataset, by: str
) -> None:
    table.tags.create("then", 2)
    table.create_branch("side", 2)
    stamp: Any = table.versions()[1]["timestamp"]
    after = stamp.astimezone(dt.UTC) + dt.timedelta(microseconds=1)
    asked: dict[str, dict[str, str | int]] = {
        "number": {"versionAsOf": 2},
        "time": {"timestampAsOf": after.isoformat()},
        "tag": {"tag": "then"},
        "branch": {"branch": "side"},
    }
    frame = reading.load(table.uri, **asked[by])
    assert same(frame, lance.dataset(table.uri, version=2).to_table())
    assert frame.count() == 103


def test_a_frame_stays_with_the_version_it_was_loaded_at(reading: Reading, table: lance.LanceDataset) -> None:
    frame = reading.load(table.uri)
    lance.write_dataset(pa.table({"n": [7], "s": ["new"]}), table.uri, mode="append")
    assert frame.count() == 100
    assert reading.load(table.uri).count() == 101


def test_small_fragments_share_partitions_unless_options_split_them(
    reading: Reading, table: lance.LanceDataset
) -> None:
    assert reading.load(table.uri).rdd.getNumPartitions() == 1
    frame = reading.load(table.uri, minPartitions=4)
    assert 4 <= frame.rdd.getNumPartitions() <= 8
    assert same(frame, table.to_table())
    assert reading.load(table.uri, maxPartitionBytes="1k").rdd.getNumPartitions() == 11


CONDITIONS = [
    "n > 50 and n <= 60 and not (n in (1, 2, 55))",
    "n is null",
    "s like 'row%' and s like '%1' or s is null",
    "s like '%t\\'%' and n != 8",
    "not (s <=> 'row 1')",
    "n % 3 = 1 and n < 10.5",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_picks_the_rows_that_spark_picks_by_itself(
    reading: Reading, table: lance.LanceDataset, condition: str
) -> None:
    plain = reading.spark.createDataFrame(table.to_table())
    assert rows(reading.load(table.uri).where(condition)) == rows(plain.where(condition))


def test_filters_are_answered_by_lance(reading: Reading, table: lance.LanceDataset) -> None:
    plan = reading.load(table.uri).where("n > 7 and s is not null and n % 2 = 1")
    text = plan._jdf.queryExecution().executedPlan().toString()
    assert "(n#" in text
    assert "% 2" in text.split("BatchScan")[0]
    assert "> 7" not in text.split("BatchScan")[0]


def test_columns_are_read_as_asked_for(reading: Reading, table: lance.LanceDataset) -> None:
    assert same(reading.load(table.uri, columns="s"), table.to_table(columns=["s"]))
    frame = reading.spark.read.format("lakefold").schema("n double").load(table.uri)
    assert frame.dtypes == [("n", "double")]
    assert frame.agg({"n": "sum"}).first() == (4950.0 - 62 + 201,)


def test_what_pylance_changed_in_columns_is_read(reading: Reading, table: lance.LanceDataset) -> None:
    table.add_columns({"twice": "n * 2"})
    renamed: Any = {"path": "s", "name": "words"}
    table.alter_columns(renamed)
    lance.write_dataset(pa.table({"n": [500], "words": ["w"], "twice": [1]}), table.uri, mode="append")
    table.checkout_latest()
    assert same(reading.load(table.uri), table.to_table())
    table.drop_columns(["n"])
    assert same(reading.load(table.uri), table.to_table())


def test_types_come_as_they_are(reading: Reading, tmp_path: Path) -> None:
    kept = pa.table(
        {
            "b": pa.array([True, None]),
            "i": pa.array([-7, None], pa.int8()),
            "f": pa.array([0.5, None], pa.float32()),
            "s": pa.array(["é", None]),
            "bytes": pa.array([b"\0", None]),
            "d": pa.array([dt.date(2026, 5, 1), None]),
            "us": pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("us")),
            "utc": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
            "dec": pa.array([1, None], pa.decimal128(9, 2)),
            "time": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
            "duration": pa.array([dt.timedelta(1), None], pa.duration("us")),
            "list": pa.array([[1, None], None], pa.list_(pa.int32())),
            "struct": pa.array([{"x": 1, "y": ["a"]}, None]),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "large": pa.array(["a", None], pa.large_string()),
            "dict": pa.array(["a", None]).dictionary_encode(),
            "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            "unsigned": pa.array([2**32 - 1, None], pa.uint32()),
            "half": pa.array([0.5, None], pa.float16()),
            "paris": pa.array([MOMENT, None], pa.timestamp("ns", "Europe/Paris")),
        }
    )
    lance.write_dataset(kept, tmp_path / "t")
    frame = reading.load(tmp_path / "t")
    assert same(frame, lance.dataset(tmp_path / "t").to_table())
    assert same(frame.where("i = -7 and us is not null"), kept.slice(0, 1))


def test_a_type_that_spark_lacks_is_reported_with_its_column(reading: Reading, tmp_path: Path) -> None:
    kept = pa.table({"n": [1], "big": pa.array([1], pa.decimal256(50, 2))})
    lance.write_dataset(kept, tmp_path / "t")
    refusal = reading.refused(tmp_path / "t")
    assert "big: Spark has no type for decimal256(50, 2)" in refusal
    assert "leave the column out" in refusal
    assert same(reading.load(tmp_path / "t", columns="n"), pa.table({"n": [1]}))


def test_an_empty_table_is_read(reading: Reading, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "t")
    assert rows(reading.load(tmp_path / "t")) == []


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"versionAsOf": 9}, "version 9 does not exist yet, the newest is 3", "ask for an older one"),
        ({"versionsAsOf": 1}, "versionsasof: there is no such option", "versionAsOf"),
        ({"maxRowsPerTrigger": 1}, "maxRowsPerTrigger: no option of read", "options of read"),
        ({"tag": "gone"}, "gone", ""),
        ({"columns": "n,z"}, "the table has no columns ['z']", "it has n, s"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_read_that_is_not_possible_is_reported_with_a_hint(
    reading: Reading, table: lance.LanceDataset, options: dict[str, str | int], message: str, hint: str
) -> None:
    refusal = reading.refused(table.uri, **options)
    assert message in refusal
    assert hint in refusal


def test_it_has_a_name_in_sql_as_a_view(reading: Reading, table: lance.LanceDataset) -> None:
    spark = reading.spark
    using = f"ticks USING lakefold OPTIONS (path '{table.uri}', versionAsOf 2)"
    spark.sql(f"CREATE TEMPORARY VIEW {using}")
    expected = lance.dataset(table.uri, version=2).to_table(filter="n > 50")
    assert same(spark.sql("SELECT * FROM ticks WHERE n > 50"), expected)
    spark.catalog.dropTempView("ticks")
    with pytest.raises(PySparkException) as raised:
        spark.sql(f"CREATE TABLE {using}")
    assert "CREATE TEMPORARY VIEW flights USING lakefold OPTIONS (path '" in str(raised.value)
    assert not spark.catalog.tableExists("ticks")


def test_a_write_without_brokers_names_the_setting(
    reading: Reading, table: lance.LanceDataset, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match=r"kafka\.bootstrap\.servers: no brokers are set"):
        reading.load(table.uri).write.format("lakefold").mode("append").save(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_missing_table_is_reported(reading: Reading, tmp_path: Path) -> None:
    assert "no table here yet" in reading.refused(tmp_path / "nowhere")


def _damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("harm", "error"),
    [(lambda path: path.unlink(), "names a file that is missing"), (_damage, "DamagedError")],
    ids=["missing", "cut"],
)
def test_what_fails_in_a_task_reaches_the_user(
    reading: Reading, table: lance.LanceDataset, tmp_path: Path, harm: Callable[[Path], None], error: str
) -> None:
    harm(next((tmp_path / "t" / "data").glob("*.lance")))
    assert error in reading.refused(table.uri)


def test_a_version_cleaned_up_meanwhile_is_reported(reading: Reading, table: lance.LanceDataset) -> None:
    frame = reading.load(table.uri, versionAsOf=1)
    lance.write_dataset(pa.table({"n": [1], "s": ["x"]}), table.uri, mode="overwrite")
    table.checkout_latest()
    table.cleanup_old_versions(dt.timedelta(0))
    with pytest.raises(PySparkException, match=r"version 1 is gone.*oldest one left is 4"):
        frame.collect()


def test_a_table_on_s3_is_read_by_the_options_of_its_store(
    reading: Reading, s3: S3Server, tmp_path: Path
) -> None:
    uri, options = f"s3://{BUCKET}/{tmp_path.name}", s3.options()
    lance.write_dataset(pa.table({"n": [1, 2], "s": ["a", "b"]}), uri, storage_options=options)
    lance.write_dataset(pa.table({"n": [3], "s": ["c"]}), uri, mode="append", storage_options=options)
    storage = {f"storage.{name}": value for name, value in options.items()}
    assert same(reading.load(uri, **storage).where("n > 1"), pa.table({"n": [2, 3], "s": ["b", "c"]}))
    frame = reading.spark.readStream.format("lakefold").options(**storage, startingVersion="2").load(uri)
    query = (
        frame.writeStream.format("memory")
        .queryName("on_s3")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert same(reading.spark.table("on_s3"), pa.table({"n": [3], "s": ["c"]}))
    assert SECRET not in frame._jdf.queryExecution().toString()
