"""`lakefold maintain`: compacts tables and removes old versions by their policies, once or repeatedly."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from lakefold.console.http_port import open_port
from lakefold.console.interrupts import on_end
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import counted, print_json, print_line, table_text
from lakefold.maintaining.engine import HERE, engine_of, engine_option
from lakefold.maintaining.reports import CompactionBar, plain_report, print_failed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold.console.settings import Settings
    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.rewriting.compact import Progress
    from lakefold_maintenance.rewriting.engines import RewriteEngine
    from lakefold_maintenance.scheduling.maintainer import Maintainer
    from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics
    from lakefold_maintenance.scheduling.table_maintenance import RoundReport

SETTINGS = ("group", "roots", "http_host", "http_port", "umask", "maintenance")


@verb(
    "lakefold maintain --root /data/tables",
    "lakefold maintain /data/flights /data/orders --every 30",
    "lakefold maintain --once --dry-run",
    "lakefold maintain --once --json --maintenance version_age=2d",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]…")
@settings_options(*KAFKA, *TOPICS, *STORE, *SETTINGS)
@click.option("--once", is_flag=True, help="Maintain each table once, then exit.")
@engine_option
@click.option("--dry-run", is_flag=True, help="With --once: change nothing; print what would be done.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The seconds from one round to the next. Tables that grow fast are compacted in between.",
)
@click.option(
    "--niceness",
    type=click.IntRange(0, 19),
    default=10,
    show_default=True,
    help="Lower its priority by this much, so that writers and committers here come first; 0 keeps it.",
)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click passes each option
    context: click.Context,
    /,
    settings: Settings,
    tables: tuple[str, ...],
    *,
    once: bool,
    dry_run: bool,
    every: float,
    engine: str,
    niceness: int,
    as_json: bool,
) -> None:
    """Compact tables and remove their old versions, by the policy of each table, while writers go on.

    Without TABLE it maintains the tables in the folders and buckets below the roots, up to three folders deep
    and in the first 2,000 folders of each root; a warning is logged if a root has more. The policy is in the
    table's configuration (lakefold.maintenance.target_rows, …) and in the setting `maintenance`. Indices that
    lack many rows are brought up to date (unindexed_share). Versions stay that tags, branches, named
    consumers or proposals that wait in the log need. Files of refused proposals and files that nothing names
    are removed some time later (refused_files, unnamed_files), those that a Delta table has removed when its
    own delta.deletedFileRetentionDuration has passed. Several maintainers may run: one of them works on a
    table at a time.

    Without --once it runs until SIGTERM or Ctrl-C, which let the current rewrite finish. /livez, /readyz and
    /metrics are served on --http-port. With --once the exit code is that of the first failure.
    """
    if dry_run and not once:
        raise click.UsageError("--dry-run needs --once")
    from lakefold_maintenance.planning.policy import policy_of

    # An invalid setting would fail the round of each table, repeatedly.
    policy_of({}, settings.maintenance)
    # Only threads that begin later have it. Those of pylance, which rewrites, begin when it is imported.
    os.nice(niceness)
    from lakefold_maintenance.format import THREADS
    from lakefold_maintenance.rewriting.compact import NoProgress

    # A session of Spark's sets a handler of its own for Ctrl-C, so it begins before.
    rewrites = engine_of(HERE if dry_run else engine, THREADS, for_any_format=not tables)
    stopped = threading.Event()
    on_end(stopped.set)
    from lakefold_committer.observability.gc_tuning import collect_seldom
    from lakefold_maintenance.scheduling.metrics import MaintenanceMetrics

    # A hundred thousand proposals may wait in the log, and each round reads them.
    collect_seldom()
    metrics, bar = MaintenanceMetrics(), CompactionBar()
    maintainer = _maintainer(settings, tables, rewrites, metrics, stopped, bar if once else NoProgress())
    if once:
        codes: list[int] = []
        for report in maintainer.round(dry_run=dry_run):
            bar.close()
            _print(report, dry_run=dry_run, as_json=as_json)
            codes.append(report.compaction.exit_code)
        codes += [error.exit_code for error in maintainer.failed.values()]
        context.exit(next(filter(None, codes), 0))
    with ExitStack() as stack:
        if settings.http_port:
            stack.enter_context(open_port(settings, metrics, str, lambda: "maintaining"))
        maintainer.run(every)


def _maintainer(
    settings: Settings,
    tables: tuple[str, ...],
    engine: RewriteEngine,
    metrics: MaintenanceMetrics,
    stopped: threading.Event,
    progress: Progress,
) -> Maintainer:
    from lakefold_maintenance.files.refused_files import RefusedFiles
    from lakefold_maintenance.rewriting.pacing import Pacing
    from lakefold_maintenance.rewriting.survey import Surveyor
    from lakefold_maintenance.rewriting.table_log import TableLog
    from lakefold_maintenance.scheduling.maintainer import Maintainer
    from lakefold_maintenance.scheduling.table_maintenance import MaintenanceParts
    from lakefold_maintenance.scheduling.waiting_proposals import WaitingProposals, read_waiting
    from lakefold_reader.formats import open_source

    kafka, topics, pacing = settings.kafka_config(), settings.topics(), Pacing(stopped)
    refused = RefusedFiles(kafka, topics.dead_letters)

    def opened(survey: TableSurvey) -> TableLog:
        return TableLog(survey, kafka, topics, storage_options=settings.storage_options)

    def waiting(survey: TableSurvey) -> WaitingProposals:
        return read_waiting(survey, kafka, topics, settings.group)

    def go_on(survey: TableSurvey, size: int) -> bool:
        return pacing.after(size, survey.policy.bytes_per_second)

    return Maintainer(
        lambda: _tables(settings, tables),
        lambda table: Surveyor(open_source(table, settings.storage_options), settings.maintenance),
        MaintenanceParts(
            opened,
            waiting,
            lambda survey: refused.of(survey.table, survey.branch),
            go_on,
            engine,
            metrics,
            progress=progress,
        ),
        stopped,
    )


def _tables(settings: Settings, named: tuple[str, ...]) -> Iterable[str]:
    """Returns the tables that were named, else those that exist below the roots."""
    from lakefold.setup.tables import maintained_tables
    from lakefold_table.uri import canonical

    if named:
        return [canonical(table) for table in named]
    return maintained_tables(settings.roots, settings.storage_options)


def _print(report: RoundReport, *, dry_run: bool, as_json: bool) -> None:
    done = report.compaction
    if as_json:
        fragments = {"fragments_before": report.fragments, "fragments_after": report.fragments}
        compaction = plain_report(done) | ({} if done.version else {"version": report.version, **fragments})
        print_json(
            {
                "table": report.table,
                **compaction,
                "format": report.format,
                "skipped": report.skipped,
                "updated_indices": list(report.indices),
                "removed_versions": report.cleaned.versions,
                "removed_data_files": report.cleaned.data_files,
                "removed_bytes": report.cleaned.bytes,
                "kept_for_waiting_proposals": report.kept_for_waiting,
                "removed_files_of_refused_proposals": report.removed_files.refused,
                "removed_unnamed_files": report.removed_files.unnamed,
                "dry_run": dry_run,
            }
        )
        return
    would = " (dry run: nothing was changed)" if dry_run else ""
    skipped = f"; not compacted: {report.skipped}" if report.skipped else ""
    indices = f"indices brought up to date because of {', '.join(report.indices)}, " if report.indices else ""
    print_line(
        f"{table_text(report.table, report.format)}: "
        f"{counted(done.tasks, 'rewrite')} of {counted(done.rows, 'row')}, {indices}"
        f"{counted(report.cleaned.versions, 'version')} and "
        f"{counted(report.removed_files.count, 'unnamed file')} removed"
        f"{skipped}{would}"
    )
    print_failed(done)
