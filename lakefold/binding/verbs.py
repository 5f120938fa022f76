"""The verbs that change to which log a table is bound: `adopt`, `rebind` and `detach`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line, table_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold.binding.rebinding import Cluster
    from lakefold.console.settings import Settings
    from lakefold_committer.tables.rebinding import Moved


PARTITION = click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="The partition of the topic.  [default: the one that the table's URI hashes to]",
)
UNANSWERED = click.option(
    "--unanswered",
    is_flag=True,
    help="Don't check the old log for waiting entries. Those entries are given up and answered Invalid.",
)


@verb(
    "lakefold adopt /data/flights",
    "lakefold adopt /data/flights --partition 3",
    "lakefold adopt /data/flights --unproven",
)
@click.argument("table")
@PARTITION
@click.option(
    "--unproven",
    is_flag=True,
    help="Accept the marks of the newest version although the versions that could confirm them were removed.",
)
@click.option("--keep", is_flag=True, help="Keep a table whose `lakefold drop` was interrupted.")
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def adopt(
    settings: Settings, table: str, *, partition: int | None, unproven: bool, keep: bool, as_json: bool
) -> None:
    """Bind TABLE to a partition of the topic, and print the version that records it.

    Use it for a detached table, for a table whose marks were removed, and for a table of another Lance client
    if you want to choose its partition (without it, the first entry that is folded binds the table). Folding
    begins after the last entry that the committers of --group have answered in that partition.

    Marks that exist are kept, and with them the keys of the batches: a known batch is a Duplicate. If the
    marks were removed, an old batch that is sent again is folded again.
    """
    from lakefold.binding.drop_table import removal_stopped
    from lakefold.binding.rebinding import Override, rebind_branches
    from lakefold_table.marks.marks import RebindReason

    address = settings.address_of(table)
    target = cluster_of(settings).target(address.uri, partition)
    override = Override(unproven=unproven, dropped=keep)
    with removal_stopped(address) if keep else nullcontext():
        moves = rebind_branches(address, RebindReason.ADOPTED, target, None, override=override)
        print_moved(address.uri, moves, as_json=as_json)


def cluster_of(settings: Settings) -> Cluster:
    """Returns the brokers, topics and consumer group that the settings name."""
    from lakefold.binding.rebinding import Cluster

    return Cluster(settings.kafka_config(), settings.topics(), settings.group)


def print_moved(uri: str, moves: Iterable[tuple[str, Moved]], *, as_json: bool) -> None:
    """Prints the new binding of each branch, each on a line."""
    for branch, moved in moves:
        if as_json:
            from lakefold_reader.as_json import plain_move

            table = {
                "table": uri,
                "format": moved.format,
                "branch": branch,
                "version": moved.version,
                "table_id": moved.table_id,
            }
            print_json({**table, **plain_move(moved.move)})
        else:
            name = table_text(f"{uri} {branch}".rstrip(), moved.format)
            print_line(f"{name}: {moved.move.why} {moved.move}, in version {moved.version:,}")


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
def rebind(
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

    address, cluster = settings.address_of(table), cluster_of(settings)
    if restored:
        partition = bound_partition(address)
    target = cluster.target(address.uri, partition)
    why = RebindReason.RESTORED if restored else RebindReason.REBOUND
    checked = None if unanswered or restored else cluster
    reported = cluster.reported_versions(target.position.log.partition) if restored else None
    moves = rebind_branches(address, why, target, checked, reported=reported, keeps_position=fold_again)
    print_moved(address.uri, moves, as_json=as_json)


@verb(
    "lakefold detach /data/flights",
    "lakefold detach /data/flights --unanswered",
    "lakefold detach /data/flights && lakefold drop /data/flights --yes",
)
@click.argument("table")
@UNANSWERED
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def detach(settings: Settings, table: str, *, unanswered: bool, as_json: bool) -> None:
    """End the binding of TABLE and its branches to their log, and print the versions that record it.

    It is refused while entries wait for the table. Proposals that are sent to it later are answered Invalid,
    until `lakefold adopt` binds it again. Its rows, versions and keys stay, and any Lance client may write to
    it. Committers need no restart. With --unanswered, no broker is needed.
    """
    from lakefold.binding.rebinding import rebind_branches
    from lakefold_table.marks.marks import RebindReason

    address = settings.address_of(table)
    cluster = None if unanswered else cluster_of(settings)
    moves = rebind_branches(address, RebindReason.DETACHED, None, cluster)
    print_moved(address.uri, moves, as_json=as_json)
