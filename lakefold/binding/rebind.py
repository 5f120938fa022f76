"""`lakefold rebind`: a table goes on in another partition, or in another log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.binding.adopt import PARTITION, UNANSWERED, cluster_of, print_moved
from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options

if TYPE_CHECKING:
    from lakefold.console.settings import Settings


@click.command(
    epilog=examples(
        "lakefold rebind /data/flights --partition 7",
        "lakefold rebind /data/flights --bootstrap-servers new-cluster:9092 --unanswered",
        "lakefold rebind /data/flights --restored",
        "lakefold rebind /data/flights --restored --fold-again",
    )
)
@click.argument("table")
@PARTITION
@UNANSWERED
@click.option(
    "--restored",
    is_flag=True,
    help="The table was set back to a backup: go on from what is there. What was folded since is lost.",
)
@click.option(
    "--fold-again",
    is_flag=True,
    help="With --restored: leave its position as it is, so that a committer of another group folds what came "
    "after it once more.",
)
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    partition: int | None,
    unanswered: bool,
    restored: bool,
    fold_again: bool,
    as_json: bool,
) -> None:
    """Bind TABLE and its branches to another partition, topic or cluster, and print the versions that say so.

    It goes on behind what the committers' group has answered there. Its keys stay what they were, so a batch
    that was folded is still a Duplicate. Refuses while entries wait for it in the log that it leaves. What is
    sent there later is answered Invalid; writers look up the partition when they start, so start them again.

    With --restored it stays where it is: a table that is behind what was reported of it isn't folded until
    somebody says that it is meant. Refuses where it isn't behind: there is nothing to accept then.
    """
    if fold_again and not restored:
        raise click.UsageError("--fold-again goes with --restored")
    if restored and partition is not None:
        raise click.UsageError("--restored leaves the table in its partition; leave --partition out")
    from lakefold.binding.bound_partition import bound_partition
    from lakefold.binding.rebinding import move_lines
    from lakefold_table.marks.marks import RebindReason
    from lakefold_table.uri import canonical

    uri, cluster = canonical(table), cluster_of(settings)
    if restored:
        partition = bound_partition(uri, settings.storage_options)
    there = cluster.there(uri, partition)
    why = RebindReason.RESTORED if restored else RebindReason.REBOUND
    asked = None if unanswered or restored else cluster
    witness = cluster.witness(there.position.log.partition) if restored else None
    options = settings.storage_options
    moves = move_lines(uri, options, why, there, asked, witness=witness, keeps_place=fold_again)
    print_moved(uri, moves, as_json=as_json)
