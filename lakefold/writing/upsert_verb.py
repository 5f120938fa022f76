"""`lakefold upsert`: merges the rows of files into a table by their keys, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.writing.append_verb import print_report
from lakefold.writing.verb_options import FILE, key_options, merge_options, wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold.console.settings import Settings
    from lakefold_ingest.merge.clauses import Merge
    from lakefold_ingest.proposals.key import Key


@verb(
    "lakefold upsert /data/people changes.parquet --keys id",
    "lakefold upsert /data/people changes.jsonl --keys country,id --order-by changed_at",
    "lakefold upsert /data/people monday.csv --keys id --app-id loader --batch-id 12 --json",
    'lakefold upsert /data/people all.csv --keys id --when-matched-update "source.at > target.at" \\\n'
    "    --when-not-matched-insert true --when-not-matched-by-source-delete true",
)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE…")
@merge_options
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    merge: Merge,
    key: Key,
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

    If others change the same rows meanwhile, the upsert is built again by itself. With --app-id and
    --batch-id the rows are merged once, however often the command is repeated.
    """
    from lakefold.writing.files import rows_for
    from lakefold.writing.options import settings_for
    from lakefold_ingest.operations.upsert import UpsertRows
    from lakefold_ingest.writing.batch import put_batch

    write_settings = settings_for(table, settings, wait_s=wait)
    operation = UpsertRows(rows_for(write_settings, files).read_all(), merge)
    print_report(put_batch(write_settings, key, operation), key, as_json=as_json)
