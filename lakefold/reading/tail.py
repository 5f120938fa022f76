"""`lakefold tail`: prints new versions of a table when they are published, and their rows."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from lakefold.console.options import (
    KAFKA,
    STORE,
    check_one_of,
    json_option,
    point_options,
    settings_options,
    verb,
)
from lakefold.console.output import operations_text, print_json, print_line, print_table, row_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakefold.console.options import Point
    from lakefold.console.settings import Settings
    from lakefold_reader.format.source import Source
    from lakefold_reader.tail.change import Change
    from lakefold_reader.tail.tail import Tail
    from lakefold_reader.tail.wakeup import OutcomesTopic
    from lakefold_reader.versions.cursor import Cursor

NEWEST = 10
"""How many versions are shown if no option gives a start."""
AT_ONCE = 100
"""A consumer is moved after this many versions, and before each wait."""


@verb(
    "lakefold tail /data/flights",
    "lakefold tail /data/flights --follow",
    "lakefold tail /data/flights --branch audit --follow",
    "lakefold tail /data/flights --from 12 --rows --json",
    "lakefold tail /data/flights --from earliest --follow --json | jq .cursor",
    "lakefold tail /data/flights --as-of 2026-05-01T12:00:00Z",
    "lakefold tail /data/flights --follow --bootstrap-servers localhost:29092",
    "lakefold tail /data/flights --consumer nightly --rows --json",
)
@click.argument("table")
@settings_options(*STORE, *KAFKA, "transactions_topic", "outcomes_topic")
@click.option("--branch", metavar="NAME", help="The branch to read.  [default: main, or the branch at TABLE]")
@click.option(
    "--from",
    "start",
    metavar="N",
    help="Show the versions after this one: a number, a cursor, earliest or latest.  "
    "[default: latest with --follow, else the last ten versions are shown]",
)
@point_options("Show the versions after the one that")
@click.option("--follow", "-f", is_flag=True, help="Wait for new versions until Ctrl-C.")
@click.option(
    "--consumer",
    metavar="NAME",
    help="Continue after the version that this consumer has read last, and move it with each version that is "
    "printed. A new consumer begins at --from.",
)
@click.option(
    "--max-versions", type=click.IntRange(min=1), metavar="N", help="Exit after this many versions."
)
@click.option("--rows", "with_rows", is_flag=True, help="Print the rows that each version inserted as well.")
@json_option
def command(  # noqa: PLR0913 - each is an option of the verb
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    start: str | None,
    point: Point,
    follow: bool,
    consumer: str | None,
    max_versions: int | None,
    with_rows: bool,
    as_json: bool,
) -> None:
    """Print the versions of TABLE after --from, each on a line, oldest first.

    With --rows each line is followed by the rows that the version inserted. If a version changed or removed
    rows, its line says so; `lakefold changes` prints those. A program stores the cursor in the JSON form and
    passes it to --from to continue after that version.

    If --follow and --bootstrap-servers are given, the outcomes topic announces new versions, and the store is
    read less often. If the table is removed and not created again within 10 seconds, the exit code is 2; this
    is checked every second on a local disk, and once a minute in a bucket.
    """
    check_one_of(point, **{"from": start})
    from lakefold_reader.formats import in_its_format, open_source
    from lakefold_reader.snapshot.snapshot import find_version
    from lakefold_reader.tail.tail import tail_of

    def begun(table: Source) -> tuple[Source, Tail]:
        source, version = find_version(table, branch=branch, as_of=point.as_of, at_position=point.at_position)
        after = _start(source, start if version is None else str(version), follow=follow)
        return source, tail_of(source, after, follow=follow, consumer=consumer)

    try:
        opened, tail = in_its_format(open_source(table, settings.storage_options), begun)
        if not as_json:
            print_table(opened.uri, opened.format.name)
        if follow and settings.bootstrap_servers:
            tail.wake_by(_outcomes(settings))
        for change in _each(tail, max_versions, follow=follow, committing=consumer is not None):
            _print(change, as_json=as_json)
            if with_rows:
                _print_rows(change, as_json=as_json)
    except KeyboardInterrupt:
        return


def _each(tail: Tail, most: int | None, *, follow: bool, committing: bool) -> Iterator[Change]:
    """Yields at most `most` changes.

    If `committing`, the consumer is moved after the changes of each step.
    """
    remaining = sys.maxsize if most is None else most
    while remaining and (changes := tail.step(min(remaining, AT_ONCE), timeout=None if follow else 0.0)):
        yield from changes
        remaining -= len(changes)
        if committing:
            tail.commit()


def _outcomes(settings: Settings) -> OutcomesTopic:
    from lakefold_reader.tail.wakeup import OutcomesTopic

    topics = settings.transactions_topic, settings.outcomes_topic
    return OutcomesTopic(settings.bootstrap_servers, settings.kafka, *topics)


def _start(source: Source, text: str | None, *, follow: bool) -> Cursor | str | int:
    from lakefold_reader.versions.late_versions import oldest_of
    from lakefold_reader.versions.listing import numbers_of
    from lakefold_reader.versions.start import start_in

    if text is not None:
        return start_in(text)
    if follow:
        return "latest"
    return max(oldest_of(source), numbers_of(source)[-1] - NEWEST + 1) - 1


def _print(change: Change, *, as_json: bool) -> None:
    from lakefold_reader.as_json import plain_change

    if as_json:
        print_json(plain_change(change))
        return
    rows = "rows unknown" if change.rows is None else f"+{change.rows:,} rows"
    more = "" if change.only_inserts else " (and changed or removed others)"
    at = "" if change.position is None else f"  {change.position}"
    when = f"{change.timestamp:%Y-%m-%d %H:%M:%S.%f}"
    did = operations_text(change.operation, change.operations)
    print_line(f"version {change.version:,}  {when}  {did}  {rows}{more}{at}")


def _print_rows(change: Change, *, as_json: bool) -> None:
    """Prints the inserted rows, each on a line, and a message on stderr if not all of them are known."""
    from lakefold_reader.as_json import plain_rows

    for batch in _batches(change):
        for row in plain_rows(batch):
            if as_json:
                print_json({"version": change.version, "row": row})
            else:
                print_line(f"  {row_text(row)}")


def _batches(change: Change) -> Iterable[pa.RecordBatch]:
    """Returns the inserted rows. If not all of them are known, prints that and returns the appended rows."""
    from lakefold_reader.format.changes import UnknownChangeError

    batches: Iterable[pa.RecordBatch] = ()
    try:
        batches = change.batches()
    except UnknownChangeError as error:
        hint = f"`lakefold changes` with --from {change.version - 1} shows what it changed"
        print_line(f"{error.message}; {hint}", err=True)
        with suppress(UnknownChangeError):
            batches = change.appended().to_batches()
    return batches
