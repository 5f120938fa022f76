"""From a writer's span to the version: a real broker, a committer process, an OTLP collector on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefold_log.read.outcomes import read_outcomes
from lakefold_table.entry import Committed, Rejected
from lakefold_table.uri import canonical
from tests.integration.collector import Collector, attributes, running_collector
from tests.integration.committers import SENDS_ALL_SPANS, running_committer
from tests.integration.own_log import OwnLog
from tests.waiting import until

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from tests.integration.conftest import TopicNames

ROOT = Path(__file__).parents[2]
FOLDED_SECONDS = 120.0
LEAVING_SECONDS = 28.0
"""Less than the 30 s that the library for traces would wait, and many times what a committer allows it."""

WRITER = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.write.producer import Proposer
from lakefold_log.client.topic_names import Topics
from tests.proposals import creation

bootstrap, uri, *names = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
with Proposer(KafkaConfig(bootstrap), Topics(*names)) as proposer:
    for name in ("first", "second"):
        with trace.get_tracer("writer").start_as_current_span(name):
            proposer.send_wait(creation(uri))
provider.shutdown()
"""
"""An application that is traced, and proposes to create one table twice."""

APPENDING = """
import sys
import pyarrow as pa
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
import lakefold

bootstrap, uri, transactions, outcomes, _ = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
names = {"bootstrap_servers": bootstrap, "transactions_topic": transactions, "outcomes_topic": outcomes}
lakefold.append(uri, pa.table({"n": [1, 2]}), **names)
try:
    lakefold.append(uri, pa.table({"n": ["text"]}), **names)
except lakefold.InvalidError:
    provider.shutdown()
"""
"""An application that is traced, and appends rows, then some that don't fit."""


@pytest.fixture
def own(bootstrap: str, topic_names: TopicNames) -> OwnLog:
    return OwnLog.make(bootstrap, topic_names)


def write(own: OwnLog, uri: str, source: str = WRITER) -> None:
    """Runs the writer."""
    topics = [own.topics.transactions, own.topics.outcomes, own.topics.dead_letters]
    command = [sys.executable, "-c", source, own.config.bootstrap_servers, uri, *topics]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=200)
    assert done.returncode == 0, done.stderr


def wait_until_answered(own: OwnLog, number: int) -> list[type]:
    """The kinds of outcomes, once there are so many."""

    def kinds() -> list[type]:
        actual = read_outcomes(own.admin, own.topics, 0, 0)
        return [type(outcome.result) for _, outcome in actual]

    until(lambda: len(kinds()) >= number, f"{number} outcomes", seconds=FOLDED_SECONDS)
    return kinds()


def test_a_writers_trace_leads_to_the_version(
    own: OwnLog, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = canonical(tmp_path / "table")
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        # The spans that are left when it is stopped must be sent then: nothing is sent before.
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        with running_committer(
            own.config.bootstrap_servers, topic_names, tmp_path, interpreter=SENDS_ALL_SPANS
        ) as committer:
            committer.wait_until_ready()
            monkeypatch.setenv("OTEL_SERVICE_NAME", "writer")
            write(own, uri)
            assert wait_until_answered(own, 2) == [Committed, Rejected]
            assert collector.named("group") == []
            assert committer.stop() == 0
    topic = own.topics.transactions
    check_committed(collector, topic, uri)
    (send,) = [
        span for span in collector.named(f"send {topic}", "writer") if is_below(span, collector, "second")
    ]
    (refused,) = [span for span in collector.named(f"process {topic}") if span.parent_span_id == send.span_id]
    values = attributes(refused.attributes)
    assert (values["lakefold.outcome"], values["messaging.kafka.offset"]) == ("rejected", 1)
    assert refused.status.code == refused.status.STATUS_CODE_ERROR
    assert refused.status.message


def test_a_batch_is_one_trace_from_its_rows_to_its_version(
    own: OwnLog, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = canonical(tmp_path / "table")
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        with running_committer(
            own.config.bootstrap_servers, topic_names, tmp_path, interpreter=SENDS_ALL_SPANS
        ) as committer:
            committer.wait_until_ready()
            monkeypatch.setenv("OTEL_SERVICE_NAME", "writer")
            write(own, uri, APPENDING)
            assert committer.stop() == 0
    appended, misfit = collector.named("write batch", "writer")
    assert not appended.parent_span_id
    values = attributes(appended.attributes)
    expected = {"table": uri, "outcome": "committed", "version": 2, "rows": 2, "files": 1}
    assert {name: values[f"lakefold.{name}"] for name in expected} == expected
    topic, batch = own.topics.transactions, appended.span_id
    # The creation of the table, and the rows.
    sends = [
        span.span_id for span in collector.named(f"send {topic}", "writer") if span.parent_span_id == batch
    ]
    processed = [
        attributes(span.attributes)["lakefold.version"]
        for span in collector.named(f"process {topic}")
        if span.parent_span_id in sends
    ]
    assert sorted(processed) == [1, 2]
    assert {span.trace_id for span in collector.named(f"process {topic}")} == {appended.trace_id}
    assert misfit.status.code == misfit.status.STATUS_CODE_ERROR
    assert "int64" in misfit.status.message


def check_committed(collector: Collector, topic: str, uri: str) -> None:
    """The first proposal: from the writer's span to the version, and the group that it was in."""
    (writer,) = collector.named("first", "writer")
    (send,) = [
        span for span in collector.named(f"send {topic}", "writer") if is_below(span, collector, "first")
    ]
    (process,) = [span for span in collector.named(f"process {topic}") if span.parent_span_id == send.span_id]
    assert process.trace_id == send.trace_id == writer.trace_id
    assert attributes(send.attributes)["messaging.kafka.offset"] == 0
    values = attributes(process.attributes)
    assert values["lakefold.outcome"] == "committed"
    assert values["lakefold.version"] == 1
    assert values["lakefold.table"] == uri
    assert values["lakefold.position"] == f"{topic}/0@0"
    # The broker's time is in milliseconds.
    assert writer.start_time_unix_nano - 2_000_000 < process.start_time_unix_nano < process.end_time_unix_nano
    group = next(span for span in collector.named("group") if span.span_id == process.links[0].span_id)
    assert group.trace_id == process.links[0].trace_id != process.trace_id
    assert (send.trace_id, send.span_id) in [(link.trace_id, link.span_id) for link in group.links]
    assert attributes(group.attributes)["lakefold.version"] == 1
    assert [name for name in collector.below(group) if name != "fold"] == ["publish", "report"]
    assert collector.below(group)[0] == "fold"


def is_below(span: Span, collector: Collector, name: str) -> bool:
    """Whether the span's parent is the writer's of this name."""
    return span.parent_span_id in [span.span_id for span in collector.named(name, "writer")]


def test_a_collector_that_never_answers_holds_nothing_up(
    own: OwnLog, topic_names: TopicNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_collector(hanging=True) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
        with running_committer(own.config.bootstrap_servers, topic_names, tmp_path) as committer:
            committer.wait_until_ready()
            own.propose(*range(50))
            assert len(wait_until_answered(own, 50)) == 50
            before = time.monotonic()
            assert committer.stop() == 0
            assert time.monotonic() - before < LEAVING_SECONDS
