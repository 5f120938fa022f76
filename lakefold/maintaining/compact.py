"""`lakefold compact`: joins the small fragments of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_maintenance.rewriting.compact import CompactionReport

REFUSED = 3
SHOWN = 20
"""At most so many fragments of a failed rewrite are printed for people."""


@click.command(
    epilog=examples(
        "lakefold compact /data/flights --dry-run",
        "lakefold compact /data/flights",
        "lakefold compact /data/flights --maintenance target_rows=500000 --threads 4",
        "lakefold compact s3://lake/flights --by-policy --json",
    )
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
    help="Threads that read and write data files; memory grows with them.",
)
@click.option(
    "--wait",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the outcome of each proposal.",
)
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
    **work: Any,  # noqa: ANN401 - the options threads and wait
) -> None:
    """Join adjacent small fragments of TABLE, and remove deleted rows from its data files.

    This process rewrites the fragments and proposes them through the log, so no writer is turned back. Rows
    and their ids stay the same. What counts as small is set by the table's configuration
    (lakefold.maintenance.target_rows, .target_bytes, …) or by --maintenance.

    A rewrite that fails or is refused leaves its fragments as they were, and the others go on. Then the exit
    code is 3 if one was refused, else that of the first failure.
    """
    from lakefold.maintaining.compaction import compaction_of, planned
    from lakefold.maintaining.progress import Bar

    if dry_run:
        survey, tasks = planned(settings, table, branch, full=not by_policy)
        joined = sum(len(task.fragment_ids) for task in tasks)
        document = {
            "table": survey.source.uri,
            "version": survey.version,
            "fragments_before": survey.figures.count,
            "fragments_after": survey.figures.count - joined + len(tasks),
            "rewrites": len(tasks),
            "rows": sum(task.rows for task in tasks),
            "bytes": sum(task.bytes for task in tasks),
            "deleted_rows": sum(task.deleted for task in tasks),
            "failed": [],
            "dry_run": True,
        }
        _print(document, as_json=as_json)
        return
    with Bar() as bar:
        report = compaction_of(
            settings, table, branch, timeout_s=work["wait"], threads=work["threads"], progress=bar
        ).run(full=not by_policy)
    _print({"table": table, **_plain(report), "dry_run": False}, as_json=as_json)
    if report.failed:
        errors = [each.error for each in report.failed if each.error is not None]
        context.exit(REFUSED if len(errors) < len(report.failed) else errors[0].exit_code)


def _plain(report: CompactionReport) -> dict[str, object]:
    return {
        "version": report.version,
        "fragments_before": report.fragments_before,
        "fragments_after": report.fragments_after,
        "rewrites": report.tasks,
        "rows": report.rows,
        "bytes": report.bytes,
        "deleted_rows": report.deleted_rows,
        "failed": [{"fragments": list(each.fragment_ids), "reason": each.message} for each in report.failed],
    }


def _print(document: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    would = " (dry run: nothing was rewritten)" if document["dry_run"] else ""
    print_line(
        f"{document['fragments_before']:,} fragments before, {document['fragments_after']:,} after; "
        f"{document['rewrites']:,} rewrites of {document['rows']:,} rows in {document['bytes']:,} bytes, "
        f"{document['deleted_rows']:,} deleted rows removed{would}"
    )
    failed = document["failed"]
    for each in failed if isinstance(failed, list) else ():
        numbers = each["fragments"]
        named = ", ".join(map(str, numbers[:SHOWN])) + (", …" if len(numbers) > SHOWN else "")
        print_line(f"fragments {named} are as they were: {each['reason']}")
