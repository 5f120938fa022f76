"""`lakefold apply-changes`: applies the change events of files to a table, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.writing.append_verb import print_report
from lakefold.writing.verb_options import FILE, columns_of, key_options, pairs_option, wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold.console.settings import Settings
    from lakefold_ingest.proposals.key import Key


@verb(
    "lakefold apply-changes /data/people changes.parquet --keys id --operation-column op --order-by at",
    "lakefold apply-changes /data/people monday.csv --keys id --operation-column op \\\n"
    "    --operations I=upsert,D=delete --app-id loader --batch-id 12",
    "lakefold apply-changes /data/people messages.jsonl --keys id --envelope debezium \\\n"
    "    --order-by source.lsn",
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@click.option("--keys", required=True, metavar="A,B", help="The columns that identify a row.")
@click.option(
    "--order-by",
    default="",
    metavar="A,B",
    help="The columns that order the events, or fields of their envelope; without them the last row counts.",
)
@click.option(
    "--operation-column",
    metavar="A",
    help="The column that says whether a row is inserted, updated or deleted; the others are the row.",
)
@pairs_option(
    "--operations",
    metavar="VALUE=upsert,…",
    text="What the values of the operation column mean: upsert, delete.",
)
@click.option(
    "--envelope",
    type=click.Choice(["debezium", "delta", "lakefold"], case_sensitive=False),
    help="Instead of an operation column: events of Debezium, or the change feed of a table.",
)
@pairs_option(
    "--debezium-types",
    metavar="COLUMN=TYPE,…",
    text="The columns that Debezium sends in another type, if the messages have no schemas: Date, "
    "MicroTimestamp, ZonedTimestamp, Decimal(2), …",
)
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(  # noqa: PLR0913 - click passes each option
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    keys: str,
    order_by: str,
    operation_column: str | None,
    operations: dict[str, str],
    envelope: str | None,
    debezium_types: dict[str, str],
    key: Key,
    wait: float,
    as_json: bool,
) -> None:
    """Apply the change events in the files to TABLE, as one batch: the last event of each key counts.

    The files are Arrow, Parquet, CSV or JSON lines, read with the types of the table. With --envelope
    debezium each JSON line is a message as Debezium writes it; TABLE must exist then.

    If TABLE has the columns of --order-by, an event that is older than the row in the table has no effect.
    With --app-id and --batch-id the events are applied once, however often the command is repeated.
    """
    from lakefold.writing.files import messages_or_rows
    from lakefold.writing.options import settings_for
    from lakefold_ingest.cdc.change_format import change_format
    from lakefold_ingest.operations.apply_changes import ApplyChanges
    from lakefold_ingest.writing.batch import put_batch

    order = columns_of(order_by)
    format_ = change_format(columns_of(keys), order, envelope, operation_column, operations, debezium_types)
    write_settings = settings_for(table, settings, wait_s=wait)
    rows = messages_or_rows(write_settings, files, are_messages=envelope == "debezium")
    print_report(put_batch(write_settings, key, ApplyChanges(rows, format_)), key, as_json=as_json)
