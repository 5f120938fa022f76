"""`lakefold log`: the versions of a table, newest first, and what each of them did."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click

from lakefold.console.options import (
    STORE,
    check_one_of,
    json_option,
    point_options,
    settings_options,
    verb,
)
from lakefold.console.output import PAGE, operations_text, pages, print_columns, print_json, print_table
from lakefold_table.author import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakefold.console.options import Point
    from lakefold.console.settings import Settings
    from lakefold_reader.format.source import Source
    from lakefold_reader.snapshot.history import HistoryRow
    from lakefold_reader.snapshot.history_filter import HistoryFilter

HEADER = (
    "version",
    "time",
    "operation",
    "positions",
    "entries",
    "app/batches",
    "rows",
    "files",
    "commit latency",
    "author",
    "properties",
)
"""The columns; those of `_OPTIONAL` only if a line has any."""
SHORTENED = ("operation", "positions", "app/batches", "author", "properties")
_OPTIONAL = ("author", "properties")
Result = TypeVar("Result")


def filter_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb the options that choose versions of a history, which it gets as `chosen`."""

    @click.option("-n", "--number", type=click.IntRange(min=1), help="List at most this many versions.")
    @click.option("--app", metavar="APP_ID", help="List versions with batches of this app.")
    @click.option("--operation", metavar="NAME", help="List versions that did this, e.g. delete or merge.")
    @click.option("--since", metavar="TIME", help="List versions from this time on: ISO 8601.")
    @click.option(
        "--row",
        metavar="COLUMN=VALUE[,...]",
        help="List versions that inserted, changed or deleted a row with these values.",
    )
    @wraps(function)
    def call(
        *args: object,
        number: int | None,
        app: str | None,
        operation: str | None,
        since: str | None,
        row: str | None,
        **rest: object,
    ) -> Result:
        from lakefold_reader.snapshot.history_filter import HistoryFilter, row_of
        from lakefold_reader.versions.times import micros_of, time_of

        begin = None if since is None else time_of(micros_of(since))
        chosen = HistoryFilter(app, operation, begin, {} if row is None else row_of(row), number)
        return function(*args, chosen=chosen, **rest)

    return call


@verb(
    "lakefold log /data/flights",
    "lakefold log /data/flights --from 10 --to 20",
    "lakefold log /data/flights --branch audit",
    "lakefold log /data/flights --as-of 2026-05-01T12:00:00Z",
    "lakefold log /data/flights -n 20 --app loader --since 2026-05-01T12:00:00Z",
    "lakefold log /data/flights --operation delete",
    "lakefold log /data/flights --row flight=LH42,day=2026-05-01",
    "lakefold log /data/flights --json | jq .rows_in",
)
@click.argument("table")
@settings_options(*STORE)
@click.option("--branch", metavar="NAME", help="The branch to read.  [default: main, or the branch at TABLE]")
@click.option("--from", "first", type=click.IntRange(min=0), help="The oldest version to list.")
@click.option("--to", "last", type=click.IntRange(min=0), help="The newest version to list.")
@click.option("--tag", help="List versions up to the one that this tag names, on its branch.")
@point_options("List versions up to the one that")
@filter_options
@json_option
def command(  # noqa: PLR0913 - its options
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    first: int | None,
    last: int | None,
    tag: str | None,
    point: Point,
    chosen: HistoryFilter,
    as_json: bool,
) -> None:
    """List the versions of TABLE, newest first; --from and --to are included.

    Each line shows the operation, the positions in the log that were folded into the version, the batches of
    each app, and which of them were undone in which later version, the rows and files that were added (+) and
    removed (-), the seconds from the log time of the last entry until the version was visible, who sent the
    entries and why (if they say so), and the
    properties that its writer had it record, if it has any (of Delta tables, userMetadata). A row that an
    update replaced counts as removed and added, a row that a compaction moved as neither. A version of
    another client has no positions, and the client as its author. A dash is shown if a number can't be
    computed because the version before was removed, or another client doesn't say how many rows of a Delta
    table it wrote again as they were. A terminal that is too narrow gets shortened names and positions;
    --json and a pipe get them complete.

    "append x12, delete x3" is a version that was made from several kinds of entries; other clients see one
    update. An insert is an update that only inserted rows. "adopted", "rebound", "detached" and "restored"
    are versions that those verbs made; "new log accepted" and "loss accepted" are versions of a committer
    that ran with --accept-new-log.

    If several of --app, --operation, --since and --row are given, all of them hold. For --row the changed
    rows of each version are read, and a version is printed as soon as it is found; --since or --from end the
    search sooner.
    """
    check_one_of(point, to=last, tag=tag)
    from lakefold_reader.as_json import plain_history
    from lakefold_reader.formats import in_its_format, open_source
    from lakefold_reader.snapshot.history import history_of
    from lakefold_reader.snapshot.snapshot import find_version

    def versions(source: Source) -> tuple[Source, Iterator[HistoryRow]]:
        of_branch, newest = find_version(
            source, last, tag=tag, as_of=point.as_of, branch=branch, at_position=point.at_position
        )
        return of_branch, chosen.chosen(of_branch, history_of(of_branch, first, newest))

    source, rows = in_its_format(open_source(table, settings.storage_options), versions)
    if as_json:
        for row in rows:
            print_json(plain_history(row))
        return
    print_table(source.uri, source.format.name)
    print_versions(rows, 1 if chosen.row else PAGE)


def print_versions(rows: Iterable[HistoryRow], at_once: int = PAGE) -> None:
    """Prints a line for each version, so many at once."""
    last, widths = list[int](), list[int]()
    for page in pages(rows, at_once):
        cells = [_cells(row) for row in page]
        kept = [
            at for at, name in enumerate(HEADER) if name not in _OPTIONAL or any(row[at] for row in cells)
        ]
        shown = [[row[at] for at in kept] for row in cells]
        before = widths if at_once == 1 and kept == last else ()
        widths = print_columns([HEADER[at] for at in kept], shown, shorten=SHORTENED, before=before)
        last = kept


def _cells(row: HistoryRow) -> tuple[object, ...]:
    apps = ", ".join(
        f"{app.app_id}:{app.first}" if app.first == app.last else f"{app.app_id}:{app.first}-{app.last}"
        for app in row.apps
    )
    undone = ", ".join(
        f"{each.app_id}:{each.first}" + (f"-{each.last}" if each.last > each.first else "") + f" in {each.by}"
        for each in row.undone
    )
    apps += f" (undone: {undone})" if undone else ""
    return (
        row.version,
        f"{row.timestamp:%Y-%m-%d %H:%M:%S.%f}",
        _operation(row),
        str(row.positions) if row.positions else None,
        row.entries,
        apps or None,
        _added_and_removed(row.rows_in, row.rows_out),
        _added_and_removed(row.files_in, row.files_out),
        None if row.seconds_to_visible is None else f"{row.seconds_to_visible:.3f} s",
        text_of(row.authors) or None,
        ", ".join(f"{name}={text}" for name, text in sorted(row.properties.items())) or None,
    )


def _operation(row: HistoryRow) -> str:
    """Returns the operation of the version; if a verb made it, such as `adopt`, the reason for that."""
    if row.move is not None and row.move.why.by_verb:
        return str(row.move.why)
    text = operations_text(row.operation, row.operations)
    return text if row.move is None else f"{text}, {row.move.why}"


def _added_and_removed(added: int | None, removed: int | None) -> str | None:
    if added is None and removed is None:
        return None
    return f"+{added or 0:,}" + (f" -{removed:,}" if removed else "")
