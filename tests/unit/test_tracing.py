"""Traces: nothing of them unless they are asked for; else from the writer's span to the version."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from lakefold_committer.observability.spans import MOST_KEPT, MOST_LINKS, Exporting, PartitionSpans
from lakefold_committer.observability.traces import NO_TRACES
from lakefold_committer.observability.tracing import tracing_from
from lakefold_log.write.trace_export import exporters_wanted
from lakefold_log.write.tracing import headers_from, sending
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import (
    Committed,
    Conflict,
    Duplicate,
    Entry,
    Invalid,
    Outcome,
    Rejected,
    Undecodable,
)
from lakefold_table.errors import InvalidError
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_log.read.consumer import Headers
    from lakefold_table.entry import Result

LOG = LogId("cluster", "topic-id", 2)
TABLE = "file:///lake/t"
LOGGED_US = 1_700_000_000_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACED: tuple[tuple[str, bytes | None], ...] = (("traceparent", f"00-{TRACE}-{PARENT}-01".encode()),)


@dataclass(frozen=True)
class Message:
    """A message, as far as traces read it."""

    headers: Headers = ()


class Traced:
    """A partition's spans, and those that were exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.spans = PartitionSpans(self.tracer, LOG, "transactions")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def answered(self, *answers: tuple[Entry | Undecodable, Result, Headers]) -> None:
        values = [
            (Message(headers), read, Outcome(read.position, TABLE, result, "u"))
            for read, result, headers in answers
        ]
        self.spans.answered(values, 0.25)  # type: ignore[arg-type]


def entry(offset: int) -> Entry:
    """An Append at this offset."""
    envelope = Envelope(table=TABLE)
    envelope.lance.append.SetInParent()
    return Entry(Position(LOG, offset, "transactions"), LOGGED_US, envelope, 10, BUILT_IN.proposal(envelope))


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.exporter.shutdown()


def test_a_traced_proposal_ends_where_its_version_is_visible(traced: Traced) -> None:
    group = [entry(4), entry(5)]
    traced.spans.folded(group, 0.5)
    traced.spans.published(group, 7, 0.125)
    visible = time.time_ns()
    traced.answered((group[0], Committed(7), TRACED), (group[1], Committed(7), ()))
    (mine,) = traced.named("process transactions")
    assert mine.context is not None
    assert mine.parent is not None
    assert f"{mine.context.trace_id:032x}" == TRACE
    assert f"{mine.parent.span_id:016x}" == PARENT
    assert mine.kind is SpanKind.CONSUMER
    assert mine.start_time == LOGGED_US * 1000
    assert mine.end_time is not None
    assert visible - 1_000_000_000 < mine.end_time <= visible
    assert mine.attributes is not None
    assert dict(mine.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": "transactions",
        "messaging.destination.partition.id": "2",
        "messaging.kafka.offset": 4,
        "lakefold.position": "transactions/2@4",
        "lakefold.table": TABLE,
        "lakefold.branch": "",
        "lakefold.uuid": "u",
        "lakefold.operation": "append",
        "lakefold.outcome": "committed",
        "lakefold.version": 7,
    }
    assert mine.status.status_code is StatusCode.UNSET
    (group_span,) = traced.named("group")
    assert [link.context for link in mine.links] == [group_span.context]


def test_a_group_is_a_trace_of_its_steps_with_links_to_its_proposals(traced: Traced) -> None:
    group = [entry(4), entry(5), entry(9)]
    traced.spans.folded(group, 0.5)
    traced.spans.folded(group, 0.5)
    traced.spans.published(group, 7, 0.125)
    traced.answered(
        (group[0], Committed(7), TRACED), (group[1], Duplicate(3), ()), (group[2], Committed(7), ())
    )
    (span,) = traced.named("group")
    assert span.parent is None
    assert span.context is not None
    assert [(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links] == [
        (TRACE, PARENT)
    ]
    assert span.attributes is not None
    assert span.attributes["lakefold.table"] == TABLE
    assert span.attributes["lakefold.version"] == 7
    assert span.attributes["lakefold.first_position"] == "transactions/2@4"
    assert span.attributes["lakefold.last_position"] == "transactions/2@9"
    assert span.attributes["messaging.batch.message_count"] == 3
    assert span.attributes["lakefold.committed"] == 2
    assert span.attributes["lakefold.duplicate"] == 1
    steps = [each for each in traced.exporter.get_finished_spans() if each.parent == span.context]
    assert [span.name for span in steps] == ["fold", "fold", "publish", "report"]
    lengths = [(span.end_time or 0) - (span.start_time or 0) for span in steps]
    assert lengths == [500_000_000, 500_000_000, 125_000_000, 250_000_000]
    assert span.start_time == steps[0].start_time
    assert span.end_time == steps[-1].end_time


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Invalid("no such table"), "no such table"),
        (Rejected(Conflict(retryable=True, message="met 6")), "met 6"),
    ],
)
def test_a_refusal_is_seen_in_the_writers_trace(traced: Traced, result: Result, reason: str) -> None:
    group = [entry(4)]
    traced.spans.folded(group, 0.5)
    traced.answered((group[0], result, TRACED))
    (mine,) = traced.named("process transactions")
    assert (mine.status.status_code, mine.status.description) == (StatusCode.ERROR, reason)
    assert mine.attributes is not None
    assert "lakefold.version" not in mine.attributes
    assert mine.end_time == traced.named("group")[0].end_time


def test_what_was_never_folded_is_traced_too(traced: Traced) -> None:
    read = Undecodable(Position(LOG, 8), LOGGED_US, "", "no envelope", "", 3)
    traced.answered((read, Invalid("no envelope"), TRACED))
    (mine,) = traced.named("process transactions")
    assert not mine.links
    assert traced.named("group") == []


def test_headers_that_are_no_context_are_none(traced: Traced) -> None:
    group = [entry(offset) for offset in range(4)]
    traced.spans.folded(group, 0.5)
    wrong: list[Headers] = [
        (("traceparent", b"00-nonsense"),),
        (("traceparent", None),),
        (("traceparent", b"\xff\xfe"),),
        (("traceparent", f"00-{'0' * 32}-{PARENT}-01".encode()),),
    ]
    traced.answered(*((entry, Committed(1), headers) for entry, headers in zip(group, wrong, strict=True)))
    assert traced.named("process transactions") == []
    assert not traced.named("group")[0].links


def test_a_sender_that_samples_nothing_gets_nothing(traced: Traced) -> None:
    group = [entry(4)]
    traced.spans.folded(group, 0.5)
    traced.answered((group[0], Committed(1), (("traceparent", f"00-{TRACE}-{PARENT}-00".encode()),)))
    assert traced.named("process transactions") == []
    assert len(traced.named("group")) == 1


def test_a_log_whose_clock_is_ahead_gives_no_span_that_ends_before_it_begins(traced: Traced) -> None:
    ahead = Entry(
        entry(4).position, (time.time_ns() // 1000) + 10_000_000, entry(4).envelope, 10, entry(4).proposal
    )
    traced.spans.folded([ahead], 0.5)
    traced.answered((ahead, Committed(1), TRACED))
    (mine,) = traced.named("process transactions")
    assert mine.start_time == mine.end_time


def test_a_group_has_no_more_links_than_collectors_take(traced: Traced) -> None:
    group = [entry(offset) for offset in range(MOST_LINKS + 50)]
    traced.spans.folded(group, 0.5)
    traced.answered(*((entry, Committed(1), TRACED) for entry in group))
    (span,) = traced.named("group")
    assert len(span.links) == MOST_LINKS
    assert len(traced.named("process transactions")) == len(group)


def test_groups_without_an_answer_are_kept_within_bounds(traced: Traced) -> None:
    for offset in range(MOST_KEPT + 10):
        traced.spans.folded([entry(offset)], 0.0)
    assert len(traced.spans._groups) == MOST_KEPT
    traced.answered((entry(0), Committed(1), ()), (entry(MOST_KEPT), Committed(1), ()))
    assert len(traced.named("group")) == 1


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, ()),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, ()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ("otlp http/protobuf",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, ("otlp http/protobuf",)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp,console"}, ("otlp http/protobuf", "console")),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("otlp grpc",)),
        (
            {
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            ("otlp http/protobuf",),
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ()),
    ],
)
def test_the_standard_variables_switch_it_on(variables: dict[str, str], wanted: tuple[str, ...]) -> None:
    assert exporters_wanted(variables) == wanted
    if not wanted:
        assert tracing_from(variables) is NO_TRACES


def test_a_missing_exporter_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidError, match="exporter zipkin is not installed"):
        tracing_from({"OTEL_TRACES_EXPORTER": "zipkin"})
    with pytest.raises(InvalidError, match="otlp grpc is not installed") as caught:
        tracing_from({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "http/protobuf" in caught.value.hint


def test_without_the_extra_the_error_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry.sdk'] = None\n"
        "from lakefold_committer.observability.tracing import tracing_from\n"
        "from lakefold_table.errors import InvalidError\n"
        "try:\n    tracing_from({'OTEL_TRACES_EXPORTER': 'otlp'})\n"
        "except InvalidError as error:\n    print(error.exit_code, error.hint)\n"
    )
    assert run(program) == "2 pip install 'lakefold[otel]'\n"


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_asked_for() -> None:
    program = (
        "import sys\n"
        "import lakefold.folding.committer, lakefold_committer.process.daemon, lakefold_log.write.producer\n"
        "from lakefold_committer.observability.tracing import tracing_from\n"
        "tracing_from({})\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    assert run(program) == "[]\n"


def test_the_service_has_a_name_unless_one_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    assert Exporting(())._provider.resource.attributes["service.name"] == "lakefold-committer"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=from-attributes,zone=a")
    assert Exporting(())._provider.resource.attributes["service.name"] == "from-attributes"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert Exporting(())._provider.resource.attributes["service.name"] == "mine"


def test_a_message_carries_the_context_of_the_span_that_sends_it(traced: Traced) -> None:
    envelope = Envelope(table=TABLE)
    with traced.tracer.start_as_current_span("writer") as writer:
        begun = sending("transactions", 2, envelope, (("mine", b"1"),))
    begun.done(5)
    names = [name for name, _ in begun.headers]
    assert names == ["mine", "traceparent"]
    carried = dict(begun.headers)["traceparent"]
    assert carried is not None
    assert carried.decode().split("-")[1] == f"{writer.get_span_context().trace_id:032x}"


def test_a_proposal_that_is_sent_again_stays_in_its_trace(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("redrive"):
        assert sending("transactions", 2, Envelope(table=TABLE), TRACED).headers == TRACED


@pytest.mark.parametrize(
    ("variables", "headers"),
    [
        ({}, ()),
        ({"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}, TRACED),
        (
            {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01", "TRACESTATE": "a=b"},
            (*TRACED, ("tracestate", b"a=b")),
        ),
        ({"TRACEPARENT": "nonsense", "TRACESTATE": "a=b"}, ()),
    ],
)
def test_a_process_may_be_started_with_a_context(variables: dict[str, str], headers: Headers) -> None:
    assert headers_from(variables) == headers


def test_a_writer_that_is_not_traced_sends_no_context() -> None:
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert sending("transactions", 2, Envelope(table=TABLE), (("mine", b"1"),)).headers == (("mine", b"1"),)


def run(program: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
