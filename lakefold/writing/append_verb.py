"""`lakefold append`: appends the rows of files to a table through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line
from lakefold.writing.verb_options import FILE, MERGE_SCHEMA, key_options, layout_options, wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold.console.settings import Settings
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.report import BatchReport


@verb(
    "lakefold append /data/flights january.parquet february.parquet",
    "lakefold append /data/flights today.csv --app-id loader --batch-id 12",
    "lakefold append /data/flights events.jsonl --wait 5 --json",
    "lakefold append s3://lake/flights rows.arrow --wait 0",
    "lakefold append /data/flights wider.parquet --merge-schema",
    "lakefold append /data/new rows.parquet --format delta --partition-by day --sort-by at",
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@MERGE_SCHEMA
@layout_options
@key_options
@wait_option(or_log=True)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    key: Key,
    wait: float,
    merge_schema: bool,
    layout: dict[str, Any],
    as_json: bool,
) -> None:
    """Append the rows of Arrow, Parquet, CSV or JSON-lines files to TABLE, as one batch.

    The rows are written as data files of TABLE's format by this process, then one proposal is sent, and its
    outcome is printed. If TABLE does not exist, it is created with the columns of the files. CSV and JSON
    columns are read with the types of the table.

    With --app-id and --batch-id the rows are added once, however often the command is repeated.
    """
    from lakefold.writing.files import rows_for
    from lakefold.writing.options import settings_for
    from lakefold_ingest.operations.append import append_source
    from lakefold_ingest.rows.row_source import RowSource
    from lakefold_ingest.writing.batch import put_batch

    write_settings = settings_for(table, settings, wait_s=wait, merge_schema=merge_schema, **layout)
    rows = rows_for(write_settings, files)
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
