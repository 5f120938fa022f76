"""The figures of a sink's batches: beside Spark's progress, and as Prometheus reads them."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from pyspark.errors import PySparkAttributeError

from lakefold.local.ports import free_port
from lakefold.spark import register
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark import batch_metrics
from lakefold_ingest.spark.batch_metrics import (
    MOST_STORED,
    MetricsAddress,
    failures_noted,
    note_batch,
    progress,
    serve,
    store_batch,
)
from lakefold_ingest.writing.report import BatchFigures, BatchReport
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path

FIGURES = BatchFigures(
    rows=10, files=2, bytes=100_300, write_s=0.5, wait_s=0.25, unanswered=3, lag_s=1.5, sizes=(300, 100_000)
)


def query_of(run_id: str, *batches: int) -> Any:  # noqa: ANN401 - with what is read of Spark's query
    recent = [SimpleNamespace(json=json.dumps({"batchId": batch, "numInputRows": 10})) for batch in batches]
    return SimpleNamespace(runId=uuid.UUID(run_id), recentProgress=recent)


def test_progress_has_the_figures_of_the_tables_of_each_batch() -> None:
    run, other = str(uuid.uuid4()), str(uuid.uuid4())
    for table in ("file:///a", "file:///b"):
        note_batch(table, Key("app", 7), run, BatchReport(Committed(4), attempts=2, figures=FIGURES))
    note_batch("file:///a", Key("app", 7), other, BatchReport(Committed(9)))
    note_batch("file:///a", Key("app", 7), None, BatchReport(Committed(9)))
    before, now = progress(query_of(run, 6, 7))
    assert before == {"batchId": 6, "numInputRows": 10, "lakefold": []}
    assert [each["table"] for each in now["lakefold"]] == ["file:///a", "file:///b"]
    shown = now["lakefold"][0]
    assert (shown["key"], shown["kind"], shown["version"]) == ("batch 7 of app", "committed", 4)
    assert (shown["attempts"], shown["rows"], shown["bytes"], shown["lag_s"]) == (2, 10, 100_300, 1.5)
    assert "sizes" not in shown


def test_progress_has_the_figures_of_batches_that_other_processes_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, run = tmp_path / "lakefold-7" / "query-runs", str(uuid.uuid4())
    monkeypatch.setattr(batch_metrics, "notes_folder", lambda: folder)
    assert progress(query_of(run, 1))[0]["lakefold"] == []
    report, table = BatchReport(Committed(4), attempts=2, figures=FIGURES), f"file:///{uuid.uuid4()}"
    for batch_id in range(MOST_STORED + 2):
        store_batch(folder, table, Key("app", batch_id), run, report)
    store_batch(folder, "file:///a", Key("app", 2), str(uuid.uuid4()), report)
    store_batch(folder, "file:///a", Key("app", 2), "", report)
    shown = [each["lakefold"] for each in progress(query_of(run, 1, 2, MOST_STORED + 1))]
    assert [len(tables) for tables in shown] == [0, 1, 1]
    note_batch(table, Key("app", 2), run, report)
    here, stored = progress(query_of(run, 2))[0]["lakefold"]
    assert here == stored
    labels = {"table": table, "app_id": "app"}
    registry = batch_metrics._metrics.registry
    assert registry.get_sample_value("lakefold_sink_rows_total", labels) == 10
    monkeypatch.setitem(batch_metrics._counted, run, -1)
    # The one above, and those that are stored: they are added by the first who asks for the sums.
    for _ in range(2):
        assert registry.get_sample_value("lakefold_sink_rows_total", labels) == 10 * (1 + MOST_STORED)
    store_batch(folder, table, Key("app", MOST_STORED + 2), run, report)
    assert registry.get_sample_value("lakefold_sink_file_bytes_count", labels) == 2 * (2 + MOST_STORED)
    assert {path.suffix for path in folder.iterdir()} == {".figures"}
    for path in folder.iterdir():
        path.write_text("{")
    assert len(progress(query_of(run, 2))[0]["lakefold"]) == 1
    assert "can't be read" in caplog.text


def test_figures_that_can_not_be_stored_stop_no_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    store_batch(tmp_path / "file" / "f", "file:///a", Key("app", 1), "run", BatchReport(Committed(4)))
    assert "the figures of batch 1 of app can't be stored for progress" in caplog.text


def test_the_driver_serves_the_sums_and_refuses_an_address_that_is_taken() -> None:
    table = f"file:///{uuid.uuid4()}"
    for attempts in (1, 3):
        note_batch(table, Key("app", attempts), None, BatchReport(None, attempts, figures=FIGURES))
    with pytest.raises(ValueError, match="a fault"), failures_noted(table, "app"):
        raise ValueError("a fault")
    address = MetricsAddress(free_port())
    serve(address)
    serve(address)
    with urlopen(f"http://127.0.0.1:{address.port}/metrics") as answer:
        served = [line for line in answer.read().decode().splitlines() if table in line]
    of = f'app_id="app",table="{table}"'
    for expected in (
        f'lakefold_sink_batches_total{{app_id="app",kind="sent",table="{table}"}} 2.0',
        f'lakefold_sink_batches_total{{app_id="app",kind="failed",table="{table}"}} 1.0',
        f"lakefold_sink_rows_total{{{of}}} 20.0",
        f"lakefold_sink_bytes_total{{{of}}} 200600.0",
        f'lakefold_sink_file_bytes_bucket{{app_id="app",le="65536.0",table="{table}"}} 2.0',
        f'lakefold_sink_file_bytes_bucket{{app_id="app",le="262144.0",table="{table}"}} 4.0',
        f"lakefold_sink_file_bytes_count{{{of}}} 4.0",
        f'lakefold_sink_seconds_total{{app_id="app",step="write",table="{table}"}} 1.0',
        f"lakefold_sink_repeated_proposals_total{{{of}}} 2.0",
        f"lakefold_sink_unanswered_batches{{{of}}} 3.0",
        f"lakefold_sink_lag_seconds{{{of}}} 1.5",
    ):
        assert expected in served
    with pytest.raises(InvalidError, match=f"0.0.0.0:{address.port}: metrics can't be served: .* in use"):
        serve(MetricsAddress(address.port, "0.0.0.0"))  # noqa: S104 - it is refused
    with pytest.raises(InvalidError, match="70000 is not a port"):
        MetricsAddress(70000)


def test_a_client_of_spark_connect_does_not_serve_sums_that_stay_zero() -> None:
    class ConnectSession:
        """It has no context, and says so by this error."""

        @property
        def sparkContext(self) -> Any:  # noqa: ANN401, N802 - Spark's name
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
            )

    session: Any = ConnectSession()
    port = free_port()
    with pytest.raises(InvalidError, match="Spark Connect") as caught:
        register(session, metrics_port=port)
    assert caught.value.where == "metrics_port"
    assert MetricsAddress(port) not in batch_metrics._served
