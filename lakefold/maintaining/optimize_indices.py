"""`lakefold optimize-indices`: brings the indices of a table up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings


@verb(
    "lakefold optimize-indices /data/flights",
    "lakefold optimize-indices /data/flights --dry-run --json",
)
@click.argument("table")
@settings_options(*STORE)
@click.option("--branch", metavar="NAME", help="The branch.  [default: main, or the branch at TABLE]")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what each index covers.")
@json_option
def command(settings: Settings, table: str, *, branch: str | None, dry_run: bool, as_json: bool) -> None:
    """Add the fragments of TABLE that its indices don't cover yet to them.

    After appends and compactions queries are right, but scan the fragments that no index covers. pylance does
    this work and commits the version itself, beside the log; committers fold on top of it.
    """
    from lakefold_maintenance.lance.indices import optimize_indices
    from lakefold_reader.formats import open_branch

    source = open_branch(table, branch, settings.storage_options)
    report = optimize_indices(source, dry_run=dry_run)
    if as_json:
        indices = [
            {"name": index.name, "fragments_before": index.before, "fragments_after": index.after}
            for index in report.indices
        ]
        print_json(
            {
                "table": source.uri,
                "version": report.version,
                "fragments": report.fragments,
                "indices": indices,
                "dry_run": dry_run,
            }
        )
        return
    for index in report.indices:
        print_line(
            f"{index.name}: covers {_shown(index.after)} of {report.fragments:,} fragments, "
            f"{_shown(index.before)} before"
        )
    if not report.indices:
        print_line("the table has no index")


def _shown(count: int | None) -> str:
    return "an unknown number" if count is None else f"{count:,}"
