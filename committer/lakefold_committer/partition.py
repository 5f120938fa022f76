"""One partition of the log, in order: poll, group, fold, publish, report; again.

What was polled is answered in one report, together with the offset from which a successor would go on. A
crash anywhere before the report leaves the offset where it was: the successor reads the same entries again
and gives the answers that the tables recorded, or folds what no table holds yet. Nothing is skipped, nothing
is folded twice.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from lakefold_committer.backoff import Backoff
from lakefold_committer.fold import outcome_of
from lakefold_committer.grouping import first_group
from lakefold_committer.lines import line_of
from lakefold_committer.metrics import BROKERS, STORE, Standing
from lakefold_committer.portions import portions_of
from lakefold_committer.refusals import dead_letters
from lakefold_log.envelope import UnknownKind, decode
from lakefold_log.stamp import Stamp
from lakefold_table.entry import Entry, Invalid, Outcome, Position, Undecodable
from lakefold_table.errors import PlaceError, RetryError, StopError, VersionExpiredError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from lakefold_committer.metrics import Metrics
    from lakefold_committer.owned import OwnedTable, Step
    from lakefold_committer.parts import LogReader, OutcomeReporter, Pace, Tables
    from lakefold_log.consumer import Message
    from lakefold_log.reporter import DeadLetter
    from lakefold_table.uri import Place

T = TypeVar("T")

LOG = structlog.get_logger("lakefold.committer")
IDLE_POLL_SECONDS = 0.5
CONNECTION_EVERY_SECONDS = 5.0
RESTAMP_SECONDS = 24 * 3600.0
"""The stamped offset is committed again daily, so that the broker doesn't expire it."""


class PartitionCommitter:
    """Folds one partition until told to stop. `trouble` says why it isn't folding just now, or is empty."""

    def __init__(
        self,
        reader: LogReader,
        reporter: OutcomeReporter,
        tables: Tables,
        pace: Pace,
        metrics: Metrics,
    ) -> None:
        self._reader = reader
        self._reporter = reporter
        self._source = tables
        self._pace = pace
        self._metrics = metrics
        self._tables: dict[Place, OwnedTable] = {}
        self._unreported: dict[Place, OwnedTable] = {}
        self._reported_at = time.monotonic()
        self._connection_at = 0.0
        self._waiting: Sequence[Message] = ()
        self._outcomes_offset = reporter.outcomes_offset
        self._busy = False
        self.trouble = "starting"

    def run(self, stop: threading.Event, until: int | None = None) -> None:
        """Folds until `stop` is set (the group in flight is finished) or the offset `until` is reached.

        What is not reachable is tried again with growing pauses, and `trouble` says so meanwhile. Raises
        `StopError` where this process must not go on.
        """
        self.trouble = ""
        while not stop.is_set() and (until is None or self._reader.position < until):
            self._waiting = self._poll()
            portions = portions_of(self._waiting, self._pace.limits.max_bytes)
            for portion, last in portions:
                # Behind the last one the reader may have passed what carries no message.
                if not self._answer(portion, self._reader.position if last else portion[-1].offset + 1, stop):
                    break
                self._waiting = self._waiting[len(portion) :]
            if not portions and time.monotonic() - self._reported_at > RESTAMP_SECONDS:
                self._report([], [], self._reader.position, stop)
            self.trouble = "" if self._reader.connected else "the broker is not reachable"
            if not self.trouble and time.monotonic() - self._connection_at > CONNECTION_EVERY_SECONDS:
                self._ask_the_brokers()

    def standing(self) -> Standing:
        """How this partition stands just now. For any thread."""
        waiting = self._waiting
        oldest_us = waiting[0].time_us if waiting else None
        return Standing(self._reader.position, len(waiting), oldest_us, tables_open=len(self._tables))

    def _ask_the_brokers(self) -> None:
        self._connection_at = time.monotonic()
        try:
            self._reader.end_offset()
        except RetryError as error:
            self.trouble = str(error)

    def _poll(self) -> Sequence[Message]:
        """The next messages. An idle log is answered at once, a busy one may wait for a fuller group."""
        limit = self._pace.limits.max_entries
        messages = list(self._reader.poll(limit, IDLE_POLL_SECONDS))
        deadline = time.monotonic() + self._pace.max_wait_s
        while self._busy and 0 < len(messages) < limit and (left := deadline - time.monotonic()) > 0:
            messages += self._reader.poll(limit - len(messages), left)
        self._busy = len(messages) > 1
        self._metrics.proposals.labels(str(self._reader.log.partition)).inc(len(messages))
        return messages

    def _answer(self, messages: Sequence[Message], next_offset: int, stop: threading.Event) -> bool:
        """Folds and reports these messages; `next_offset` is where a successor goes on then.

        False if told to stop while something was not reachable. Raises `StopError` at a proposal of an
        unknown kind, once what stands before it is answered.
        """
        reads, unknown = self._decoded(messages)
        known = messages[: len(reads)]
        outcomes = self._outcomes(reads, stop)
        if outcomes is None:
            return False
        end = next_offset if unknown is None else unknown.position.offset
        reported = not known or self._report(outcomes, dead_letters(known, outcomes), end, stop)
        if reported:
            self._metrics.answered(zip(reads, outcomes, strict=True))
            self._source.claims.clean_up(reads, outcomes)
        if unknown is not None:
            raise StopError(unknown.message, where=str(unknown.position), hint=unknown.hint)
        return reported

    def _decoded(self, messages: Sequence[Message]) -> tuple[list[Entry | Undecodable], UnknownKind | None]:
        """What the messages are, up to the first proposal of a kind that this release doesn't know."""
        log, topic = self._reader.log, self._reader.topic
        reads: list[Entry | Undecodable] = []
        for message in messages:
            read = decode(message.value, message.key, Position(log, message.offset, topic), message.time_us)
            if isinstance(read, UnknownKind):
                return reads, read
            reads.append(read)
        return reads, None

    def _outcomes(self, reads: Sequence[Entry | Undecodable], stop: threading.Event) -> list[Outcome] | None:
        """An outcome for each of them, in order; None if told to stop while something was not reachable."""
        outcomes: dict[int, Outcome] = {}
        by_line: dict[Place, list[Entry]] = {}
        lines: dict[tuple[str, str], Place | Invalid] = {}
        for read in reads:
            if isinstance(read, Undecodable):
                fault = Invalid(read.message, read.hint)
                outcomes[read.position.offset] = Outcome(read.position, read.table, fault)
            else:
                name = (read.envelope.table, read.envelope.branch)
                if name not in lines:
                    lines[name] = line_of(*name)
                line = lines[name]
                if isinstance(line, Invalid):
                    outcomes[read.position.offset] = outcome_of(read, line)
                else:
                    by_line.setdefault(line, []).append(read)
        for line, entries in by_line.items():
            answered = self._fold_line(line, entries, stop)
            if answered is None:
                return None
            outcomes.update((outcome.position.offset, outcome) for outcome in answered)
        return [outcomes[read.position.offset] for read in reads]

    def _fold_line(
        self, line: Place, entries: Sequence[Entry], stop: threading.Event
    ) -> list[Outcome] | None:
        """The outcomes of one table's entries on one of its lines, its versions published.

        They may spell its name in several ways: two that fold one table would fence each other.
        """
        refusal = self._source.refusal(entries[0].envelope.table)
        if refusal is not None:
            return [outcome_of(entry, refusal) for entry in entries]
        outcomes: list[Outcome] = []
        while waiting := entries[len(outcomes) :]:
            answered = self._persist(partial(self._fold_next, line, waiting), stop)
            if answered is None:
                return None
            outcomes += answered
        return outcomes

    def _fold_next(self, line: Place, waiting: Sequence[Entry]) -> Sequence[Outcome]:
        """The outcomes of as many of the waiting entries as share a version."""
        uri, group = waiting[0].envelope.table, waiting[:1]
        started = time.monotonic()
        try:
            owned = self._opened(line, uri, waiting[0].envelope.branch)
            group = first_group(waiting, self._source.table_format, self._pace.limits, owned.table.state)
            step = owned.fold(self._source.claims.bring(group))
        except PlaceError as error:
            return [outcome_of(entry, Invalid(f"{uri}: {error.message}", error.hint)) for entry in group]
        except VersionExpiredError as error:
            raise RetryError(f"versions are being removed: {error.message}", where=error.where) from error
        self._metrics.fold_seconds.observe(time.monotonic() - started)
        self._count(step, group[: len(step.outcomes)])
        return step.outcomes

    def _opened(self, line: Place, uri: str, branch: str) -> OwnedTable:
        table = self._tables.get(line)
        if table is None:
            table = self._tables[line] = self._source.open(uri, branch)
        self._unreported[line] = table
        return table

    def _report(
        self,
        outcomes: Sequence[Outcome],
        letters: Sequence[DeadLetter],
        next_offset: int,
        stop: threading.Event,
    ) -> bool:
        """Reports these outcomes; False if told to stop while no broker was reachable."""
        started = time.monotonic()
        log = self._reader.log
        stamp = Stamp(log.cluster_id, log.topic_id, next_offset, self._outcomes_offset)
        report = partial(self._reporter.report, outcomes, letters, next_offset, stamp)
        reported = self._persist(report, stop, what=BROKERS)
        if reported is None:
            return False
        self._outcomes_offset = reported
        self._reported_at = time.monotonic()
        for line, table in self._unreported.items():
            table.reported()
            if table.table.state is None:
                # Messages may name any number of tables that are not there.
                del self._tables[line]
        self._unreported.clear()
        self._metrics.report_seconds.observe(self._reported_at - started)
        return True

    def _persist(self, attempt: Callable[[], T], stop: threading.Event, *, what: str = STORE) -> T | None:
        """Makes the same attempt again while something is not reachable; None if told to stop meanwhile."""
        backoff = Backoff()
        while True:
            try:
                return attempt()
            except RetryError as error:
                self.trouble = str(error)
                self._metrics.retries.labels(what).inc()
                LOG.warning("not reachable, trying again", error=str(error), pause_s=backoff.next_pause)
                if stop.wait(backoff.pause()):
                    return None

    def _count(self, step: Step, group: Sequence[Entry]) -> None:
        self._metrics.group_size.observe(len(group))
        publication = step.publication
        if publication is None:
            return
        size = sum(len(buffer) for buffer in publication.buffers)
        self._metrics.versions.inc()
        self._metrics.manifest_bytes.inc(size)
        self._metrics.visible_seconds.observe(max(0.0, time.time() - group[0].time_us / 1e6))
        LOG.info(
            "published",
            table=group[0].envelope.table,
            branch=group[0].envelope.branch or None,
            version=publication.version,
            entries=len(group),
            first=str(group[0].position),
            last=str(group[-1].position),
            manifest_bytes=size,
        )
