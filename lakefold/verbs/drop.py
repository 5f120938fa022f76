"""`lakefold drop`: a table that follows no log is deleted, files and all."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefold.options import STORE, examples, json_option, settings_options
from lakefold.output import print_json
from lakefold_table.errors import InvalidError, NotATableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold.settings import Settings


@click.command(
    epilog=examples("lakefold drop /data/flights", "lakefold drop /data/flights --yes --json"),
)
@click.argument("table")
@click.option("--yes", is_flag=True, help="Don't ask: delete it.")
@settings_options(*STORE)
@json_option
def command(settings: Settings, table: str, *, yes: bool, as_json: bool) -> None:
    """Delete TABLE: its folder with all versions, branches and data files. Nothing brings it back.

    Refuses while it, or a branch of it, is bound to a log (`lakefold detach` ends that), so no committer puts
    a version where it lay. Asks for the table's name, unless --yes is given. It vanishes at once; its files
    are removed after that, and where that is cut short they lie in a folder beside it whose name ends in
    `.dropped`.
    """
    from lakefold_table.uri import canonical

    uri = canonical(table)
    path = _folder(uri)
    newest = _check_free(uri, settings.storage_options)
    if not yes:
        typed = click.prompt(f"{uri}, version {newest:,}, will be deleted. Type its last name", err=True)
        if typed != path.name:
            raise InvalidError("that is not its name: nothing was deleted", where=uri)
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.dropped")
    try:
        path.rename(aside)
    except OSError as error:
        raise InvalidError(f"its folder can't be moved aside: {error.strerror}", where=uri) from error
    shutil.rmtree(aside)
    if as_json:
        print_json({"table": uri, "version": newest})
    else:
        click.echo(f"{uri}: dropped, its last version was {newest:,}")


def _folder(uri: str) -> Path:
    from lakefold_table.uri import local_path

    if not uri.startswith("file://"):
        raise InvalidError("only tables on local disks can be dropped", where=uri, hint="delete its folder")
    return Path(local_path(uri))


def _check_free(uri: str, storage_options: Mapping[str, str]) -> int:
    """The newest version of the main line. Raises `InvalidError` while any line is bound to a log."""
    from lakefold.moving import lines_of
    from lakefold_committer.lines import versions_of
    from lakefold_committer.opening import open_table
    from lakefold_table.lance.table import LanceFormat

    newest = 0
    for branch, root in lines_of(uri, storage_options).items():
        table = open_table(LanceFormat(), versions_of(uri, branch, storage_options), root)
        bound = table.marks.position
        if bound is not None:
            raise InvalidError(
                f"it is bound to {bound}: a committer may fold it at any time",
                where=root,
                hint="`lakefold detach` first",
            )
        newest = table.version
    if not newest:
        raise NotATableError("there is no table here", where=uri)
    return newest
