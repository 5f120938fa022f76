"""`lakefold changes`: every row that versions inserted, changed or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line, print_table, row_text

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefold.console.settings import Settings
    from lakefold_reader.format.source import Source

ADDED = ("_change_type", "_commit_version", "_commit_timestamp", "_log_offset")


def _names(_: click.Context, option: click.Parameter, text: str | None) -> list[str] | None:
    """Returns the names in the list `text`, or None if it is None.

    Raises `click.BadParameter` if a name is empty.
    """
    names = None if text is None else [name.strip() for name in text.split(",")]
    if names is not None and not all(names):
        message = f"{text!r} has an empty name; name columns as in --columns carrier,dep_delay"
        raise click.BadParameter(message, param=option)
    return names


@verb(
    "lakefold changes /data/flights --from 7",
    "lakefold changes /data/flights --from 7 --to 12 --columns carrier,dep_delay",
    "lakefold changes /data/flights --from 0 --json | jq -c 'select(._change_type == \"delete\")'",
    "lakefold changes /data/flights --branch audit --from 7 --rewritten fail",
    "lakefold changes /data/flights --from 7 --misfits null",
)
@click.argument("table")
@settings_options(*STORE)
@click.option("--branch", metavar="NAME", help="The branch to read.  [default: main, or the branch at TABLE]")
@click.option(
    "--from",
    "after",
    type=click.IntRange(min=-1),
    required=True,
    metavar="N",
    help="Show the changes after this version; 0 shows all, of a Delta table -1.",
)
@click.option("--to", type=int, metavar="N", help="The last version to show.  [default: the newest]")
@click.option(
    "--columns",
    metavar="A,B",
    callback=_names,
    help="The columns to show.  [default: all columns of the last version]",
)
@click.option(
    "--rewritten",
    type=click.Choice(["rows", "fail", "skip"]),
    default="rows",
    show_default=True,
    help="What to do with a version that replaced the table's content (overwrite, restore): show the rows "
    "that it removed and added, fail, or skip the version.",
)
@click.option(
    "--misfits",
    type=click.Choice(["fail", "null"]),
    default="fail",
    show_default=True,
    help="What to do with a value that doesn't fit the type of its column in the last version: fail, or show "
    "null and print the number of such values on stderr.",
)
@json_option
def command(  # noqa: PLR0913 - each is an option of the verb
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    after: int,
    to: int | None,
    columns: list[str] | None,
    rewritten: str,
    misfits: str,
    as_json: bool,
) -> None:
    """Print the rows that the versions of TABLE after --from inserted, changed or deleted, each on a line.

    A changed row is printed twice, with its old and its new values. Each line shows the kind of change, the
    version, and the offset of the entry in the log; --json adds the time. Compactions, indices and settings
    change no rows. The table's format is on stderr, with --json as well.
    """
    from lakefold_reader.as_json import plain_rows
    from lakefold_reader.feed import changes_of
    from lakefold_reader.formats import on_branch

    def opened(source: Source) -> tuple[Source, pa.RecordBatchReader]:
        read = changes_of(source, after, to, columns=columns, rewritten=rewritten, misfits=misfits)
        return source, read

    source, reader = on_branch(table, branch, settings.storage_options, opened)
    print_table(source.uri, source.format.name)
    for batch in reader:
        for row in plain_rows(batch):
            if as_json:
                print_json(row)
            else:
                print_line(_line(row))


def _line(row: dict[str, Any]) -> str:
    """Returns a row as text: the kind of change, then the values."""
    kind, version, _, offset = (row[name] for name in ADDED)
    head = f"version {version:,}  {kind:<16}" + ("" if offset is None else f"  @{offset}")
    return f"{head}  {row_text({name: value for name, value in row.items() if name not in ADDED})}"
