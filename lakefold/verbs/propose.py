"""`lakefold propose`: one transaction into the log by hand, to try things or to send what a tool wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefold.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.outcomes import print_outcome
from lakefold.output import print_json
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope

REFUSED = 3


@click.command(
    epilog=examples(
        "lakefold propose /data/flights --transaction 7-0f3c….txn --wait 10",
        "lakefold propose /data/flights --transaction batch.txn --app-id loader --batch-id 12",
        "lakefold propose /data/new --transaction empty-overwrite.txn --create --wait 10",
    )
)
@click.argument("table")
@click.option(
    "--transaction",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file that holds one Lance Transaction message, as in _transactions/*.txn.",
)
@click.option("--app-id", default="", help="The application that numbers its batches.")
@click.option(
    "--batch-id", type=click.IntRange(0, 2**64 - 1), help="The batch's number within the application."
)
@click.option("--create", is_flag=True, help="The transaction (an Overwrite) creates the table.")
@click.option("--wait", type=click.FloatRange(0), help="Wait up to so many seconds and print the outcome.")
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - one parameter for each option
    context: click.Context,
    settings: Settings,
    table: str,
    transaction: Path,
    *,
    app_id: str,
    batch_id: int | None,
    create: bool,
    wait: float | None,
    as_json: bool,
) -> None:
    """Send the transaction in a file to the log as a proposal for TABLE.

    Prints its position once the broker has it; with --wait its outcome, and exit code 3 where it was refused.
    Sending the same key again is safe: it gives Duplicate.
    """
    if bool(app_id) != (batch_id is not None):
        message = "--app-id and --batch-id go together"
        raise click.UsageError(message)
    from lakefold_log.admin import KafkaConfig
    from lakefold_log.outcomes import OutcomeWaiter
    from lakefold_log.producer import Proposer
    from lakefold_log.topics import Topics

    envelope = _envelope(table, transaction, create=create)
    if batch_id is not None:
        envelope.app_id, envelope.batch_id = app_id, batch_id
    partition = _bound_partition(envelope.table, settings)
    config = KafkaConfig(settings.brokers(), settings.kafka)
    topics = Topics(settings.transactions_topic, settings.outcomes_topic, settings.dead_letters_topic)
    with Proposer(config, topics) as proposer:
        if wait is None:
            position = proposer.send_wait(envelope, partition)
            _print_position(position.topic, position.log.partition, position.offset, as_json=as_json)
            return
        with OutcomeWaiter(config, topics, envelope.table, partition=partition) as waiter:
            outcome = waiter.wait(proposer.send_wait(envelope, partition), wait)
    print_outcome(outcome, as_json=as_json)
    if isinstance(outcome.result, Rejected | Invalid):
        context.exit(REFUSED)


def _envelope(table: str, file: Path, *, create: bool) -> Envelope:
    from google.protobuf.message import DecodeError

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.uri import canonical

    try:
        transaction = Transaction.FromString(file.read_bytes())
    except DecodeError as error:
        message, hint = (
            f"the file holds no Lance Transaction: {error}",
            "give a file as in a table's _transactions/",
        )
        raise InvalidError(message, where=str(file), hint=hint) from error
    envelope = Envelope(table=canonical(table), lance=transaction)
    if create:
        envelope.create.SetInParent()
    return envelope


def _bound_partition(uri: str, settings: Settings) -> int | None:
    """The partition that the table's marks name; None where it is not bound yet."""
    from lakefold_committer.opening import open_table
    from lakefold_table.lance.table import LanceFormat
    from lakefold_table.storage import open_storage
    from lakefold_table.versions import Versions

    table_format = LanceFormat()
    versions = Versions(open_storage(uri, settings.storage_options), table_format.folder, table_format.detect)
    position = open_table(table_format, versions, uri).marks.position
    return None if position is None else position.log.partition


def _print_position(topic: str, partition: int, offset: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "partition": partition, "offset": offset})
    else:
        click.echo(f"in the log at {topic}/{partition}@{offset}")
