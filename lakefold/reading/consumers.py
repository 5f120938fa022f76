"""`lakefold consumers`: the named readers of a table, and where each of them stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import STORE, examples, json_option, settings_options
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_reader.consumers.consumers import Consumers, Lag
    from lakefold_reader.format.source import Source


@click.command(
    epilog=examples(
        "lakefold consumers /data/flights",
        "lakefold consumers /data/flights --set nightly 120",
        "lakefold consumers /data/flights --set nightly earliest",
        "lakefold consumers /data/flights --drop nightly",
    )
)
@click.argument("table")
@settings_options(*STORE)
@click.option(
    "--branch", metavar="NAME", help="The branch that --set is about.  [default: the line TABLE is]"
)
@click.option(
    "--set",
    "moved",
    nargs=2,
    metavar="NAME VERSION",
    help="Let a consumer go on after this version: a number, a cursor, earliest or latest. Made if new.",
)
@click.option(
    "--drop", "dropped", metavar="NAME", help="Forget a consumer; clean-ups take no notice of it then."
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

    A program reads under a name by lakefold.tail(TABLE, consumer=NAME) or lakefold tail --consumer NAME. What
    a consumer hasn't read is kept by lakefold cleanup and by the clean-ups of other Lance clients, so drop
    those that nobody runs any more.
    """
    from lakefold_reader.consumers.consumers import Consumers, lags
    from lakefold_reader.opening import open_branch

    if moved and dropped:
        raise click.UsageError("--set and --drop are two commands")
    source = open_branch(table, branch, settings.storage_options)
    if dropped:
        Consumers(source).drop(dropped)
    if moved:
        _set(source, Consumers(source), *moved)
    _print(lags(source), as_json=as_json)


def _set(source: Source, consumers: Consumers, name: str, at: str) -> None:
    from lakefold_reader.tail.tail import tail_of
    from lakefold_reader.versions.start import EARLIEST, start_in

    begun = tail_of(source, start_in(at))
    consumers.set(name, None if at == EARLIEST else begun.cursor)


def _print(found: list[Lag], *, as_json: bool) -> None:
    from lakefold_reader.as_json import plain_consumer

    if as_json:
        print_json([plain_consumer(one) for one in found])
        return
    for lag in found:
        one = lag.consumer
        line = f" on {one.branch}" if one.branch else ""
        behind = "its branch is gone" if lag.versions is None else f"{lag.versions:,} behind"
        at = "has read nothing yet" if one.at is None else f"version {one.version:,}"
        when = f"{one.updated_at:%Y-%m-%d %H:%M:%S}"
        print_line(f"{one.name}{line}  {at}  {behind}  {when}  {one.by}")
    if not found:
        print_line("no consumers")
