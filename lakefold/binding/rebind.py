"""`lakefold rebind`: binds a table to another partition, topic or cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.binding.adopt import PARTITION, UNANSWERED, cluster_of, print_moved
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb

if TYPE_CHECKING:
    from lakefold.console.settings import Settings


@verb(
    "lakefold rebind /data/flights --partition 7",
    "lakefold rebind /data/flights --bootstrap-servers new-cluster:9092 --unanswered",
    "lakefold rebind /data/flights --restored",
    "lakefold rebind /data/flights --restored --fold-again",
)
@click.argument("table")
@PARTITION
@UNANSWERED
@click.option(
    "--restored",
    is_flag=True,
    help="Accept that the table was restored to an earlier copy: continue from it. Entries that were folded "
    "after that copy was made are lost.",
)
@click.option(
    "--fold-again",
    is_flag=True,
    help="With --restored: keep the position in the table, so that a committer of a new --group folds the "
    "lost entries again.",
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
    """Bind TABLE and its branches to another partition, topic or cluster, and print the new versions.

    Folding begins after the last entry that the committers of --group have answered there. The keys stay, so
    a batch that was folded before is still a Duplicate. It is refused while entries wait for the table in its
    old partition. Proposals that are sent there later are answered Invalid. Writers look up the partition
    when they start, so restart them.

    With --restored the binding stays. It is for a table that was restored to an earlier copy: committers
    don't fold into a table that is older than what they have reported until this accepts it. It is refused if
    the table isn't older.
    """
    if fold_again and not restored:
        raise click.UsageError("--fold-again can only be used with --restored")
    if restored and partition is not None:
        raise click.UsageError("--restored leaves the table in its partition; leave --partition out")
    from lakefold.binding.bound_partition import bound_partition
    from lakefold.binding.rebinding import rebind_branches
    from lakefold_table.marks.marks import RebindReason
    from lakefold_table.uri import canonical

    uri, cluster = canonical(table), cluster_of(settings)
    if restored:
        partition = bound_partition(uri, settings.storage_options)
    target = cluster.target(uri, partition)
    why = RebindReason.RESTORED if restored else RebindReason.REBOUND
    checked = None if unanswered or restored else cluster
    reported = cluster.reported_versions(target.position.log.partition) if restored else None
    options = settings.storage_options
    moves = rebind_branches(uri, options, why, target, checked, reported=reported, keeps_position=fold_again)
    print_moved(uri, moves, as_json=as_json)
