"""A batch that another streaming query sent under the same app id and number is no repetition.

Promise: older-batches (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import lakefold
from lakefold.spark import sink
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.query_runs import begin_batch
from lakefold_ingest.writing import sending_query as sending_query_module
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.sending_query import Sender, sending_query
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError, RetryError
from tests.integration.committers import ready_committer
from tests.integration.writing_bench import APP, Writer, WritingBench, logged, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakefold_ingest.writing.report import BatchReport
    from tests.integration.conftest import TopicNames

OTHER = "batch 0 of app was folded before in version [12], sent by the query first, and this is the query sec"


@dataclass
class Query:
    """A run of a streaming query, which sends its batches as both ways of writing from Spark do."""

    bench: WritingBench
    query_id: str
    run_id: str

    def put(self, batch_id: int, write: Writer, **given: str) -> BatchReport:
        key, settings = Key(APP, batch_id), replace(self.bench.settings, **given)  # type: ignore[arg-type] # the test names the field
        batch = begin_batch(self.run_id, key, settings, Sender(in_order=True, query_id=self.query_id))
        operation = AppendRows(write.rows.schema, write, count=write.count)
        report = put_batch(settings, key, operation, batch.sender)
        batch.check(report)
        return report


def numbers(bench: WritingBench) -> list[int]:
    return sorted(lakefold.open(bench.table).to_arrow()["n"].to_pylist())


@pytest.fixture(params=["lance", "delta"])
def either(bench: WritingBench, request: pytest.FixtureRequest) -> WritingBench:
    """The bench, for a table of each format."""
    return replace(bench, settings=replace(bench.settings, format=request.param))


def test_a_first_batch_that_another_query_sent_is_refused(either: WritingBench) -> None:
    """It has as many rows in the same columns, so nothing else distinguishes it from a repetition."""
    new = rows(3, 4)
    with either.committer():
        assert isinstance(Query(either, "first", "run 1").put(0, rows(1, 2)).result, Committed)
        again = Query(either, "first", "run 2").put(0, rows(1, 2))
        assert isinstance(again.result, Duplicate), "the same query, from its checkpoint"
        with pytest.raises(InvalidError, match=OTHER) as caught:
            Query(either, "second", "run 3").put(0, new)
        assert "its own app_id" in caught.value.hint
        assert 'on_older_batch="skip"' in caught.value.hint
        skipped = Query(either, "second", "run 4").put(0, new, on_older_batch="skip")
        assert isinstance(skipped.result, Duplicate)
    assert new.calls == 0
    assert numbers(either) == [1, 2]


def test_so_is_one_that_the_committer_finds_to_be_a_duplicate(either: WritingBench) -> None:
    """The other query sends it while this one writes its files."""

    def send_first() -> None:
        Query(either, "first", "run 5").put(0, rows(1, 2))

    write = Writer(rows(3, 4).rows, send_first)
    with either.committer():
        with pytest.raises(InvalidError, match=OTHER):
            Query(either, "second", "run 6").put(0, write)
        assert either.outcomes()[-2:] == [Committed, Duplicate]
    assert numbers(either) == [1, 2]


def test_the_sender_of_a_batch_is_found_among_others_of_its_version(either: WritingBench) -> None:
    with either.committer():
        Query(either, "first", "run 7").put(0, rows(1))
    settings = replace(either.settings, wait="log")
    sent = [(Key(APP, 1), ""), (Key("other", 2), "first"), (Key(APP, 2), "second"), (Key(APP, 3), "third")]
    for key, query_id in sent:
        write = rows(key.batch_id or 0)
        put_batch(settings, key, AppendRows(write.rows.schema, write), Sender(query_id=query_id))
    either.fold()
    version = lakefold.open(either.table).version
    assert [sending_query(settings, key, version) for key, _ in sent] == ["", "first", "second", "third"]
    assert sending_query(settings, Key(APP, 0), version - 1) == "first", "they share the version after it"
    assert sending_query(settings, Key(APP, 3), 0) == "", "its version is not known"
    assert sending_query(settings, Key(APP, 3), version + 1) == "", "its version was removed"


def test_a_log_that_cannot_be_read_makes_it_a_repetition_with_a_warning(
    bench: WritingBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RetryError("no broker answers", where=bench.settings.kafka.bootstrap_servers)

    with bench.committer():
        Query(bench, "first", "run 8").put(0, rows(1))
        monkeypatch.setattr(sending_query_module, "Lookup", away)
        assert Query(bench, "second", "run 9").put(0, rows(2)).result == Duplicate(2)
    assert any(
        "which query sent batch 0 of app, which the table has, can't be looked up" in text
        for text in logged(caplog, "WARNING")
    )


@pytest.mark.parametrize("door", ["format", "sink"])
def test_a_query_with_a_new_checkpoint_and_the_app_id_of_another_fails(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path, door: str
) -> None:
    """Each has one batch, of one row: so do jobs that run each day in a container whose disk is not kept."""
    table, events = tmp_path / "t", tmp_path / "events"
    put = sink(
        table,
        bootstrap,
        "app",
        transactions_topic=topic_names.transactions,
        outcomes_topic=topic_names.outcomes,
    )

    def run(day: int) -> None:
        shutil.rmtree(events, ignore_errors=True)
        events.mkdir()
        (events / f"{day}.json").write_text(json.dumps({"n": day}))
        writing = spark.readStream.schema("n long").json(str(events)).writeStream
        writing = writing.option("checkpointLocation", str(tmp_path / f"checkpoint-{day}"))
        writing = writing.trigger(availableNow=True)
        if door == "sink":
            query = writing.foreachBatch(put).start()
        else:
            given = {
                "kafka.bootstrap.servers": bootstrap,
                "transactionsTopic": topic_names.transactions,
                "outcomesTopic": topic_names.outcomes,
            }
            query = writing.format("lakefold").options(**given, txnAppId="app").start(str(table))
        query.awaitTermination()

    with ready_committer(bootstrap, topic_names, tmp_path):
        run(1)
        with pytest.raises(StreamingQueryException, match="or this one's checkpoint was deleted"):
            run(2)
    assert lakefold.open(str(table)).to_arrow()["n"].to_pylist() == [1]
