"""`lakefold compact`: joins the small fragments of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import counted, print_json, print_line, print_table
from lakefold.maintaining.engine import engine_of, engine_option
from lakefold.maintaining.reports import CompactionBar

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_maintenance.rewriting.compact import CompactionReport


def _done_text(report: CompactionReport, *, dry_run: bool) -> str:
    before = counted(report.fragments_before, "fragment")
    if not report.tasks:
        return f"nothing to compact: {before}"
    verb = "would compact" if dry_run else "compacted"
    removed = f", {counted(report.deleted_rows, 'deleted row')} removed" if report.deleted_rows else ""
    rows = f"{counted(report.rows, 'row')}, {report.bytes:,} bytes{removed}"
    return f"{verb} {before} into {report.fragments_after:,} ({rows})"


@verb(
    "lakefold compact /data/flights --dry-run",
    "lakefold compact /data/flights",
    "lakefold compact /data/flights --maintenance target_rows=500000 --threads 4",
    "lakefold compact s3://lake/flights --by-policy --json",
    "lakefold compact s3://lake/flights --engine spark",
)
@click.argument("table")
@settings_options(*KAFKA, *TOPICS, *STORE, "maintenance")
@click.option(
    "--branch", metavar="NAME", help="The branch to compact.  [default: main, or the branch at TABLE]"
)
@click.option("--by-policy", is_flag=True, help="Rewrite only what `lakefold maintain` would.")
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=2,
    show_default=True,
    help="Threads that read and write data files in each rewrite; memory grows with them.",
)
@click.option(
    "--wait",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the outcome of each proposal.",
)
@engine_option
@click.option("--dry-run", is_flag=True, help="Rewrite nothing; print what would be rewritten.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    by_policy: bool,
    dry_run: bool,
    as_json: bool,
    **work: Any,  # noqa: ANN401 - the options threads, wait and engine
) -> None:
    """Join adjacent small fragments of TABLE, and remove deleted rows from its data files.

    This process rewrites the fragments, or Spark's executors do (--engine spark), and it proposes them
    through the log, so no writer is refused because of them. Rows and their ids stay the same. What counts as
    small is set by the table's configuration (lakefold.maintenance.target_rows, .target_bytes, …) or by
    --maintenance.

    An index may lack the rows of new fragments until `lakefold optimize-indices` or `lakefold maintain` adds
    them; how many each index lacks is printed.

    Of a Delta table this process joins the data files of each partition, and --engine spark is refused.

    A rewrite that fails or is refused leaves its fragments as they were, and the others continue. Then the
    exit code is 3 if one was refused, else that of the first failure.
    """
    from lakefold.maintaining.compaction import compaction_of, planned
    from lakefold.maintaining.reports import plain_report, print_failed
    from lakefold_table.uri import canonical

    if dry_run:
        report = planned(settings, table, branch, full=not by_policy)
    else:
        with CompactionBar() as bar:
            engine = engine_of(work["engine"], work["threads"])
            report = compaction_of(
                settings, table, branch, timeout_s=work["wait"], engine=engine, progress=bar
            ).run(full=not by_policy)
    if as_json:
        kept = {"unindexed": report.unindexed, "dry_run": dry_run}
        print_json({"table": canonical(table), **plain_report(report), **kept})
    else:
        print_table(canonical(table), report.format)
        print_line(_done_text(report, dry_run=dry_run))
        print_failed(report)
        for name, rows in report.unindexed.items():
            lacking = f"index {name} lacks {counted(rows, 'row')}, which searches scan"
            print_line(f"{lacking}; `lakefold optimize-indices` adds them")
    context.exit(report.exit_code)
