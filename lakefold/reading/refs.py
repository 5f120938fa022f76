"""`lakefold refs`: a table's tags and branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_columns, print_json, print_table

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_reader.format.source import Source
    from lakefold_table.versions.refs import Branch, Tag


@verb(
    "lakefold refs /data/flights",
    "lakefold refs s3://lake/flights --json | jq '.tags[].name'",
    "lakefold show /data/flights --tag release-3",
    "lakefold log /data/flights --branch audit",
)
@click.argument("table")
@settings_options(*STORE)
@json_option
def command(settings: Settings, table: str, *, as_json: bool) -> None:
    """List the branches of TABLE, and its tags with the versions that they name.

    A tag named lakefold-consumer-NAME keeps the versions that this consumer hasn't read; `lakefold consumers`
    moves it. `lakefold tag` and `lakefold branch` create tags and branches, and so can other Lance clients.
    """
    from lakefold_reader.formats import open_branch
    from lakefold_reader.versions.branches import main_and_branch

    main, _ = main_and_branch(open_branch(table, None, settings.storage_options))
    document = refs_document(main)
    if as_json:
        print_json(document)
    else:
        print_table(main.uri, main.format.name)
        _print(document)


def refs_document(main: Source) -> dict[str, Any]:
    """Returns the tags and branches of a table as plain values. `main`: its main branch."""
    from lakefold_reader.versions.listing import newest_of
    from lakefold_table.versions.refs import Refs

    refs = Refs(main.storage)
    return {
        "table": main.uri,
        "format": main.format.name,
        "version": newest_of(main),
        "tags": [_tag(name, tag) for name, tag in refs.tags().items()],
        "branches": [_branch(main, name, branch) for name, branch in refs.branches().items()],
    }


def _tag(name: str, tag: Tag) -> dict[str, Any]:
    return {
        "name": name,
        "version": tag.version,
        "branch": tag.branch or "",
        "created_at": _time(tag.created_ns),
        "updated_at": _time(tag.updated_ns),
        "metadata": dict(tag.metadata),
    }


def _branch(main: Source, name: str, branch: Branch) -> dict[str, Any]:
    """Returns what is recorded of a branch, and its newest version, None if the branch has no versions."""
    return {
        "name": name,
        "version": _newest(main, name),
        "parent_branch": branch.parent or "",
        "parent_version": branch.parent_version,
        "created_at": _time(branch.created_s * 1_000_000_000),
        "metadata": dict(branch.metadata),
    }


def _newest(main: Source, name: str) -> int | None:
    from lakefold_reader.versions.branches import branched
    from lakefold_reader.versions.listing import newest_of
    from lakefold_table.errors import NotATableError
    from lakefold_table.versions.refs import UnknownRefError

    try:
        return newest_of(branched(main, name))
    except (UnknownRefError, NotATableError):
        return None


def _time(nanoseconds: int | None) -> str | None:
    """Returns a time as ISO 8601 in UTC. Returns None if it is unknown or outside the calendar's range."""
    from lakefold_reader.as_json import iso
    from lakefold_reader.versions.times import time_of
    from lakefold_table.errors import DamagedError

    try:
        return None if nanoseconds is None else iso(time_of(nanoseconds // 1000))
    except DamagedError:
        return None


def _print(refs: dict[str, Any]) -> None:
    rows: list[tuple[str, int | None, str | None, str | None]] = [("main", refs["version"], None, None)]
    for branch in refs["branches"]:
        parent = f"{branch['parent_branch'] or 'main'}, version {branch['parent_version']:,}"
        rows.append((branch["name"], branch["version"], parent, branch["created_at"]))
    print_columns(("branch", "newest", "created from", "created at"), rows)
    click.echo()
    if not refs["tags"]:
        click.echo("no tags")
        return
    print_columns(
        ("tag", "version", "branch", "moved at"),
        [(tag["name"], tag["version"], tag["branch"] or "main", tag["updated_at"]) for tag in refs["tags"]],
    )
