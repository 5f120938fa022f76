"""A round of maintenance of a table: compaction, indices and clean-up, each by the policy."""

from __future__ import annotations

import math
import os
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from lakefold_maintenance.files.clean_up import FileCleanUp, RemovedFiles
from lakefold_maintenance.planning.plan import plan, weights_of
from lakefold_maintenance.rewriting.compact import Compaction, CompactionReport, NoProgress, planned_report
from lakefold_maintenance.scheduling.failed_fragments import FailedFragments
from lakefold_maintenance.scheduling.lease import MaintainerNote
from lakefold_reader.consumers.expire_versions import clean_up
from lakefold_reader.consumers.expire_versions import plan as plan_clean_up
from lakefold_reader.format.snapshots import Cleaned
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import InvalidError, LakefoldError, RetryError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_maintenance.files.refused_files import Refusals
    from lakefold_maintenance.format import CompactionLog, TableSurvey
    from lakefold_maintenance.planning.policy import MaintenancePolicy
    from lakefold_maintenance.rewriting.compact import Progress
    from lakefold_maintenance.rewriting.engines import RewriteEngine
    from lakefold_maintenance.rewriting.survey import Surveyor
    from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics
    from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals

LOG = structlog.get_logger("lakefold")
WAITING: Final = "waiting proposals"
"""What keeps a version: proposals that wait in the log were built on it."""
NEW_FRAGMENTS: Final = 16
"""A table is compacted again when about this many fragments were added to it."""
LEAST_PAUSE_S: Final = 0.5
SURVEY_PAUSES: Final = 10
"""The least pause between two compactions of a table, in seconds, and in times that a survey of it takes."""
DROPPED: Final = "the branch was deleted, or the table is being dropped"
NOTHING_CLEANED: Final = Cleaned(0, 0, 0)
NO_FILES: Final = RemovedFiles()


NO_TABLE: Final = ("", "", 0)
"""The format, id and version of a table that was not surveyed yet."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a round did, or would do in a dry run.

    `skipped`: why nothing was rewritten; empty if the compaction ran. `kept_for_waiting`: old versions that
    proposals in the log need. `removed_files`: files that no version and no proposal names. `indices`: the
    names of those that lacked enough rows that all indices were brought up to date. `format`: the name of
    the table's, `lance` or `delta`.
    """

    table: str
    format: str
    version: int
    fragments: int
    compaction: CompactionReport = field(default_factory=CompactionReport)
    skipped: str = ""
    cleaned: Cleaned = NOTHING_CLEANED
    kept_for_waiting: int = 0
    removed_files: RemovedFiles = NO_FILES
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaintenanceParts:
    """What a round needs of its surroundings.

    `open_log` connects to the log of a table. `read_waiting` reads what waits in it, `refused_files` the
    files of refused proposals. `go_on` is
    called with the bytes of each rewrite, and returns whether to continue. `engine`: where fragments are
    rewritten. `progress` hears of each compaction.
    """

    open_log: Callable[[TableSurvey], CompactionLog]
    read_waiting: Callable[[TableSurvey], WaitingProposals]
    refused_files: Callable[[TableSurvey], Refusals]
    go_on: Callable[[TableSurvey, int], bool]
    engine: RewriteEngine
    metrics: MaintenanceMetrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    load: Callable[[], float] = lambda: os.getloadavg()[0] / (os.cpu_count() or 1)
    progress: Progress = field(default_factory=NoProgress)


class TableMaintenance:
    """Maintains a table, round by round."""

    def __init__(
        self, surveyor: Surveyor, parts: MaintenanceParts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._surveyor = surveyor
        self._parts = parts
        self._failures = FailedFragments()
        self._note = MaintainerNote(surveyor.source.storage)
        self._table = NO_TABLE
        self._highest: int | None = None
        self._own: set[int] = set()
        self._files = FileCleanUp()
        self._clock = clock
        self._surveyed_at: float | None = None
        self._added_per_s = 0.0
        self._survey_s = 0.0

    def due_at(self, now: float) -> float:
        """Returns when the table should be compacted again, by the rate at which fragments were added to it.

        That is infinity if none were. `now`, as the result: seconds of the clock.
        """
        if self._surveyed_at is None or not self._added_per_s:
            return math.inf
        pause = max(LEAST_PAUSE_S, SURVEY_PAUSES * self._survey_s)
        return max(self._surveyed_at + NEW_FRAGMENTS / self._added_per_s, now + pause)

    def compact(self) -> RoundReport:
        """Compacts the table if the policy says so, between two rounds. Raises the errors of `round`.

        If it fails or is skipped, the table isn't due again before its next round.
        """
        began, self._added_per_s = self._clock(), 0.0
        survey = self._surveyor.survey()
        self._survey_s = self._clock() - began
        self._measure(survey)
        rate, self._added_per_s = self._added_per_s, 0.0
        skipped = DROPPED if survey.dropped else self._skipped(survey.policy)
        report = replace(_begun(survey), skipped=skipped)
        if not skipped:
            report = self._compact(report, self._failures.left_out())
        if not report.skipped and not report.compaction.failed:
            self._added_per_s = rate
        return report

    def round(self, *, dry_run: bool = False) -> RoundReport:
        """Does what the policy asks for now.

        Raises `InvalidError` if the policy is invalid, and the errors of `Compaction.run`.
        """
        survey = self._surveyor.survey()
        self._failures.begin_round()
        self._measure(survey)
        if survey.dropped:
            return replace(_begun(survey), skipped=DROPPED)
        read_at = self._parts.now().timestamp()
        waiting = self._parts.read_waiting(survey)
        report = _begun(survey)
        passed_over = self._failures.left_out() | survey.format.rewritten_ids(survey, waiting.rewritten)
        if dry_run:
            planned = self._planned(survey, passed_over)
            report = replace(report, compaction=planned, indices=_behind(survey))
        else:
            skipped = self._skipped(survey.policy)
            report = replace(report, skipped=skipped) if skipped else self._compact(report, passed_over)
            if not self._quiet(survey.policy):
                # A compaction takes rows from indices that know them by address.
                compacted = report.compaction.tasks > 0
                report = self._index(self._surveyor.survey() if compacted else survey, report)
        if not survey.policy.cleanup:
            return report
        report = self._clean_up(survey, report, waiting, dry_run=dry_run)
        return self._remove_files(survey, report, waiting, read_at, dry_run=dry_run)

    def _skipped(self, policy: MaintenancePolicy) -> str:
        """Returns why the table isn't compacted now, or an empty text."""
        return self._quiet(policy) if policy.compaction else "the policy says that it isn't compacted"

    def _quiet(self, policy: MaintenancePolicy) -> str:
        """Returns why nothing is rewritten now, or an empty text."""
        now = self._parts.now()
        if policy.quiet_hours is not None and policy.quiet_hours.contain(now.hour * 60 + now.minute):
            return "it is in the quiet hours of the policy"
        if policy.quiet_load is not None and self._parts.load() >= policy.quiet_load:
            return "the machine's load is above that of the policy"
        return ""

    def _compact(self, report: RoundReport, passed_over: set[int]) -> RoundReport:
        """Compacts the table, unless another maintainer does. Returns the report with the result."""
        if not self._note.acquire():
            return replace(report, skipped="another maintainer works on it")

        def go_on(survey: TableSurvey, size: int) -> bool:
            self._note.renew()
            return self._parts.go_on(survey, size)

        parts = self._parts
        compaction = Compaction(
            self._surveyor, parts.open_log, engine=parts.engine, progress=parts.progress, pause=go_on
        )
        try:
            done = compaction.run(full=False, passed_over=passed_over)
        finally:
            self._note.release()
        for failed in done.failed:
            self._failures.add(failed)
        self._own |= done.new_ids
        self._parts.metrics.rewritten(report.table, done)
        return replace(report, compaction=done, version=done.version, fragments=done.fragments_after)

    def _planned(self, survey: TableSurvey, passed_over: set[int]) -> CompactionReport:
        tasks = (
            plan(survey.figures, survey.policy, passed_over=passed_over | survey.fixed)
            if survey.policy.compaction
            else []
        )
        return planned_report(survey, tasks)

    def _index(self, survey: TableSurvey, report: RoundReport) -> RoundReport:
        """Brings the indices up to date if one of them lacks too many rows, or relies on a reuse index."""
        behind = _behind(survey)
        if not behind or not self._note.acquire():
            return report
        try:
            self._take_reuse_index_away(survey)
            survey.format.optimize_indices(survey)
        except LakefoldError as error:
            # Others may have committed first. The indices are as they were, and queries are right.
            LOG.warning("indices could not be brought up to date", table=report.table, error=str(error))
            self._parts.metrics.errors.labels(report.table).inc()
            return report
        finally:
            self._note.release()
        return replace(report, indices=behind)

    def _take_reuse_index_away(self, survey: TableSurvey) -> None:
        """Proposes that, if the table has one (decision 0113). Raises `RetryError` if it is refused."""
        envelope = survey.format.without_reuse_index(survey) if survey.has_reuse_index else None
        if envelope is None:
            return
        with closing(self._parts.open_log(survey)) as log:
            answer = log.ask(envelope).result
        if isinstance(answer, Rejected | Invalid):
            reason = answer.conflict.message if isinstance(answer, Rejected) else answer.message
            message = f"the fragment-reuse index could not be taken away: {reason}"
            raise RetryError(message, where=survey.source.uri, hint="the next round tries again")

    def _clean_up(
        self, survey: TableSurvey, report: RoundReport, waiting: WaitingProposals, *, dry_run: bool
    ) -> RoundReport:
        policy, metrics, table = survey.policy, self._parts.metrics, survey.source.uri
        if survey.format.clean_up_takes(survey.source.storage, waiting.files, time.time()):
            LOG.warning("old versions stay: files of waiting proposals are older than six days", table=table)
            return report
        try:
            planned = plan_clean_up(
                survey.source, policy.version_age, keep=policy.min_versions, now=self._parts.now
            )
            oldest = planned.newest if waiting.oldest_read is None else waiting.oldest_read
            needless = [number for number in planned.versions if number < oldest]
            cleaned = clean_up(survey.source, replace(planned, versions=needless), dry_run=dry_run)
        except VersionExpiredError as error:
            LOG.info("old versions are left to the other client", table=table, reason=str(error))
            return report
        except InvalidError as error:
            # Not allowed to delete, or a branch whose origin is gone: the rest of the maintenance goes on.
            LOG.warning("old versions can't be removed", table=table, error=str(error))
            metrics.errors.labels(table).inc()
            return report
        kept = len(planned.versions) - len(needless)
        for reason, count in {**planned.kept, WAITING: kept}.items():
            metrics.kept.labels(table, reason).set(count)
        metrics.versions.labels(table).set(planned.newest - planned.oldest + 1 - cleaned.versions)
        metrics.removed.labels(table).inc(0 if dry_run else cleaned.versions)
        return replace(report, cleaned=cleaned, kept_for_waiting=kept)

    def _remove_files(
        self,
        survey: TableSurvey,
        report: RoundReport,
        waiting: WaitingProposals,
        read_at: float,
        *,
        dry_run: bool,
    ) -> RoundReport:
        """Removes files that nothing names. `read_at`: when `waiting` began to be read."""
        metrics, now = self._parts.metrics, self._parts.now().timestamp()
        if not self._files.is_due(now):
            return report
        try:
            refused = self._parts.refused_files(survey)
            files = None if waiting.unknown else waiting.files
            removed = self._files.run(survey, files, refused, read_at=read_at, now=now, dry_run=dry_run)
        except LakefoldError as error:
            LOG.warning("files that nothing names can't be removed", table=report.table, error=str(error))
            metrics.errors.labels(report.table).inc()
            return report
        if not dry_run:
            metrics.files.labels(report.table, "refused").inc(removed.refused)
            metrics.files.labels(report.table, "unnamed").inc(removed.unnamed)
        return replace(report, removed_files=removed)

    def _note_table(self, survey: TableSurvey) -> None:
        """Forgets what is known of fragments by their numbers, if these are of another table now.

        A table that only other clients have written has no id yet.
        """
        name, table_id, version = before = self._table
        self._table = survey.source.format.name, survey.table_id, survey.version
        is_other = "" not in (table_id, survey.table_id) and table_id != survey.table_id
        if before != NO_TABLE and (is_other or name != self._table[0] or survey.version < version):
            self._failures.clear()
            self._own.clear()
            self._highest = None

    def _measure(self, survey: TableSurvey) -> None:
        self._note_table(survey)
        self._failures.keep(set(survey.figures.ids.tolist()))
        figures, metrics, table = survey.figures, self._parts.metrics, survey.source.uri
        rows = int(figures.rows.sum())
        metrics.errors.labels(table).inc(0)
        metrics.fragments.labels(table).set(figures.count)
        metrics.small.labels(table).set(int((weights_of(figures, survey.policy) < 1).sum()))
        metrics.deleted_share.labels(table).set(float(figures.deleted.sum()) / max(rows, 1))
        metrics.passed_over.labels(table).set(self._failures.repeated())
        metrics.surveyed(table, self._added(survey), survey.unindexed)

    def _added(self, survey: TableSurvey) -> int:
        """Returns the bytes of the fragments that others have added since the last survey.

        Fragments that were added and replaced between two surveys are not counted, but for the rate at which
        fragments are added.
        """
        figures, now = survey.figures, self._clock()
        before, self._highest = self._highest, int(figures.ids.max(initial=-1))
        surveyed_at, self._surveyed_at = self._surveyed_at, now
        own, self._own = self._own, set()
        if before is None:
            return 0
        if surveyed_at is not None and now > surveyed_at:
            count = self._highest - before - sum(number > before for number in own)
            self._added_per_s = max(count, 0) / (now - surveyed_at)
        added = (figures.ids > before) & ~np.isin(figures.ids, np.fromiter(own, np.int64))
        return int(figures.bytes[added].sum())


def _begun(survey: TableSurvey) -> RoundReport:
    """Returns the report of a round that has done nothing yet."""
    source = survey.source
    return RoundReport(source.uri, source.format.name, survey.version, survey.figures.count)


def _behind(survey: TableSurvey) -> tuple[str, ...]:
    """Returns the names of the indices that lack enough rows to be brought up to date by the policy.

    They are all indices if the table has a fragment-reuse index.
    """
    share = survey.policy.unindexed_share
    if share is None:
        return ()
    least = 0.0 if survey.has_reuse_index else max(share * int(survey.figures.live.sum()), 1)
    return tuple(sorted(name for name, rows in survey.unindexed.items() if rows >= least))
