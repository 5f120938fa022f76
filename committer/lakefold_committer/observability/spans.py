"""The committer's spans: the only module here that imports OpenTelemetry. It is loaded if traces are wanted.

Each group that is folded is a trace of its own: `group`, and below it `fold`, `publish` and `report`, with
links to the proposals in it. Each proposal that came with a context gets a further span, in the writer's own
trace: from its time in the log until it was visible, with position, outcome and version, and a link to the
group.

Spans are made once the outcomes are reported, with the times that were recorded; entries without an answer
have no spans. A thread of its own exports them, with a bounded queue: if the collector is unreachable, spans
are lost and nothing else waits.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Link, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakefold_committer.observability.metrics import operation_of
from lakefold_log.write.trace_export import provider_of
from lakefold_log.write.tracing import TRACEPARENT
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Outcome, Rejected, Tagged, Undecodable
from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer

    from lakefold_committer.observability.traces import Answer
    from lakefold_log.read.consumer import Headers
    from lakefold_table.position import LogId

SERVICE: Final = "lakefold-committer"
"""The service's name if neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES gives one."""
MOST_LINKS: Final = 128
MOST_KEPT: Final = 10_000
"""How many groups without an answer are kept for a partition; the oldest are dropped first."""
CLOSE_SECONDS: Final = 5.0
_SECOND_NS: Final = 1_000_000_000
_W3C: Final = TraceContextTextMapPropagator()

Times = tuple[int, int]
"""From and to, in nanoseconds since 1970."""


class Exporting:
    """Traces that are sent to exporters, named as in OTEL_TRACES_EXPORTER (`otlp` with its protocol).

    Raises `InvalidError` if an exporter isn't installed.
    """

    def __init__(self, exporters: Sequence[str]) -> None:
        self._provider = provider_of(exporters, SERVICE)
        self._tracer = self._provider.get_tracer("lakefold")

    def partition(self, log: LogId, topic: str) -> PartitionSpans:
        """Returns the traces of the work on this partition."""
        return PartitionSpans(self._tracer, log, topic)

    def close(self) -> None:
        """Exports the remaining spans. Those that the collector doesn't take within some seconds are lost."""
        last = Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        start_thread(last)
        last.join(CLOSE_SECONDS)


@dataclass(slots=True)
class _Group:
    """A group without a report yet: the offsets of its entries, its steps with their times, its version."""

    table: str
    branch: str
    first: str
    last: str
    offsets: list[int]
    steps: list[tuple[str, Times]] = field(default_factory=list)
    version: int = 0


@dataclass(frozen=True, slots=True)
class _Answered:
    """An entry with its outcome, and the trace context of its message."""

    context: Context | None
    read: Entry | Undecodable
    outcome: Outcome


class PartitionSpans:
    """The spans of a partition's work; see `tracing.Traces`."""

    def __init__(self, tracer: Tracer, log: LogId, topic: str) -> None:
        self._tracer = tracer
        self._topic = topic
        self._messaging = {
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
            self._noted(group).steps.append(("fold", _until_now(seconds)))

    def published(self, group: Sequence[Entry], version: int, seconds: float) -> None:
        """Notes that this group's version was put."""
        with self._lock:
            noted = self._noted(group)
            noted.steps.append(("publish", _until_now(seconds)))
            noted.version = version

    def answered(self, answers: Sequence[Answer], seconds: float) -> None:
        """Makes the spans of these entries and of their groups."""
        reported = _until_now(seconds)
        contexts = ((_context(message.headers), read, outcome) for message, read, outcome in answers)
        by_offset = {
            outcome.position.offset: _Answered(context, read, outcome) for context, read, outcome in contexts
        }
        with self._lock:
            groups = [self._groups.pop(first) for first in list(self._groups) if first in by_offset]
        for group in groups:
            answered = [by_offset.pop(offset) for offset in group.offsets if offset in by_offset]
            self._add_group_span(group, answered, reported)
        for entry in by_offset.values():
            self._add_entry_span(entry, reported[1], None)

    def _noted(self, group: Sequence[Entry]) -> _Group:
        first, last = group[0], group[-1]
        offsets = [entry.position.offset for entry in group]
        noted = self._groups.get(first.position.offset)
        if noted is None:
            table, branch = first.envelope.table, first.envelope.branch
            noted = _Group(table, branch, str(first.position), str(last.position), offsets)
            self._groups[first.position.offset] = noted
            if len(self._groups) > MOST_KEPT:
                del self._groups[next(iter(self._groups))]
        else:
            # The group was cut again, after something was unreachable.
            noted.offsets, noted.last = offsets, str(last.position)
        return noted

    def _add_group_span(self, group: _Group, answered: Sequence[_Answered], reported: Times) -> None:
        steps = [*group.steps, ("report", reported)]
        contexts = islice((entry.context for entry in answered if entry.context is not None), MOST_LINKS)
        links = [Link(_span_context(context)) for context in contexts]
        kinds = Counter(entry.outcome.kind for entry in answered)
        span = self._tracer.start_span(
            "group",
            kind=SpanKind.CONSUMER,
            links=links,
            start_time=steps[0][1][0],
            attributes={
                **self._messaging,
                "messaging.batch.message_count": len(answered),
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
        for entry in answered:
            self._add_entry_span(entry, visible, span.get_span_context())
        span.end(reported[1])

    def _add_entry_span(self, entry: _Answered, visible: int, group: SpanContext | None) -> None:
        if entry.context is None:
            return
        read, outcome = entry.read, entry.outcome
        span = self._tracer.start_span(
            f"process {self._topic}",
            entry.context,
            kind=SpanKind.CONSUMER,
            links=[] if group is None else [Link(group)],
            # The broker's clock may be ahead of this one.
            start_time=min(read.time_us * 1000, visible),
            attributes={
                **self._messaging,
                "messaging.kafka.offset": outcome.position.offset,
                "lakefold.position": str(outcome.position),
                "lakefold.table": outcome.table,
                "lakefold.branch": outcome.branch,
                "lakefold.uuid": outcome.uuid,
                "lakefold.operation": operation_of(read),
                "lakefold.outcome": outcome.kind,
            },
        )
        _add_result(span, outcome)
        span.end(visible)


def _add_result(span: Span, outcome: Outcome) -> None:
    """Adds the version, or the reason of a refusal, to the span."""
    match outcome.result:
        case Committed(version=version) | Tagged(version=version) | Duplicate(version=version):
            span.set_attribute("lakefold.version", version)
        case Rejected(conflict=conflict):
            span.set_attribute("lakefold.other_version", conflict.other_version)
            span.set_status(StatusCode.ERROR, conflict.message)
        case Invalid(message=message):
            span.set_status(StatusCode.ERROR, message)


def _context(headers: Headers) -> Context | None:
    """Returns the trace context in a message's headers, or None if they have none that is valid."""
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
