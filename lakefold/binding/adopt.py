"""`lakefold adopt`: binds a table that is bound to no log to a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line

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
def command(
    settings: Settings, table: str, *, partition: int | None, unproven: bool, keep: bool, as_json: bool
) -> None:
    """Bind TABLE to a partition of the topic, and print the version that records it.

    Use it for a detached table, for a table whose marks were removed, and for a table of another Lance client
    if you want to choose its partition (without it, the first entry that is folded binds the table). Folding
    begins after the last entry that the committers of --group have answered in that partition.

    Marks that exist are kept, and with them the keys of the batches: a known batch is a Duplicate. If the
    marks were removed, an old batch that is sent again is folded again.
    """
    from lakefold.binding.rebinding import Consent, rebind_branches
    from lakefold_table.marks.marks import RebindReason
    from lakefold_table.uri import canonical

    uri = canonical(table)
    target = cluster_of(settings).target(uri, partition)
    options = settings.storage_options
    consent = Consent(unproven=unproven, dropped=keep)
    moves = rebind_branches(uri, options, RebindReason.ADOPTED, target, None, consent=consent)
    print_moved(uri, moves, as_json=as_json)


def cluster_of(settings: Settings) -> Cluster:
    """Returns the brokers, topics and consumer group that the settings name."""
    from lakefold.binding.rebinding import Cluster

    return Cluster(settings.kafka_config(), settings.topics(), settings.group)


def print_moved(uri: str, moves: Iterable[tuple[str, Moved]], *, as_json: bool) -> None:
    """Prints the new binding of each branch, each on a line."""
    for branch, moved in moves:
        if as_json:
            from lakefold_reader.as_json import plain_move

            table = {"table": uri, "branch": branch, "version": moved.version, "table_id": moved.table_id}
            print_json({**table, **plain_move(moved.move)})
        else:
            name = f"{uri} {branch}".rstrip()
            print_line(f"{name}: {moved.move.why} {moved.move}, in version {moved.version:,}")
