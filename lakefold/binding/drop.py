"""`lakefold drop`: a table that follows no log is deleted, files and all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.console.output import print_json, print_line
from lakefold_table.errors import InvalidError, NotATableError, PreconditionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold.console.settings import Settings
    from lakefold_table.versions.dropped import Dropped, DroppedBranch


@click.command(
    epilog=examples(
        "lakefold drop /data/flights",
        "lakefold drop s3://lake/flights --yes --json",
        "lakefold drop /data/deleted-by-hand --bootstrap-servers broker-1:9092",
    ),
)
@click.argument("table")
@click.option("--yes", is_flag=True, help="Don't ask: delete it.")
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def command(settings: Settings, table: str, *, yes: bool, as_json: bool) -> None:
    """Delete TABLE: all versions, branches and data files below its root. Nothing brings it back.

    Refuses while it, or a branch of it, is bound to a log (`lakefold detach` ends that), so no committer puts
    a version where it lay, and while other tables lie inside its folder: drop or move those first. Asks for
    the table's name, unless --yes is given.

    A note stays beside it, in `.lakefold-dropped/`: by that committers know that the table isn't just away,
    and answer Invalid to what comes late for it. Where the table was deleted by other means, only the note is
    written; the brokers are asked what the committers of --group reported of it.

    A last version is published first that says the table is dropped: from then on nothing is folded into it
    and nothing binds it to a log, whatever happened while this command asked.

    On a local disk the table vanishes at once; if removing its files is cut short, they lie in a folder
    beside it whose name ends in `.dropped`. In a bucket its newest version vanishes when all others have,
    then its other files. If the command is cut short, call it again to go on; `lakefold adopt --keep` keeps
    a table that is still there.
    """
    from lakefold.binding.drop_table import condemn, known_dropped, lines_there, remove
    from lakefold_table.uri import canonical

    uri, options = canonical(table), settings.storage_options
    try:
        lines = lines_there(uri, options)
    except NotATableError as nothing:
        known = known_dropped(uri, options)
        if known is None or not known.removing:
            _drop_deleted(settings, uri, nothing, known, yes=yes, as_json=as_json)
            return
        lines = known.lines
        _ask(uri, f"version {_version(lines):,}, will be deleted", yes=yes)
    else:
        _ask(uri, f"version {_version(lines):,}, will be deleted", yes=yes)
        lines = condemn(uri, options)
    newest = _version(lines)
    remove(uri, lines, options, _print_progress)
    if as_json:
        print_json({"table": uri, "version": newest})
    else:
        print_line(f"{uri}: dropped, its last version was {newest:,}")


def _drop_deleted(
    settings: Settings, uri: str, nothing: NotATableError, known: Dropped | None, *, yes: bool, as_json: bool
) -> None:
    """Notes that a table that isn't there any more was dropped."""
    from lakefold.binding.adopt import cluster_of
    from lakefold.binding.drop_table import lines_reported, note

    try:
        cluster = cluster_of(settings)
    except InvalidError:
        hint = "where it was deleted by other means: name the brokers, who know what was folded into it"
        raise NotATableError(nothing.message, where=uri, hint=hint) from nothing
    lines = lines_reported(uri, cluster)
    if not lines:
        raise NotATableError(
            f"{nothing.message}, and nothing was ever reported of one",
            where=uri,
            hint="check the table's name, and that these are its brokers and its outcomes topic",
        ) from nothing
    newest = _version(lines)
    if not (known and all(known.covers(one.branch, each) for one in lines for each in one.positions)):
        _ask(
            uri, f"of which version {newest:,} was reported, is not there. It will count as dropped", yes=yes
        )
        _check_missing(uri, settings.storage_options)
        note(uri, lines, settings.storage_options)
    if as_json:
        print_json({"table": uri, "version": newest})
    else:
        print_line(f"{uri}: counts as dropped, its last version that was reported is {newest:,}")


def _check_missing(uri: str, storage_options: Mapping[str, str]) -> None:
    """Raises `PreconditionError` if the table is there by now: its store may have come back meanwhile."""
    from lakefold.binding.drop_table import lines_there

    try:
        lines_there(uri, storage_options)
    except NotATableError:
        return
    raise PreconditionError("the table is there again", where=uri, hint="call it again to delete it")


def _ask(uri: str, what: str, *, yes: bool) -> None:
    from lakefold_table.uri import place

    if yes:
        return
    found = place(uri)
    name = found.segments[-1] if found.segments else found.authority
    if click.prompt(f"{uri}, {what}. Type its last name", err=True) != name:
        hint = f"type {name}, what stands behind the last / of its URI; or give --yes"
        raise InvalidError("that is not its name: nothing was deleted", where=uri, hint=hint)


def _version(lines: tuple[DroppedBranch, ...]) -> int:
    return next((one.version for one in lines if not one.branch), 0)


def _print_progress(removed: int) -> None:
    print_line(f"{removed:,} objects removed", err=True)
