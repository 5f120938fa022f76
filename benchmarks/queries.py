"""Eight streaming queries into one table at once, beside a single query that has the machine to itself.

All of them together write as many rows as the single one, in batches of the same size. Beside them the same
queries by `foreachBatch` and pylance, which commits on the driver, and by Delta's sink; and how often their
commits had to be tried again because another query had been faster. Queries that only count their rows in
Python, one and eight of them, show what part of it is Spark's own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

import lakefold
from benchmarks import delta_spark
from benchmarks.ground import committer, outcomes_of, prove
from benchmarks.spark_events import into_count, send_events, session, start
from lakefold.spark import sink
from lakefold_table.entry import Invalid, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.ground import Ground
    from benchmarks.spark_events import Start

QUERIES = 8
BATCHES_A_QUERY = 4
WARM_UP_SHARE = 16
COLUMNS = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.int64(),
        "origin": pa.string(),
        "dest": pa.string(),
        "delay": pa.float64(),
        "carrier": pa.string(),
        "distance": pa.int32(),
    }
)


def measure(ground: Ground, rows: int) -> dict[str, float]:
    """Streams `rows` rows by one query and by eight; rows a second."""
    each = rows // QUERIES
    rows, rows_a_batch = each * QUERIES, each // BATCHES_A_QUERY
    topics = [f"query-{number}" for number in range(QUERIES)]
    with session(ground.root / "spark") as spark, committer(ground):
        for topic, count in {
            "warm": rows // WARM_UP_SHARE,
            "one": rows,
            **dict.fromkeys(topics, each),
        }.items():
            send_events(spark, ground.bootstrap, topic, count)
        _together(spark, ground, ["warm"], rows_a_batch, "warm", _sink(ground, "warm"))
        alone = _together(spark, ground, ["one"], rows_a_batch, "one", _sink(ground, "one"))
        shared = _together(spark, ground, topics, rows_a_batch, "ours", _sink(ground, "shared"))
        counted_alone = _together(spark, ground, ["one"], rows_a_batch, "counted", into_count)
        counted = _together(spark, ground, topics, rows_a_batch, "counted", into_count)
        for name in ("one", "shared"):
            prove(ground.root / name, rows)
        refused = [each for each in outcomes_of(ground) if isinstance(each.result, Rejected | Invalid)]
        theirs, repeated = ground.root / "pylance", list[int]()
        lance.write_dataset(COLUMNS.empty_table(), theirs)
        raced = _together(spark, ground, topics, rows_a_batch, "pylance", _by_pylance(str(theirs), repeated))
        prove(theirs, rows)
    delta = delta_spark.run(
        "queries", ground.root, bootstrap=ground.bootstrap, topics=topics, rows_a_batch=rows_a_batch
    )
    return {
        "rows": rows,
        "one query: rows/s": rows / alone,
        f"{QUERIES} queries: rows/s": rows / shared,
        f"{QUERIES} queries / one": alone / shared,
        f"counting: {QUERIES} queries / one": counted_alone / counted,
        "refused": len(refused),
        f"pylance {QUERIES} queries: rows/s": rows / raced,
        f"pylance {QUERIES} queries: repeated commits": sum(repeated),
        f"delta {QUERIES} queries: rows/s": rows / delta["seconds"],
        f"delta {QUERIES} queries: repeated commits": delta["repeated"],
        f"delta {QUERIES} queries: failed": delta["failed"],
    }


def _together(
    spark: SparkSession, ground: Ground, topics: Sequence[str], rows_a_batch: int, name: str, into: Start
) -> float:
    """Returns the seconds until the queries of all topics have ended. Raises the error of one that failed."""
    begun = time.perf_counter()
    queries = [
        start(spark, ground.bootstrap, topic, rows_a_batch, ground.root / f"{name}-{topic}-checkpoint", into)
        for topic in topics
    ]
    for query in queries:
        query.awaitTermination()
    return time.perf_counter() - begun


def _sink(ground: Ground, table: str) -> Start:
    """Has queries write to a table by the sink. Creates it, as a table is that several queries write to."""
    lakefold.append(ground.uri(table), COLUMNS.empty_table(), **ground.log_options)
    write = sink(ground.uri(table), **ground.log_options)
    return lambda writer: writer.foreachBatch(write)


def _by_pylance(path: str, repeated: list[int]) -> Start:
    """Has the executors write fragments, and the driver commit them.

    Adds to `repeated` how many versions of others came before each commit, for which pylance tried it again.
    """

    def write(frame: DataFrame, _: int) -> None:
        version = lance.dataset(path).version
        rows = frame.mapInArrow(_fragment_writer(path), "fragment string").collect()
        fragments = [lance.FragmentMetadata.from_json(row.fragment) for row in rows]
        operation = lance.LanceOperation.Append(fragments)
        committed = lance.LanceDataset.commit(path, operation, read_version=version)
        repeated.append(committed.version - version - 1)

    return lambda writer: writer.foreachBatch(write)


def _fragment_writer(path: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        from lance.fragment import write_fragments

        first = next(batches, None)
        if first is None:
            return

        def every() -> Iterator[pa.RecordBatch]:
            yield first
            yield from batches

        reader = pa.RecordBatchReader.from_batches(first.schema, every())
        fragments = write_fragments(reader, path, schema=first.schema)
        texts = [json.dumps(fragment.to_json()) for fragment in fragments]
        yield pa.RecordBatch.from_pydict({"fragment": texts})

    return write
