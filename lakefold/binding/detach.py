"""`lakefold detach`: a table follows its log no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.binding.adopt import UNANSWERED, cluster_of, print_moved
from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options

if TYPE_CHECKING:
    from lakefold.console.settings import Settings


@click.command(
    epilog=examples(
        "lakefold detach /data/flights",
        "lakefold detach /data/flights --unanswered",
        "lakefold detach /data/flights && lakefold drop /data/flights --yes",
    )
)
@click.argument("table")
@UNANSWERED
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def command(settings: Settings, table: str, *, unanswered: bool, as_json: bool) -> None:
    """Let TABLE and its branches follow no log any more, and print the versions that say so.

    Refuses while entries wait for it. What is sent to it later is answered Invalid, until it is adopted
    again. Rows, versions and keys stay; any Lance client may write to it. A committer needs no restart. With
    --unanswered no broker is asked.
    """
    from lakefold.binding.rebinding import move_lines
    from lakefold_table.marks.marks import RebindReason
    from lakefold_table.uri import canonical

    uri = canonical(table)
    cluster = None if unanswered else cluster_of(settings)
    moves = move_lines(uri, settings.storage_options, RebindReason.DETACHED, None, cluster)
    print_moved(uri, moves, as_json=as_json)
