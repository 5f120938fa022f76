"""`lakefold log`: the versions of a table, newest first, and what each of them did."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from lakefold.console.options import (
    STORE,
    check_one_of,
    examples,
    json_option,
    point_options,
    settings_options,
)
from lakefold.console.output import operations_text, print_columns, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold.console.options import Point
    from lakefold.console.settings import Settings
    from lakefold_reader.snapshot.history import HistoryRow

HEADER = (
    "version",
    "time",
    "operation",
    "positions",
    "entries",
    "app/batches",
    "rows",
    "files",
    "visible after",
)
SHORTENED = ("operation", "positions", "app/batches")
PAGE = 50
"""Rows whose widths are settled together, so that a long history begins to print at once."""


@click.command(
    epilog=examples(
        "lakefold log /data/flights",
        "lakefold log /data/flights --from 10 --to 20",
        "lakefold log /data/flights --branch audit",
        "lakefold log /data/flights --as-of 2026-05-01T12:00:00Z",
        "lakefold log /data/flights --json | jq .rows_in",
    )
)
@click.argument("table")
@settings_options(*STORE)
@click.option("--branch", metavar="NAME", help="The branch to look at.  [default: the line that TABLE is]")
@click.option("--from", "first", type=click.IntRange(min=1), help="The oldest version to list.")
@click.option("--to", "last", type=click.IntRange(min=1), help="The newest version to list.")
@click.option("--tag", help="List no newer version than the one that a tag names, on whichever branch.")
@point_options("List no newer version than the one that")
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    first: int | None,
    last: int | None,
    tag: str | None,
    point: Point,
    as_json: bool,
) -> None:
    """List the versions of TABLE, newest first, both ends included.

    For each: what made it, the log positions folded into it, the batches of each app, rows and files that
    came (+) and went (-), and the seconds from the log time of its last entry until it could be seen. At a
    terminal, names and positions are shortened until a line fits; --json and a pipe have them whole. A row
    that an update wrote anew went and came; one that a compaction moved did neither. A version that no
    committer made has no positions; what can't be told because the version before is gone is a dash.

    "append x12, delete x3" is a version of entries of several kinds, to other clients one update. An insert
    is an update that only inserted. "adopted", "rebound", "detached" and "restored" are versions that those
    verbs made; "new log accepted" and "loss accepted" say that the committer was told so.
    """
    check_one_of(point, to=last, tag=tag)
    from lakefold_reader.as_json import plain_history
    from lakefold_reader.snapshot.history import history_of
    from lakefold_reader.snapshot.snapshot import find_version

    source, newest = find_version(
        table,
        last,
        tag=tag,
        as_of=point.as_of,
        branch=branch,
        at_position=point.at_position,
        storage_options=settings.storage_options,
    )
    rows = history_of(source, first, newest)
    if as_json:
        for row in rows:
            print_json(plain_history(row))
        return
    for page in _pages(rows):
        print_columns(HEADER, [_cells(row) for row in page], shorten=SHORTENED)


def _pages(rows: Iterator[HistoryRow]) -> Iterator[list[HistoryRow]]:
    while page := list(islice(rows, PAGE)):
        yield page


def _cells(row: HistoryRow) -> tuple[object, ...]:
    apps = ", ".join(
        f"{one.app_id}:{one.first}" if one.first == one.last else f"{one.app_id}:{one.first}-{one.last}"
        for one in row.apps
    )
    return (
        row.version,
        f"{row.timestamp:%Y-%m-%d %H:%M:%S.%f}",
        _did(row),
        str(row.positions) if row.positions else None,
        row.entries,
        apps or None,
        _both(row.rows_in, row.rows_out),
        _both(row.files_in, row.files_out),
        None if row.seconds_to_visible is None else f"{row.seconds_to_visible:.3f} s",
    )


def _did(row: HistoryRow) -> str:
    """What the version did: of one that a verb made, what the verb was for."""
    if row.move is not None and row.move.why.by_verb:
        return str(row.move.why)
    told = operations_text(row.operation, row.operations)
    return told if row.move is None else f"{told}, {row.move.why}"


def _both(came: int | None, went: int | None) -> str | None:
    if came is None and went is None:
        return None
    return f"+{came or 0:,}" + (f" -{went:,}" if went else "")
