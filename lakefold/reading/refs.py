"""`lakefold refs`: the names that a table's versions have, its tags and branches."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import STORE, examples, json_option, settings_options
from lakefold.console.output import print_columns, print_json

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.refs.files import Branch, Tag


@click.command(
    epilog=examples(
        "lakefold refs /data/flights",
        "lakefold refs s3://lake/flights --json | jq '.tags[].name'",
        "lakefold show /data/flights --tag release-3",
        "lakefold log /data/flights --branch audit",
    )
)
@click.argument("table")
@settings_options(*STORE)
@json_option
def command(settings: Settings, table: str, *, as_json: bool) -> None:
    """List the tags of TABLE with the versions that they name, and its branches.

    A tag named lakefold-consumer-NAME keeps what that consumer hasn't read; `lakefold consumers` moves it.
    Tags and branches are made by any Lance client: ds.tags.create("release-3", 12) of pylance.
    """
    from lakefold_reader.opening import open_branch
    from lakefold_reader.versions.branches import main_and_branch
    from lakefold_reader.versions.listing import newest_of
    from lakefold_table.versions.refs import Refs

    main, _ = main_and_branch(open_branch(table, None, settings.storage_options))
    refs = Refs(main.storage)
    told = {
        "table": main.uri,
        "version": newest_of(main),
        "tags": [_tag(name, tag) for name, tag in refs.tags().items()],
        "branches": [_branch(main, name, branch) for name, branch in refs.branches().items()],
    }
    if as_json:
        print_json(told)
    else:
        _print(told)


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
    """What is written of a branch, and its newest version: None where it has none any more."""
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
    """ISO 8601 in UTC; None where none is told, or one that no calendar has."""
    from lakefold_reader.as_json import iso
    from lakefold_table.lance.refs.files import EPOCH

    if nanoseconds is None:
        return None
    try:
        moment: datetime = EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None
    return iso(moment)


def _print(told: dict[str, Any]) -> None:
    lines: list[tuple[str, int | None, str | None, str | None]] = [("main", told["version"], None, None)]
    for one in told["branches"]:
        parent = f"{one['parent_branch'] or 'main'}, version {one['parent_version']:,}"
        lines.append((one["name"], one["version"], parent, one["created_at"]))
    print_columns(("branch", "newest", "made from", "made at"), lines)
    click.echo()
    if not told["tags"]:
        click.echo("no tags")
        return
    print_columns(
        ("tag", "version", "of", "moved at"),
        [(one["name"], one["version"], one["branch"] or "main", one["updated_at"]) for one in told["tags"]],
    )
