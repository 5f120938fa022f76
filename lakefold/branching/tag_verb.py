"""`lakefold tag`: gives a version of a table a name, moves the name, or removes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakefold.branching.chosen_version import VersionChoice, version_options
from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_table.versions.refs import Refs


@verb(
    "lakefold tag /data/flights release-3",
    "lakefold tag /data/flights release-3 --version 12",
    "lakefold tag /data/flights release-3 --version 14 --move",
    "lakefold tag /data/flights release-3 --delete",
    "lakefold show /data/flights --tag release-3",
)
@click.argument("table")
@click.argument("name")
@version_options("Tag the version that")
@click.option("--move", is_flag=True, help="Let the tag name this version if it exists already.")
@click.option("--delete", is_flag=True, help="Remove the tag; the version stays until a clean-up.")
@settings_options(*STORE)
@json_option
def command(
    settings: Settings,
    table: str,
    name: str,
    *,
    choice: VersionChoice,
    move: bool,
    delete: bool,
    as_json: bool,
) -> None:
    """Give a version of TABLE the name NAME: the newest version, or the one that is chosen.

    Clean-ups keep a version that a tag names. A tag is a file beside the versions, which every Lance client
    reads. It is written at once and doesn't go through the log, so no committer is needed.
    """
    if delete and (move or not choice.is_newest or choice.branch is not None):
        raise click.UsageError("--delete removes the tag, whichever version it names; leave the others out")
    from lakefold_reader.opening import open_branch
    from lakefold_reader.versions.branches import main_and_branch
    from lakefold_table.versions.refs import Refs

    _check_free(name)
    if delete:
        main, _ = main_and_branch(open_branch(table, None, settings.storage_options))
        Refs(main.storage).delete_tag(name)
        version, branch = None, ""
    else:
        chosen = choice.find(table, settings.storage_options)
        main, version, branch = chosen.main, chosen.version, chosen.branch
        _name(Refs(main.storage), name, version, branch or None, move=move)
    if as_json:
        print_json({"table": main.uri, "tag": name, "version": version, "branch": branch, "deleted": delete})
    elif version is None:
        print_line(f"tag {name} removed")
    else:
        print_line(f"tag {name} names version {version:,}" + (f" of branch {branch}" if branch else ""))


def _check_free(name: str) -> None:
    """Raises `InvalidError` for the name of a consumer's tag."""
    from lakefold_reader.consumers.consumers import TAG

    if name.startswith(TAG):
        message = f"the tag {name} belongs to a named consumer"
        raise InvalidError(message, hint="use `lakefold consumers TABLE --set` or `--drop`")


def _name(refs: Refs, name: str, version: int, branch: str | None, *, move: bool) -> None:
    """Creates the tag, or moves it if it exists and may be moved. Raises `InvalidError` if it may not."""
    from lakefold_table.versions.refs import UnknownRefError

    if move:
        try:
            refs.update_tag(name, version, branch=branch)
        except UnknownRefError:
            pass
        else:
            return
    refs.create_tag(name, version, branch=branch)
