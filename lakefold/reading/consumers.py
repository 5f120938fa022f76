"""`lakefold consumers`: the named readers of a table, and the version that each has read last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_reader.consumers.consumers import Consumers, Lag
    from lakefold_reader.format.source import Source


@verb(
    "lakefold consumers /data/flights",
    "lakefold consumers /data/flights --set nightly 120",
    "lakefold consumers /data/flights --set nightly earliest",
    "lakefold consumers /data/flights --drop nightly",
)
@click.argument("table")
@settings_options(*STORE)
@click.option(
    "--branch", metavar="NAME", help="The branch for --set.  [default: main, or the branch at TABLE]"
)
@click.option(
    "--set",
    "moved",
    nargs=2,
    metavar="NAME VERSION",
    help="Let a consumer continue after this version: a number, a cursor, earliest or latest. A new consumer "
    "is created.",
)
@click.option(
    "--drop", "dropped", metavar="NAME", help="Remove a consumer; clean-ups no longer keep versions for it."
)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    moved: tuple[str, str] | None,
    dropped: str | None,
    as_json: bool,
) -> None:
    """List the named consumers of TABLE: the version each has read last, and how many it hasn't read.

    A program becomes a consumer by lakefold.tail(TABLE, consumer=NAME) or lakefold tail --consumer NAME.
    Versions that a consumer hasn't read are kept by lakefold cleanup and by the clean-ups of other Lance
    clients, so drop the consumers that are no longer used.
    """
    from lakefold_reader.consumers.consumers import Consumers, lags
    from lakefold_reader.formats import on_branch

    if moved and dropped:
        raise click.UsageError("--set and --drop can't be used together; run the verb twice")

    def listed(source: Source) -> tuple[Source, list[Lag]]:
        if dropped:
            Consumers(source).drop(dropped)
        if moved:
            _set(source, Consumers(source), *moved)
        return source, lags(source)

    source, consumers = on_branch(table, branch, settings.storage_options, listed)
    if not as_json:
        print_table(source.uri, source.format.name)
    _print(consumers, as_json=as_json)


def _set(source: Source, consumers: Consumers, name: str, at: str) -> None:
    from lakefold_reader.tail.tail import tail_of
    from lakefold_reader.versions.start import EARLIEST, start_in

    begun = tail_of(source, start_in(at))
    consumers.set(name, None if at == EARLIEST else begun.cursor)


def _print(consumers: list[Lag], *, as_json: bool) -> None:
    from lakefold_reader.as_json import plain_consumer

    if as_json:
        print_json([plain_consumer(lag) for lag in consumers])
        return
    for lag in consumers:
        consumer = lag.consumer
        branch = f" on {consumer.branch}" if consumer.branch else ""
        behind = "its branch is deleted" if lag.versions is None else f"{lag.versions:,} behind"
        at = "has read nothing yet" if consumer.at is None else f"version {consumer.version:,}"
        when = f"{consumer.updated_at:%Y-%m-%d %H:%M:%S}"
        print_line(f"{consumer.name}{branch}  {at}  {behind}  {when}  {consumer.by}")
    if not consumers:
        print_line("no consumers")
