"""The verbs that write the rows of files into a table through the log: `append`, `upsert` and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line
from lakefold.writing.verb_options import FILE, key_options, merge_given, option_flags, wait_option
from lakefold_ingest.options.write_options import CLAUSES

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
    "lakefold append /data/new rows.parquet --format delta --property delta.enableDeletionVectors=true",
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@option_flags("mergeSchema", "format", "partitionBy", "tableProperties", "sortBy", into="written")
@key_options
@wait_option(or_log=True)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def append(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    key: Key,
    written: dict[str, Any],
    wait: float,
    as_json: bool,
) -> None:
    """Append the rows of Arrow, Parquet, CSV or JSON-lines files to TABLE, as one batch.

    The rows are written as data files of TABLE's format by this process, then one proposal is sent, and its
    outcome is printed. If TABLE does not exist, it is created with the columns of the files, once their first
    64 MiB of rows fit. CSV and JSON columns are read with the types of the table. Whole numbers that would
    be other ones in a column of floats are refused.

    With --app-id and --batch-id the rows are added once, however often the command is repeated.
    """
    from lakefold.writing.dry_run import written as write
    from lakefold.writing.files import rows_for
    from lakefold.writing.options import settings_for
    from lakefold_ingest.operations.append import append_source
    from lakefold_ingest.rows.row_source import RowSource

    write_settings = settings_for(table, settings, wait_s=wait, **written)
    rows = RowSource(rows_for(write_settings, files), checks=key.batch_id is not None)
    report = write(write_settings, key, append_source(rows), rows)
    print_report(report, key, as_json=as_json)


@verb(
    "lakefold upsert /data/people changes.parquet --keys id",
    "lakefold upsert /data/people changes.jsonl --keys country,id --order-by changed_at",
    "lakefold upsert /data/people monday.csv --keys id --app-id loader --batch-id 12 --json",
    'lakefold upsert /data/people all.csv --keys id --when-matched-update "source.at > target.at" \\\n'
    "    --when-not-matched-insert true --when-not-matched-by-source-delete true",
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@option_flags("keys", "orderBy", *(clause.name for clause in CLAUSES), into="merge", required=("keys",))
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def upsert(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    merge: dict[str, Any],
    key: Key,
    written: dict[str, Any],
    wait: float,
    as_json: bool,
) -> None:
    """Update the rows of TABLE whose keys are in the files, and insert the others, as one batch.

    The files are Arrow, Parquet, CSV or JSON lines, read with the types of the table. Columns that they don't
    have keep their values in updated rows and are null in inserted ones. If TABLE does not exist, it is
    created with the columns of the files.

    The --when-… options say what happens to which rows, as the clauses of a MERGE: SQL in which source.x is
    column x of the files and target.x column x of the table, or true. If one is given, only what is given is
    done.

    If others change the same rows meanwhile, the upsert is built again automatically. With --app-id and
    --batch-id the rows are merged once, however often the command is repeated.
    """
    from lakefold.writing.dry_run import written as write
    from lakefold.writing.files import rows_for
    from lakefold.writing.options import settings_for
    from lakefold_ingest.operations.upsert import UpsertRows
    from lakefold_ingest.rows.row_source import RowSource

    given = merge_given(merge)
    write_settings = settings_for(table, settings, wait_s=wait, **written)
    rows = RowSource(rows_for(write_settings, files), checks=key.batch_id is not None)
    report = write(write_settings, key, UpsertRows(rows.table(), given), rows)
    print_report(report, key, as_json=as_json)


@verb(
    "lakefold delete /data/people --where \"country = 'XX'\"",
    "lakefold delete /data/people --keys id forgotten.csv",
    "lakefold delete /data/people --keys id forgotten.csv --app-id gdpr --batch-id 3 --json",
)
@click.argument("table")
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE…]")
@click.option("--where", metavar="PREDICATE", help="SQL: the rows for which it holds are deleted.")
@option_flags("keys", into="by")
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def delete(  # noqa: PLR0913 - click passes each option
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    where: str | None,
    by: dict[str, Any],
    key: Key,
    written: dict[str, Any],
    wait: float,
    as_json: bool,
) -> None:
    """Delete the rows of TABLE for which a predicate holds, or whose keys are in files, as one batch.

    Give --where, or --keys with Arrow, Parquet, CSV or JSON-lines files that have these columns. The rows are
    marked as deleted; their bytes leave the data files with the next compaction. Rows that others add while
    the delete is built stay.
    """
    from lakefold.writing.dry_run import written as write
    from lakefold.writing.files import rows_for
    from lakefold.writing.functions import delete_operation
    from lakefold.writing.options import settings_for
    from lakefold_ingest.rows.row_source import RowSource

    write_settings = settings_for(table, settings, wait_s=wait, **written)
    given = rows_for(write_settings, files) if files else None
    rows = None if given is None else RowSource(given, checks=key.batch_id is not None)
    operation = delete_operation(where, by.get("keys", ()), rows)
    print_report(write(write_settings, key, operation, rows), key, as_json=as_json)


@verb(
    "lakefold apply-changes /data/people changes.parquet --keys id --operation-column op --order-by at",
    "lakefold apply-changes /data/people monday.csv --keys id --operation-column op \\\n"
    "    --operations I=upsert,D=delete --app-id loader --batch-id 12",
    "lakefold apply-changes /data/people messages.jsonl --keys id --envelope debezium \\\n"
    "    --order-by source.lsn",
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@option_flags(
    *("keys", "orderBy", "operationColumn", "operations", "envelope", "debeziumTypes"),
    into="changes",
    required=("keys",),
)
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def apply_changes(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    changes: dict[str, Any],
    key: Key,
    written: dict[str, Any],
    wait: float,
    as_json: bool,
) -> None:
    """Apply the change events in the files to TABLE, as one batch: the last event of each key counts.

    The files are Arrow, Parquet, CSV or JSON lines, read with the types of the table. With --envelope
    debezium each JSON line is a message as Debezium writes it; TABLE must exist then.

    If TABLE has the columns of --order-by, an event that is older than the row in the table has no effect.
    With --app-id and --batch-id the events are applied once, however often the command is repeated.
    """
    from lakefold.writing.dry_run import written as write
    from lakefold.writing.files import messages_or_rows
    from lakefold.writing.options import settings_for
    from lakefold_ingest.cdc.change_format import change_format
    from lakefold_ingest.operations.apply_changes import ApplyChanges
    from lakefold_ingest.rows.row_source import RowSource

    format_ = change_format(changes.pop("keys", None), **changes)
    write_settings = settings_for(table, settings, wait_s=wait, **written)
    events = messages_or_rows(write_settings, files, are_messages=changes.get("envelope") == "debezium")
    rows = RowSource(events, checks=key.batch_id is not None)
    report = write(write_settings, key, ApplyChanges(rows.table(), format_), rows)
    print_report(report, key, as_json=as_json)


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
