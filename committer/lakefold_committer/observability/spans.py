"""The committer's spans: the one door to OpenTelemetry here, loaded where traces are asked for.

Each group that is folded is a trace of its own: `group`, and below it `fold`, `publish` and `report`, with
links to the proposals in it. Each proposal that came with a context gets one span more, in the writer's own
trace: from its time in the log until it was visible, with position, outcome and version, and a link to the
group.

Spans are made once the outcomes are reported, with the times that were noted; what wasn't answered wasn't
told. Exporting happens in a thread of its own with a bounded queue: a collector that is away loses spans,
and holds nothing up.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import islice
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakefold_committer.observability.metrics import operation_of
from lakefold_committer.observability.traces import HTTP, INSTALL, OTLP
from lakefold_log.write.tracing import TRACEPARENT
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanContext, Tracer

    from lakefold_committer.observability.traces import Answer
    from lakefold_log.read.consumer import Headers
    from lakefold_table.entry import Entry, Outcome, Undecodable
    from lakefold_table.position import LogId

SERVICE: Final = "lakefold-committer"
"""What this process is called where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES says it."""
MOST_LINKS: Final = 128
MOST_KEPT: Final = 10_000
"""How many groups that have no answer yet are kept for a partition; the oldest go first."""
CLOSE_SECONDS: Final = 5.0
_SECOND_NS: Final = 1_000_000_000
_PACKAGES: Final = {f"{OTLP} {HTTP}": "otlp_proto_http", f"{OTLP} grpc": "otlp_proto_grpc"}
_W3C: Final = TraceContextTextMapPropagator()

Times = tuple[int, int]
"""From and to, in nanoseconds since 1970."""


class Exporting:
    """Traces that go to these exporters, by their names in OTEL_TRACES_EXPORTER (`otlp` with its protocol).

    Raises `InvalidError` where one isn't installed.
    """

    def __init__(self, exporters: Sequence[str]) -> None:
        made = [_exporter(name) for name in exporters]
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        for one in made:
            self._provider.add_span_processor(BatchSpanProcessor(one))
        self._tracer = self._provider.get_tracer("lakefold")

    def partition(self, log: LogId, topic: str) -> PartitionSpans:
        """Where the work on this partition is told."""
        return PartitionSpans(self._tracer, log, topic)

    def close(self) -> None:
        """Export what is left. What a collector doesn't take within some seconds is lost."""
        last = Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(CLOSE_SECONDS)


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        # stdout holds what the verb was asked for.
        return ConsoleSpanExporter(out=sys.stderr)
    known = entry_points(group="opentelemetry_traces_exporter", name=_PACKAGES.get(name, name))
    for one in known:
        made: SpanExporter = one.load()()
        return made
    other = f"install the package that brings it, or take {OTLP} with {HTTP}"
    hint = INSTALL if name == f"{OTLP} {HTTP}" else other
    raise InvalidError(f"traces are asked for, and the exporter {name} is not installed", hint=hint)


def _resource() -> Resource:
    found = Resource.create()
    unnamed = str(found.attributes[SERVICE_NAME]).startswith("unknown_service")
    return found.merge(Resource({SERVICE_NAME: SERVICE})) if unnamed else found


@dataclass(slots=True)
class _Group:
    """A group in the works: its entries' offsets, what was done to it and when, its version."""

    table: str
    branch: str
    first: str
    last: str
    offsets: list[int]
    steps: list[tuple[str, Times]] = field(default_factory=list)
    version: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """An entry with its outcome, and the context that its message came with."""

    context: Context | None
    read: Entry | Undecodable
    outcome: Outcome


class PartitionSpans:
    """The spans of one partition's work; see `tracing.Traces`."""

    def __init__(self, tracer: Tracer, log: LogId, topic: str) -> None:
        self._tracer = tracer
        self._topic = topic
        self._place = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(log.partition),
        }
        self._groups: dict[int, _Group] = {}
        self._lock = Lock()

    def folded(self, group: Sequence[Entry], seconds: float) -> None:
        """Notes that this group was folded."""
        with self._lock:
            self._known(group).steps.append(("fold", _until_now(seconds)))

    def published(self, group: Sequence[Entry], version: int, seconds: float) -> None:
        """Notes that this group's version was put."""
        with self._lock:
            known = self._known(group)
            known.steps.append(("publish", _until_now(seconds)))
            known.version = version

    def answered(self, answers: Sequence[Answer], seconds: float) -> None:
        """Makes the spans of these entries, and of the groups that they were."""
        reported = _until_now(seconds)
        contexts = ((_context(message.headers), read, outcome) for message, read, outcome in answers)
        left = {outcome.position.offset: _Told(context, read, outcome) for context, read, outcome in contexts}
        with self._lock:
            groups = [self._groups.pop(first) for first in [one for one in self._groups if one in left]]
        for group in groups:
            self._tell_group(group, [left.pop(one) for one in group.offsets if one in left], reported)
        for told in left.values():
            self._tell_entry(told, reported[1], None)

    def _known(self, group: Sequence[Entry]) -> _Group:
        first, last = group[0], group[-1]
        offsets = [entry.position.offset for entry in group]
        known = self._groups.get(first.position.offset)
        if known is None:
            table, branch = first.envelope.table, first.envelope.branch
            known = _Group(table, branch, str(first.position), str(last.position), offsets)
            self._groups[first.position.offset] = known
            if len(self._groups) > MOST_KEPT:
                del self._groups[next(iter(self._groups))]
        else:
            # Cut anew, after something was not reachable.
            known.offsets, known.last = offsets, str(last.position)
        return known

    def _tell_group(self, group: _Group, told: Sequence[_Told], reported: Times) -> None:
        steps = [*group.steps, ("report", reported)]
        contexts = islice((one.context for one in told if one.context is not None), MOST_LINKS)
        links = [Link(_span_context(one)) for one in contexts]
        kinds = Counter(_kind(one.outcome) for one in told)
        span = self._tracer.start_span(
            "group",
            kind=SpanKind.CONSUMER,
            links=links,
            start_time=steps[0][1][0],
            attributes={
                **self._place,
                "messaging.batch.message_count": len(told),
                "lakefold.table": group.table,
                "lakefold.branch": group.branch,
                "lakefold.first_position": group.first,
                "lakefold.last_position": group.last,
                **({"lakefold.version": group.version} if group.version else {}),
                **{f"lakefold.{kind}": number for kind, number in kinds.items()},
            },
        )
        below = set_span_in_context(span)
        for name, (start, end) in steps:
            self._tracer.start_span(name, below, start_time=start).end(end)
        visible = next((times[1] for name, times in reversed(steps) if name == "publish"), reported[1])
        for one in told:
            self._tell_entry(one, visible, span.get_span_context())
        span.end(reported[1])

    def _tell_entry(self, told: _Told, visible: int, group: SpanContext | None) -> None:
        if told.context is None:
            return
        read, outcome = told.read, told.outcome
        span = self._tracer.start_span(
            f"process {self._topic}",
            told.context,
            kind=SpanKind.CONSUMER,
            links=[] if group is None else [Link(group)],
            # The broker's clock may be ahead of this one.
            start_time=min(read.time_us * 1000, visible),
            attributes={
                **self._place,
                "messaging.kafka.offset": outcome.position.offset,
                "lakefold.position": str(outcome.position),
                "lakefold.table": outcome.table,
                "lakefold.branch": outcome.branch,
                "lakefold.uuid": outcome.uuid,
                "lakefold.operation": operation_of(read),
                "lakefold.outcome": _kind(outcome),
            },
        )
        _tell_result(span, outcome)
        span.end(visible)


def _tell_result(span: Span, outcome: Outcome) -> None:
    """The version where there is one, the reason where there is none."""
    match outcome.result:
        case Committed(version=version) | Duplicate(version=version):
            span.set_attribute("lakefold.version", version)
        case Rejected(conflict=conflict):
            span.set_attribute("lakefold.other_version", conflict.other_version)
            span.set_status(StatusCode.ERROR, conflict.message)
        case Invalid(message=message):
            span.set_status(StatusCode.ERROR, message)


def _kind(outcome: Outcome) -> str:
    return type(outcome.result).__name__.lower()


def _context(headers: Headers) -> Context | None:
    """The context that a message came with; None where there is none, or what is there isn't one."""
    carrier = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    if TRACEPARENT not in carrier:
        return None
    context = _W3C.extract(carrier)
    return context if _span_context(context).is_valid else None


def _span_context(context: Context) -> SpanContext:
    return get_current_span(context).get_span_context()


def _until_now(seconds: float) -> Times:
    now = time.time_ns()
    return now - int(seconds * _SECOND_NS), now
