"""The verbs `create` and `alter`: the options and the text of the functions of these names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import exit_if_refused, print_outcome
from lakefold.console.output import print_json, print_line
from lakefold.writing.verb_options import (
    FILE,
    key_options,
    message_option,
    option_flags,
    pairs,
    wait_option,
)
from lakefold.writing.verbs import print_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold.console.settings import Settings
    from lakefold_ingest.proposals.key import Key

    F = TypeVar("F", bound=Callable[..., None])


@verb(
    "lakefold create /data/flights --schema flights.parquet",
    "lakefold create /data/days --schema columns.json --format delta --partition-by day",
    "lakefold create /data/days --schema columns.json --format delta \\\n"
    "    --property delta.enableTypeWidening=true --if-not-exists",
)
@click.argument("table")
@click.option("--schema", "file", type=FILE, required=True, help="A file with the columns.")
@option_flags(
    *("format", "partitionBy", "tableProperties", "stableRowIds", "dataStorageVersion"), into="given"
)
@click.option("--if-not-exists", is_flag=True, help="Send nothing if there is a table already.")
@wait_option(or_log=False)
@message_option
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def create(  # noqa: PLR0913 - its options
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    *,
    file: Path,
    given: dict[str, Any],
    if_not_exists: bool,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    """Create TABLE without rows, with the columns in a file.

    The file is Arrow or Parquet, of which only the schema is taken, or JSON whose name ends with .json: the
    schema as Spark and Delta write it, or an object with a type for each column, as in

    {"id": "int64 not null", "at": "timestamp", "price": "decimal(10,2)", "vector": "float[768]"}

    Types have the names of Arrow or of Spark. It goes through the log, its outcome is printed, and the exit
    code is 3 if it was refused, for instance because TABLE exists.
    """
    from lakefold.tables.functions import create_table
    from lakefold.tables.schema_texts import read_schema
    from lakefold.writing.options import settings_for

    write = settings_for(table, settings, wait_s=wait, commit_message=message, **given)
    outcome = create_table(settings, write, read_schema(file), if_not_exists=if_not_exists)
    if outcome is not None:
        print_outcome(outcome, as_json=as_json)
        exit_if_refused(context, outcome)
    elif as_json:
        print_json({"table": table, "outcome": None})
    else:
        print_line(f"{table} exists, nothing was sent")


def _pair_option(flag: str, shown: str, text: str, *name: str) -> Callable[[F], F]:
    return click.option(flag, *name, multiple=True, metavar=shown, callback=pairs, help=f"{text} Repeatable.")


@verb(
    "lakefold alter /data/days --set delta.enableTypeWidening=true",
    "lakefold alter /data/days --widen n=long --add note=string",
    "lakefold alter /data/days --set delta.columnMapping.mode=name",
    "lakefold alter /data/days --rename dep=departure --drop tail --json",
    "lakefold alter /data/flights --unset lakefold.isolation",
)
@click.argument("table")
@_pair_option("--add", "NAME=TYPE", "A new column, which is null in the rows that TABLE has.")
@_pair_option("--rename", "OLD=NEW", "A column's new name.")
@click.option("--drop", multiple=True, metavar="NAME", help="A column that goes. Repeatable.")
@_pair_option("--widen", "NAME=TYPE", "A column's wider type.")
@_pair_option("--set", "NAME=VALUE", "A property and its value.", "properties")
@click.option("--unset", multiple=True, metavar="NAME", help="A property that is removed. Repeatable.")
@key_options
@wait_option(or_log=True)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def alter(  # noqa: PLR0913 - click passes each option
    settings: Settings,
    table: str,
    *,
    add: dict[str, str] | None,
    rename: dict[str, str] | None,
    drop: tuple[str, ...],
    widen: dict[str, str] | None,
    properties: dict[str, str] | None,
    unset: tuple[str, ...],
    key: Key,
    written: dict[str, Any],
    wait: float,
    as_json: bool,
) -> None:
    """Change columns and properties of TABLE, all by one version.

    Types have the names of Arrow or of Spark. A Delta table needs delta.columnMapping.mode=name to rename or
    drop columns, and delta.enableTypeWidening=true for wider types; a Lance table's columns are written again
    for these. Properties of a Lance table, the keys of its configuration, are changed by a command of their
    own. Partition columns, keys, and columns that a constraint uses can't be dropped or renamed.

    It goes through the log, its outcome is printed, and the exit code is 3 if it was refused. With --app-id
    and --batch-id it is done once, however often the command is repeated.
    """
    from lakefold.tables.functions import alteration_of
    from lakefold.writing.dry_run import written as put
    from lakefold.writing.options import settings_for
    from lakefold_ingest.operations.alter import AlterTable

    if both := (properties or {}).keys() & {*unset}:
        raise click.UsageError(f"{min(both)} is set and unset; do one of both")
    alteration = alteration_of(add, rename, drop, widen, {**(properties or {}), **dict.fromkeys(unset)})
    write = settings_for(table, settings, wait_s=wait, **written)
    print_report(put(write, key, AlterTable(alteration), None), key, as_json=as_json)
