"""`lakefold detach`: ends the binding of a table to its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.binding.adopt import UNANSWERED, cluster_of, print_moved
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb

if TYPE_CHECKING:
    from lakefold.console.settings import Settings


@verb(
    "lakefold detach /data/flights",
    "lakefold detach /data/flights --unanswered",
    "lakefold detach /data/flights && lakefold drop /data/flights --yes",
)
@click.argument("table")
@UNANSWERED
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def command(settings: Settings, table: str, *, unanswered: bool, as_json: bool) -> None:
    """End the binding of TABLE and its branches to their log, and print the versions that record it.

    It is refused while entries wait for the table. Proposals that are sent to it later are answered Invalid,
    until `lakefold adopt` binds it again. Its rows, versions and keys stay, and any Lance client may write to
    it. Committers need no restart. With --unanswered, no broker is needed.
    """
    from lakefold.binding.rebinding import rebind_branches
    from lakefold_table.marks.marks import RebindReason
    from lakefold_table.uri import canonical

    uri = canonical(table)
    cluster = None if unanswered else cluster_of(settings)
    moves = rebind_branches(uri, settings.storage_options, RebindReason.DETACHED, None, cluster)
    print_moved(uri, moves, as_json=as_json)
