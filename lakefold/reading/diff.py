"""`lakefold diff`: what differs between two versions, tags or branches of a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import counted, print_json, print_line, print_table, row_text, shown

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_reader.diff.diff import ComparedVersion, Diff
    from lakefold_reader.format.snapshots import FileTotal


@verb(
    "lakefold diff /data/flights 5 9",
    "lakefold diff /data/flights release-3 main --json",
    "lakefold diff /data/flights main branch:audit --rows",
    "lakefold diff /data/flights audit@7 audit@9",
    "lakefold diff /data/flights 5 9 --rows --json | jq -c 'select(._difference == \"removed\")'",
)
@click.argument("table")
@click.argument("a")
@click.argument("b")
@settings_options(*STORE)
@click.option(
    "--branch", metavar="NAME", help="The branch of A and B if they are numbers.  [default: main, or TABLE's]"
)
@click.option(
    "--rows", "with_rows", is_flag=True, help="Print the rows that differ, too; with --json only them."
)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    a: str,
    b: str,
    branch: str | None,
    with_rows: bool,
    as_json: bool,
) -> None:
    """Show the columns, data files and rows that differ between versions A and B of TABLE.

    A and B are each a version's number, a tag's name, a branch's name (its newest version; main is the main
    branch) or a branch's version as audit@12. tag:NAME and branch:NAME say which is meant if both exist.

    A row that was updated is removed as it was and added as it is. Equal rows are no difference, in whatever
    files they are. Files that both versions have are not read.
    """
    from lakefold_reader.as_json import plain_rows
    from lakefold_reader.diff.diff import diff

    reads_counts = not (with_rows and as_json)
    options = settings.storage_options
    difference = diff(table, a, b, branch=branch, storage_options=options, rows=reads_counts)
    if as_json and not with_rows:
        print_json(diff_document(difference))
        return
    if not as_json:
        print_diff(difference)
    for batch in difference.to_reader() if with_rows else ():
        for row in plain_rows(batch):
            if as_json:
                print_json(row)
            else:
                sign = "+" if row.pop("_difference") == "added" else "-"
                print_line(f"{sign} {row_text(row)}")


def diff_document(difference: Diff) -> dict[str, Any]:
    """Returns what differs as plain values."""
    return {
        "table": difference.table,
        "format": difference.format,
        "a": asdict(difference.a),
        "b": asdict(difference.b),
        "columns_added": list(difference.columns_added),
        "columns_dropped": list(difference.columns_dropped),
        "columns_changed": [asdict(each) for each in difference.columns_changed],
        "files_added": difference.files_added._asdict(),
        "files_removed": difference.files_removed._asdict(),
        "rows_added": difference.rows_added,
        "rows_removed": difference.rows_removed,
    }


def print_diff(difference: Diff) -> None:
    """Prints what differs, a line for each kind of thing."""
    print_table(difference.table, difference.format)
    facts = {
        "from": _version(difference.a),
        "to": _version(difference.b),
        "columns": ", ".join(_columns(difference)) or "the same",
        "data files": f"+ {_files(difference.files_added)}, - {_files(difference.files_removed)}",
        "rows": f"+ {difference.rows_added:,}, - {difference.rows_removed:,}",
    }
    for name, value in facts.items():
        print_line(f"{name:<14}{value}")


def _version(compared: ComparedVersion) -> str:
    return f"version {compared.version:,} of {shown(compared.branch)}"


def _columns(difference: Diff) -> list[str]:
    """Returns a text for each column that differs."""
    changed = []
    for each in difference.columns_changed:
        name = each.name if each.before == each.name else f"{each.before} → {each.name}"
        kind = "" if each.type_before == each.type else f" ({each.type_before} → {each.type})"
        changed.append(f"{name}{kind}")
    return [
        *(f"+ {name}" for name in difference.columns_added),
        *(f"- {name}" for name in difference.columns_dropped),
        *changed,
    ]


def _files(total: FileTotal) -> str:
    size = "size unknown" if total.bytes is None else counted(total.bytes, "byte")
    return f"{counted(total.files, 'file')} ({size})"
