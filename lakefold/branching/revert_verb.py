"""The verb `revert`: the options and the text of `lakefold.revert`."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import counted, print_json, print_line, print_table
from lakefold.writing.verb_options import message_option, wait_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold.branching.revert import RevertReport
    from lakefold.console.settings import Settings
    from lakefold_ingest.revert.plan import RevertFigures

Result = TypeVar("Result")
_RANGE: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


def _positions(_: click.Context, flag: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _RANGE.fullmatch(text)
    if match is None:
        message = "give the first and the last offset, as 1040-1052, or one offset"
        raise click.BadParameter(message, param=flag)
    return int(match[1]), int(match[2] or match[1])


def later_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb what says of rows that changed later what becomes of them, as `later`."""

    @wraps(function)
    def call(
        *args: object, keys: str | None, keep_later: bool, with_dependents: bool, **rest: object
    ) -> Result:
        later = {"keys": keys, "keep_later": keep_later, "with_dependents": with_dependents}
        return function(*args, later=later, **rest)

    dependents = click.option(
        "--with-dependents", is_flag=True, help="Undo what was built on those rows as well."
    )
    keep = click.option(
        "--keep-later", is_flag=True, help="Leave rows that were changed later as they are now."
    )
    decorated: Callable[..., Result] = keep(dependents(call))
    return click.option("--keys", metavar="COLUMNS", help="The columns that identify a row.")(decorated)


@verb(
    "lakefold revert /data/flights loader:7 --dry-run",
    "lakefold revert /data/flights loader:7 backfill:0-19",
    "lakefold revert /data/flights --version 12 --keep-later",
    "lakefold revert /data/flights --positions 1040-1052 --with-dependents",
    "lakefold revert /data/flights loader:7 --branch audit --json",
)
@click.argument("table")
@click.argument("batches", nargs=-1, metavar="[APP_ID:BATCH_ID…]")
@click.option("--version", type=click.IntRange(min=0), help="Undo all entries of this version.")
@click.option(
    "--positions", metavar="FIRST-LAST", callback=_positions, help="Undo the entries at these offsets."
)
@click.option(
    "--branch", metavar="NAME", help="The branch that has them.  [default: main, or the branch at TABLE]"
)
@later_options
@click.option("--dry-run", is_flag=True, help="Send nothing; print what would be done, and all conflicts.")
@wait_option(or_log=False)
@message_option
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
def command(  # noqa: PLR0913 - its options
    settings: Settings,
    table: str,
    *,
    batches: tuple[str, ...],
    version: int | None,
    positions: tuple[int, int] | None,
    branch: str | None,
    later: dict[str, Any],
    dry_run: bool,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    """Take out what single batches did to TABLE, and keep everything else.

    Rows that the batches added go, also if compactions moved them; rows that they deleted come back; rows
    that they updated get their earlier values. Columns that were added stay. One proposal goes through the
    log; it is planned again if others change the same rows meanwhile. Name batches, or a version, also one of
    another client, or positions in the log.

    If later entries changed these rows, they are listed with who did it, nothing is sent, and the exit code
    is 3: choose --keep-later or --with-dependents. Rows that come back are compared by --keys with rows that
    were added since; without them by the keys of the upsert, or those that TABLE declares. Deletions by a
    condition that came later don't count for rows that come back.

    The batches are marked as undone, which `lakefold log` and `lakefold explain` show. To undo a revert, name
    its version. The versions that show what the batches did must still exist; otherwise `lakefold restore`
    goes back to one that does.
    """
    if sum((bool(batches), version is not None, positions is not None)) != 1:
        raise click.UsageError("name what is to be undone: batches, or --version, or --positions")
    from lakefold.branching.revert import planned_revert, request_of, send_revert
    from lakefold_reader.formats import open_branch

    request = request_of(batches, version, positions, **later)
    source = open_branch(table, branch, settings.storage_options)
    if dry_run:
        report = planned_revert(settings, source, request)
    else:
        report = send_revert(settings, source, request, wait_s=wait, properties={}, message=message)
    print_report(report, refused=bool(report.conflicts) and not later["keep_later"], as_json=as_json)


def print_report(report: RevertReport, *, refused: bool, as_json: bool) -> None:
    """Prints what was done, or would be done. `refused`: it would not, as rows were changed since."""
    if as_json:
        print_json(report.document())
        return
    print_table(report.table, report.format)
    for line in _lines(report, refused=refused):
        print_line(line)


def _lines(report: RevertReport, *, refused: bool) -> Iterator[str]:
    from lakefold_ingest.revert.conflicts import SHOWN

    for each in report.figures:
        yield _figures(each)
    for conflict in report.conflicts[:SHOWN]:
        yield f"  changed later: {conflict}"
    if len(report.conflicts) > SHOWN:
        yield f"  and {len(report.conflicts) - SHOWN:,} more, which --json lists"
    rows = f"{counted(report.rows_removed, 'row')} removed, {report.rows_returned:,} put back"
    if refused:
        yield f"would be refused; with --keep-later it would be one proposal: {rows}"
    elif report.kind == "planned":
        yield f"would be one proposal: {rows}"
    else:
        yield f"undone in version {report.version}: {rows}"


def _figures(each: RevertFigures) -> str:
    names = ", ".join(each.entries) or "all of it"
    built = ", built on these" if each.dependent else ""
    if each.undone_by:
        return f"version {each.version} ({names}){built}: version {each.undone_by} left all of it out already"
    moved = f" ({each.moved:,} moved)" if each.moved else ""
    gone = each.added - each.live
    added = f"{counted(each.added, 'row')} added, {each.live:,} there{moved}, {gone:,} gone"
    removed = f"{each.removed:,} removed, {each.returned:,} come back"
    return f"version {each.version} ({names}){built}: {added}; {removed}"
