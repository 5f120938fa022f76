"""`lakefold head`: the first rows of a version of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.branching.chosen_version import VersionChoice, version_options
from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_columns, print_json, print_table
from lakefold_reader.spark.option_kinds import NAMES

if TYPE_CHECKING:
    from lakefold.console.settings import Settings

_WIDEST = 60
"""How many characters of a value are shown at a terminal; JSON has all of it."""


@verb(
    "lakefold head /data/flights",
    "lakefold head /data/flights -n 3 --columns id,carrier --json | jq .carrier",
    "lakefold head /data/flights --where \"carrier = 'LH'\" --tag release-3",
)
@click.argument("table")
@click.option(
    "-n", "--rows", "most", type=click.IntRange(min=0), default=10, show_default=True, help="How many."
)
@click.option("--columns", metavar="NAMES", help="Only these columns, with commas.  [default: all]")
@click.option("--where", metavar="PREDICATE", help="SQL: only rows for which it holds.")
@version_options("Read the version that")
@settings_options(*STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    most: int,
    columns: str | None,
    where: str | None,
    choice: VersionChoice,
    as_json: bool,
) -> None:
    """Print the first rows of TABLE, or with --json each as a JSON object.

    They are read from the first data files that have some, and only the columns that are asked for. The order
    is that of the table's files.
    """
    from lakefold_reader.as_json import plain_rows
    from lakefold_reader.snapshot.snapshot import open_table

    opened = open_table(table, **choice.named, storage_options=settings.storage_options)
    chosen = None if columns is None else NAMES.read(columns)
    batches = opened.to_reader(chosen, where, limit=most, batch_size=max(most, 1))
    rows = (row for batch in batches for row in plain_rows(batch))
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(opened.uri, opened.format)
    names = batches.schema.names
    print_columns(names, [[_shown(row[name]) for name in names] for row in rows])


def _shown(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
