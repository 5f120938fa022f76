"""`lakefold propose`: sends a transaction to the log, for trials and for transactions of other tools."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import exit_if_refused, print_outcome
from lakefold.console.output import print_json, print_line
from lakefold_table.errors import InvalidError
from lakefold_table.storage.os_errors import failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold.console.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope

FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
FOR_DELTA = (
    "read_version",
    "read_table",
    "read_files",
    "read_predicates",
    "read_app_ids",
    "operation",
    "isolation",
)
REPEATED = {"read_files": "--read-file", "read_predicates": "--read-where", "read_app_ids": "--read-app-id"}
FOR_LANCE = (
    "branch",
    "fragment_reuse_index",
    "create",
    "stable_row_ids",
    "data_storage_version",
    "v1_manifest_paths",
)


@verb(
    "lakefold propose /data/flights --transaction 7-0f3c….txn --wait 10",
    "lakefold propose /data/flights --transaction batch.txn --app-id loader --batch-id 12",
    "lakefold propose /data/new --transaction empty-overwrite.txn --create --stable-row-ids --wait 10",
    "echo '{\"0\": [3, 17]}' > rows.json",
    "lakefold propose /data/flights --transaction delete.txn --affected-rows rows.json --wait 10",
    "lakefold propose /data/flights --transaction append.txn --branch audit --wait 10",
    "lakefold propose /data/flights --transaction append.txn --into proposals.bin",
    "lakefold propose /data/events --actions create.json --operation 'CREATE TABLE' --wait 10",
    "lakefold propose /data/events --actions delete.json --read-version 12 --read-table --wait 10",
    "echo '{\"part-0.parquet\": [3, 17]}' > rows.json",
    "lakefold propose /data/events --actions delete.json --read-version 12 --affected-rows rows.json",
    "lakefold fold /data/flights proposals.bin --dry-run",
)
@click.argument("table")
@click.option(
    "--transaction", type=FILE, help="A file with one Lance Transaction message, as in _transactions/*.txn."
)
@click.option(
    "--actions",
    type=FILE,
    help="For a Delta table: a file of actions, a JSON object on each line, as in a commit.",
)
@click.option(
    "--read-version",
    type=click.IntRange(0, 2**63 - 1),
    help="With --actions: the version that the actions were made for. Without it they depend on none, as "
    "rows that are only added.",
)
@click.option("--read-table", is_flag=True, help="With --actions: all rows of that version were read.")
@click.option(
    "--read-file",
    "read_files",
    multiple=True,
    metavar="PATH",
    help="With --actions: a data file of that version that was read, as its add action names it; repeatable.",
)
@click.option(
    "--read-where",
    "read_predicates",
    multiple=True,
    metavar="CONDITION",
    help="With --actions: a condition in SQL by which rows of that version were read; repeatable.",
)
@click.option(
    "--read-app-id",
    "read_app_ids",
    multiple=True,
    metavar="ID",
    help="With --actions: an application whose last batch in that version was read; repeatable.",
)
@click.option(
    "--operation", default="", help="With --actions: the operation, such as DELETE.  [default: WRITE]"
)
@click.option(
    "--isolation",
    type=click.Choice(["serializable", "write-serializable"]),
    help="With --actions: the isolation level.  [default: the table's]",
)
@click.option("--branch", default="", metavar="NAME", help="The branch to change.  [default: main]")
@click.option(
    "--table-id",
    default="",
    metavar="ID",
    help="The id of the table or branch that the change was made for, as `lakefold show` prints it. If the "
    "table was removed and made anew since, the proposal is refused.",
)
@click.option("--app-id", default="", help="The application that sends numbered batches.")
@click.option(
    "--batch-id", type=click.IntRange(0, 2**64 - 1), help="The batch's number within the application."
)
@click.option(
    "--affected-rows",
    type=FILE,
    help="A JSON file of the rows that a Delete or Update removes: fragment ids (for a Delta table paths of "
    "data files) with lists of physical row offsets. Without it, the proposal is refused if another one has "
    "changed the same fragments or files meanwhile.",
)
@click.option(
    "--fragment-reuse-index",
    type=FILE,
    help="A file with the IndexMetadata message that a compaction with deferred index remapping adds.",
)
@click.option("--create", is_flag=True, help="The transaction (an Overwrite) creates the table.")
@click.option("--stable-row-ids", is_flag=True, help="With --create: rows keep their ids when they move.")
@click.option("--data-storage-version", default="", help="With --create: the files' format, such as 2.1.")
@click.option("--v1-manifest-paths", is_flag=True, help="With --create: name manifests as old clients do.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Send nothing; append the envelope to this file, for `lakefold fold`.",
)
@click.option("--wait", type=click.FloatRange(0), help="Seconds to wait for the outcome, which is printed.")
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    *,
    into: Path | None,
    wait: float | None,
    as_json: bool,
    **given: Any,  # noqa: ANN401 - what the envelope is made of, each option by its name
) -> None:
    """Send the transaction, or the actions, in a file to the log as a proposal for TABLE.

    Tables of Lance are changed by a transaction (--transaction), tables of Delta by actions (--actions). A
    proposal for a table of the other format is refused.

    When the broker has stored it, its position in the log is printed; with --wait its outcome, and the exit
    code is 3 if it was refused. Sending the same key again is safe: the answer is Duplicate.

    A transaction's file is as pylance writes it to _transactions/. Three things are not in such a file: the
    rows that a Delete or Update affects (--affected-rows), the fragment-reuse index of a compaction
    (--fragment-reuse-index), and the schema's metadata in an Overwrite (fill in Overwrite.schema_metadata, or
    the table has none afterwards).
    """
    if into is not None and wait is not None:
        raise click.UsageError("--into sends nothing, so there is no outcome to wait for; leave --wait out")
    envelope = _envelope(table, given)
    if into is not None:
        offset = _write(envelope, into)
        if as_json:
            print_json({"file": str(into), "offset": offset})
        else:
            print_line(f"written to {into} at offset {offset}")
        return
    from lakefold.proposals.logged_proposal import send

    sent = send(settings, envelope, wait)
    if sent.outcome is None:
        position = sent.position
        _print_position(position.topic, position.log.partition, position.offset, as_json=as_json)
        return
    print_outcome(sent.outcome, as_json=as_json)
    exit_if_refused(context, sent.outcome)


def _envelope(table: str, given: Mapping[str, Any]) -> Envelope:
    """Returns the envelope that the options describe."""
    if bool(given["app_id"]) != (given["batch_id"] is not None):
        raise click.UsageError("--app-id and --batch-id must be given together")
    _check_format(given)
    options = {name: given[name] for name in ("stable_row_ids", "data_storage_version", "v1_manifest_paths")}
    if any(options.values()) and not given["create"]:
        raise click.UsageError(
            "--stable-row-ids, --data-storage-version and --v1-manifest-paths need --create"
        )
    from lakefold.proposals.envelopes import (
        add_affected_rows,
        add_reuse_index,
        add_rows_of_files,
        delta_envelope,
        envelope_of,
    )
    from lakefold_protos.lakefold.log_pb2 import CreateOptions

    if given["actions"] is None:
        envelope = envelope_of(table, given["transaction"], given["branch"])
    else:
        envelope = delta_envelope(table, given["actions"], {name: given[name] for name in FOR_DELTA})
    envelope.table_id = given["table_id"]
    if given["batch_id"] is not None:
        envelope.app_id, envelope.batch_id = given["app_id"], given["batch_id"]
    if given["affected_rows"] is not None:
        add = add_affected_rows if given["actions"] is None else add_rows_of_files
        add(envelope, given["affected_rows"])
    if given["fragment_reuse_index"] is not None:
        add_reuse_index(envelope, given["fragment_reuse_index"])
    if given["create"]:
        envelope.create.CopyFrom(CreateOptions(**options))
    return envelope


def _check_format(given: Mapping[str, Any]) -> None:
    """Raises `UsageError` unless the options are those of one format."""
    if (given["transaction"] is None) is (given["actions"] is None):
        raise click.UsageError("give either --transaction or --actions")
    other, needs = (FOR_DELTA, "--actions") if given["actions"] is None else (FOR_LANCE, "--transaction")
    wrong = next((name for name in other if given[name] not in (None, "", False, ())), None)
    if wrong is not None:
        option = REPEATED.get(wrong, f"--{wrong.replace('_', '-')}")
        raise click.UsageError(f"{option} needs {needs}")


def _write(envelope: Envelope, file: Path) -> int:
    """Appends the envelope to a file log with the current time. Returns its offset."""
    from lakefold_log.read.file_log import framed, read_file_log

    offset, size = (len(read_file_log(file)), file.stat().st_size) if file.exists() else (0, 0)
    envelope.proposed_at.GetCurrentTime()
    try:
        with file.open("ab") as log:
            log.write(framed([envelope]))
    except FileNotFoundError as error:
        hint = "create the folder, or name another one"
        raise InvalidError("the folder does not exist", where=str(file.parent), hint=hint) from error
    except OSError as error:
        # An incomplete envelope would make the whole file unreadable.
        with suppress(OSError):
            os.truncate(file, size)
        raise failure(error, str(file)) from error
    return offset


def _print_position(topic: str, partition: int, offset: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "partition": partition, "offset": offset})
    else:
        print_line(f"stored in the log at {topic}/{partition}@{offset}")
