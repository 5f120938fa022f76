"""`lakefold delete`: deletes rows of a table by a predicate or by keys from files, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.writing.append_verb import print_report
from lakefold.writing.verb_options import FILE, columns_of, key_options, wait_option

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold.console.settings import Settings
    from lakefold_ingest.proposals.key import Key


@verb(
    "lakefold delete /data/people --where \"country = 'XX'\"",
    "lakefold delete /data/people --keys id forgotten.csv",
    "lakefold delete /data/people --keys id forgotten.csv --app-id gdpr --batch-id 3 --json",
)
@click.argument("table")
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE…]")
@click.option("--where", metavar="PREDICATE", help="SQL: the rows for which it holds are deleted.")
@click.option("--keys", default="", metavar="A,B", help="The columns whose values in the files are deleted.")
@key_options
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    files: tuple[Path, ...],
    where: str | None,
    keys: str,
    key: Key,
    wait: float,
    as_json: bool,
) -> None:
    """Delete the rows of TABLE for which a predicate holds, or whose keys are in files, as one batch.

    Give --where, or --keys with Arrow, Parquet, CSV or JSON-lines files that have these columns. The rows are
    marked as deleted; their bytes leave the data files with the next compaction. Rows that others add while
    the delete is built stay.
    """
    from lakefold.writing.delete import delete_operation
    from lakefold.writing.files import rows_for
    from lakefold.writing.options import settings_for
    from lakefold_ingest.writing.batch import put_batch

    write_settings = settings_for(table, settings, wait_s=wait)
    rows = rows_for(write_settings, files) if files else None
    operation = delete_operation(where, columns_of(keys), rows)
    print_report(put_batch(write_settings, key, operation), key, as_json=as_json)
