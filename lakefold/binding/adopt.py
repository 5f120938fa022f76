"""`lakefold adopt`: a table that follows no log is bound to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold.binding.rebinding import Cluster
    from lakefold.console.settings import Settings
    from lakefold_committer.tables.rebinding import Moved

PARTITION = click.option(
    "--partition",
    type=click.IntRange(min=0),
    help="The partition of the topic.  [default: the one that the table's name is hashed to]",
)
UNANSWERED = click.option(
    "--unanswered",
    is_flag=True,
    help="Don't ask the log that it leaves: what waits there for it is given up, and answered Invalid.",
)


@click.command(
    epilog=examples(
        "lakefold adopt /data/flights",
        "lakefold adopt /data/flights --partition 3",
        "lakefold adopt /data/flights --unproven",
    )
)
@click.argument("table")
@PARTITION
@click.option(
    "--unproven",
    is_flag=True,
    help="The versions that prove the table's marks are gone: take the marks as the newest version has them.",
)
@click.option(
    "--keep", is_flag=True, help="`lakefold drop` of this table was cut short: keep the table after all."
)
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def command(
    settings: Settings, table: str, *, partition: int | None, unproven: bool, keep: bool, as_json: bool
) -> None:
    """Bind TABLE to a partition of the topic, and print the version that says so.

    For a table of another client's, a detached one, and one whose marks were wiped. It goes on behind what
    the committers' group has answered in that partition. A table of another client's needs no adopting: the
    first entry that is folded binds it too; this says where beforehand. Where marks are left they stay, and
    with them the keys: a batch that they know is a Duplicate. Where they were wiped, an old batch that is
    sent again is folded again.
    """
    from lakefold.binding.rebinding import Consent, move_lines
    from lakefold_table.marks.marks import RebindReason
    from lakefold_table.uri import canonical

    uri = canonical(table)
    there = cluster_of(settings).there(uri, partition)
    options = settings.storage_options
    consent = Consent(unproven=unproven, dropped=keep)
    moves = move_lines(uri, options, RebindReason.ADOPTED, there, None, consent=consent)
    print_moved(uri, moves, as_json=as_json)


def cluster_of(settings: Settings) -> Cluster:
    """The brokers, topics and group that the settings name."""
    from lakefold.binding.rebinding import Cluster
    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics

    topics = Topics(settings.transactions_topic, settings.outcomes_topic, settings.dead_letters_topic)
    return Cluster(KafkaConfig(settings.brokers(), settings.kafka), topics, settings.group)


def print_moved(uri: str, moves: Iterable[tuple[str, Moved]], *, as_json: bool) -> None:
    """What was moved, one line each."""
    for branch, moved in moves:
        if as_json:
            from lakefold_reader.as_json import plain_move

            told = {"table": uri, "branch": branch, "version": moved.version, "table_id": moved.table_id}
            print_json({**told, **plain_move(moved.move)})
        else:
            name = f"{uri} {branch}".rstrip()
            print_line(f"{name}: {moved.move.why} {moved.move}, in version {moved.version:,}")
