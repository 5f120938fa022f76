"""`lakefold upsert`: merges the rows of files into a table by their keys, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.writing.append_verb import print_report
from lakefold.writing.verb_options import FILE, key_options, wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold.console.settings import Settings
    from lakefold_ingest.proposals.key import Key


@click.command(
    epilog=examples(
        "lakefold upsert /data/people changes.parquet --keys id",
        "lakefold upsert /data/people changes.jsonl --keys country,id --order-by changed_at",
        "lakefold upsert /data/people monday.csv --keys id --app-id loader --batch-id 12 --json",
    )
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@click.option("--keys", required=True, metavar="A,B", help="The columns by which rows are the same.")
@click.option(
    "--order-by",
    metavar="A,B",
    help="The columns that order the rows of one key: the last row counts. They may be missing in the table.",
)
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    keys: str,
    order_by: str | None,
    key: Key,
    wait: float,
    as_json: bool,
) -> None:
    """Update the rows of TABLE whose keys are in the files, and insert the others, as one batch.

    The files are Arrow, Parquet, CSV or JSON lines, read with the types of the table. Columns that they don't
    have keep their values in updated rows and are null in inserted ones. If TABLE does not exist, it is
    created with the columns of the files.

    If others change the same rows meanwhile, the upsert is built again by itself. With --app-id and
    --batch-id the rows are merged once, however often the command is repeated.
    """
    from lakefold.writing.files import rows_for
    from lakefold.writing.options import settings_for
    from lakefold_ingest.merge.clauses import Merge
    from lakefold_ingest.operations.upsert import UpsertRows
    from lakefold_ingest.writing.batch import put_batch

    write_settings = settings_for(table, settings, wait_s=wait)
    merge = Merge(columns_of(keys), columns_of(order_by or ""))
    operation = UpsertRows(rows_for(write_settings, files).read_all(), merge)
    print_report(put_batch(write_settings, key, operation), key, as_json=as_json)


def columns_of(names: str) -> tuple[str, ...]:
    """Returns the columns that an option names, separated by commas."""
    return tuple(filter(None, (name.strip() for name in names.split(","))))
