"""`lakefold append`: appends the rows of files to a table through the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.report import BatchReport

WAIT_S = 60.0
FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command(
    epilog=examples(
        "lakefold append /data/flights january.parquet february.parquet",
        "lakefold append /data/flights today.csv --app-id loader --batch-id 12",
        "lakefold append /data/flights events.jsonl --wait 5 --json",
        "lakefold append s3://lake/flights rows.arrow --wait 0",
    )
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@click.option("--app-id", help="The application that numbers its batches.")
@click.option(
    "--batch-id", type=click.IntRange(0, 2**64 - 1), help="The batch's number within the application."
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the outcome; 0 only waits until the brokers have stored the proposal.",
)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    app_id: str | None,
    batch_id: int | None,
    wait: float,
    as_json: bool,
) -> None:
    """Append the rows of Arrow, Parquet, CSV or JSON-lines files to TABLE, as one batch.

    The rows are written as Lance files by this process, then one transaction is sent, and its outcome is
    printed. If TABLE does not exist, it is created with the columns of the files. CSV and JSON columns are
    read with the types of the table.

    With --app-id and --batch-id the rows are added once, however often the command is repeated.
    """
    from lakefold.writing.files import file_rows
    from lakefold.writing.options import batch_key, settings_for
    from lakefold_ingest.operations.append import append_source
    from lakefold_ingest.rows.row_source import RowSource
    from lakefold_ingest.writing.batch import put_batch
    from lakefold_ingest.writing.view import read_view

    write_settings = settings_for(table, settings, wait_s=wait)
    key = batch_key(app_id, batch_id)
    view = read_view(write_settings.table, write_settings.storage_options)
    rows = file_rows(files, None if view is None else view.schema)
    print_report(put_batch(write_settings, key, append_source(RowSource(rows))), key, as_json=as_json)


def print_report(report: BatchReport, key: Key, *, as_json: bool) -> None:
    """Prints what became of a batch: one line of text, or one JSON document."""
    if not as_json:
        print_line(str(report))
        return
    print_json(
        {
            "kind": report.kind,
            "version": report.version,
            "rows_added": report.rows_added,
            "rows_deleted": report.rows_deleted,
            "attempts": report.attempts,
            "app_id": key.app_id or None,
            "batch_id": key.batch_id,
        }
    )
