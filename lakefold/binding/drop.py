"""`lakefold drop`: deletes a table that is bound to no log, with all its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, PreconditionError

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_table.versions.drop_note import Dropped, DroppedBranch
    from lakefold_table.versions.table_address import TableAddress


@verb(
    "lakefold drop /data/flights",
    "lakefold drop s3://lake/flights --yes --json",
    "lakefold drop /data/deleted-by-hand --bootstrap-servers broker-1:9092",
)
@click.argument("table")
@click.option("--yes", is_flag=True, help="Delete the table without asking.")
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@json_option
def command(settings: Settings, table: str, *, yes: bool, as_json: bool) -> None:
    """Delete TABLE: all versions, branches and data files below its root. This can't be undone.

    It asks for the table's name, unless --yes is given. It is refused while the table or a branch of it
    is bound to a log (`lakefold detach` ends that), because a committer could publish a version meanwhile,
    and while other tables are stored inside its folder: drop or move those first.

    First a last version is published that marks the table as dropped. From then on no committer folds into it
    and no verb binds it. A note stays beside the table, in `.lakefold-dropped/`. It shows committers that the
    table was dropped and is not only unreachable, so they answer late proposals with Invalid. If the table
    was deleted by other means, only this note is written, from what the committers of --group have reported.

    On a local disk the table disappears at once; if the removal of its files is interrupted, they are in a
    folder beside it whose name ends in `.dropped`. In a bucket the newest version is removed after all other
    versions, then the other files. If the command is interrupted, run it again to continue, or keep a table
    that still exists by `lakefold adopt --keep`. A Delta table in a bucket can't be kept once commits were
    removed.
    """
    from lakefold.binding.drop_table import existing_branches, known_dropped, publish_dropped, remove

    address = settings.address_of(table)
    uri = address.uri
    try:
        branches = existing_branches(address)
    except (NotATableError, DamagedError) as error:
        note = known_dropped(address)
        if isinstance(error, DamagedError):
            # A Delta table in a bucket that lacks commits already. On a disk it is another one.
            if note is None or not note.removing or note.aside:
                raise
        elif note is None or not note.removing:
            _drop_deleted(settings, address, error, note, yes=yes, as_json=as_json)
            return
        branches = note.branches
        _ask(uri, f"version {_version(branches):,}, will be deleted", yes=yes)
    else:
        _ask(uri, f"version {_version(branches):,}, will be deleted", yes=yes)
        branches = publish_dropped(address)
    newest = _version(branches)
    remove(address, branches, _print_progress)
    if as_json:
        print_json({"table": uri, "version": newest})
    else:
        print_line(f"{uri}: dropped, its last version was {newest:,}")


def _drop_deleted(
    settings: Settings,
    address: TableAddress,
    missing: NotATableError,
    noted: Dropped | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Writes the note of a dropped table for a table that was deleted by other means."""
    from lakefold.binding.drop_table import note, reported_branches
    from lakefold.binding.verbs import cluster_of

    uri = address.uri

    try:
        cluster = cluster_of(settings)
    except InvalidError:
        hint = (
            "if it was deleted by other means, name the brokers: their outcomes say what was folded into it"
        )
        raise NotATableError(missing.message, where=uri, hint=hint) from missing
    branches = reported_branches(uri, cluster)
    if not branches:
        raise NotATableError(
            f"{missing.message}, and the outcomes report none",
            where=uri,
            hint="check the table's name, and that these are its brokers and its outcomes topic",
        ) from missing
    newest = _version(branches)
    if not (noted and all(noted.covers(each.branch, at) for each in branches for at in each.positions)):
        _ask(uri, f"whose version {newest:,} was reported, does not exist. It will count as dropped", yes=yes)
        _check_missing(address)
        note(address, branches)
    if as_json:
        print_json({"table": uri, "version": newest})
    else:
        print_line(f"{uri}: counts as dropped; the last version that was reported is {newest:,}")


def _check_missing(address: TableAddress) -> None:
    """Raises `PreconditionError` if the table exists now, as its store may have become reachable again."""
    from lakefold.binding.drop_table import existing_branches

    try:
        existing_branches(address)
    except NotATableError:
        return
    raise PreconditionError(
        "the table exists again", where=address.uri, hint="run the command again to delete it"
    )


def _ask(uri: str, what: str, *, yes: bool) -> None:
    from lakefold_table.uri import parse_location

    if yes:
        return
    location = parse_location(uri)
    name = location.segments[-1] if location.segments else location.authority
    if click.prompt(f"{uri}, {what}. To confirm, type the last part of its URI", err=True) != name:
        hint = f"type {name}, the part after the last / of its URI, or use --yes"
        raise InvalidError("that is not the table's name; nothing was deleted", where=uri, hint=hint)


def _version(branches: tuple[DroppedBranch, ...]) -> int:
    return next((each.version for each in branches if not each.branch), 0)


def _print_progress(removed: int) -> None:
    print_line(f"{removed:,} objects removed", err=True)
