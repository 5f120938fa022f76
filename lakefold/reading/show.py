"""`lakefold show`: one version of a table, as its manifest tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import (
    STORE,
    check_one_of,
    examples,
    json_option,
    point_options,
    settings_options,
)
from lakefold.console.output import print_columns, print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.options import Point
    from lakefold.console.settings import Settings


@click.command(
    epilog=examples(
        "lakefold show /data/flights",
        "lakefold show /data/flights --version 12",
        "lakefold show /data/flights --tag release-3",
        "lakefold show /data/flights --as-of 2026-05-01T12:00:00Z --json",
        "lakefold show /data/flights --at-position lakefold.transactions/0@4711",
    )
)
@click.argument("table")
@settings_options(*STORE)
@click.option(
    "--version", "number", type=click.IntRange(min=1), help="The version to show.  [default: the newest]"
)
@click.option("--branch", metavar="NAME", help="The branch to look at.  [default: the line that TABLE is]")
@click.option("--tag", help="The version that a tag names, on whichever branch.")
@point_options("The version that")
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    number: int | None,
    branch: str | None,
    tag: str | None,
    point: Point,
    as_json: bool,
) -> None:
    """Show one version of TABLE: time, fragments, rows, schema, indices, configuration, feature flags, marks.

    The marks are what the version remembers of the log: the last position folded, and the batches of each
    app. Reads one manifest and no data.
    """
    check_one_of(point, version=number, tag=tag)
    if tag is not None and branch is not None:
        raise click.UsageError("a tag names its branch itself; leave --branch out")
    from lakefold_reader.as_json import plain_table
    from lakefold_reader.snapshot.snapshot import open_table

    opened = open_table(
        table,
        number,
        branch=branch,
        tag=tag,
        as_of=point.as_of,
        at_position=point.at_position,
        storage_options=settings.storage_options,
    )
    told = plain_table(opened)
    if as_json:
        print_json(told)
    else:
        _print(told)


def _print(told: dict[str, Any]) -> None:
    """For people: facts one a line, then the tables."""
    facts = {
        "table": told["table"],
        **({"branch": told["branch"]} if told["branch"] else {}),
        "version": f"{told['version']:,}",
        "timestamp": told["timestamp"],
        "fragments": f"{told['fragments']:,}",
        "rows": f"{told['rows']:,}",
        "deleted rows": f"{told['deleted_rows']:,}",
        "data files": f"version {told['storage_version']}" if told["storage_version"] else "version not told",
    }
    for name, value in facts.items():
        print_line(f"{name:<14}{value}")
    _section("schema", ("column", "type", "null"), [_column(one) for one in told["schema"]])
    _section(
        "indices",
        ("index", "columns", "type", "covers"),
        [_index(one, told["fragments"]) for one in told["indices"]],
    )
    _section(
        "other roots",
        ("root", "name", "path"),
        [(one["id"], one["name"], one["path"]) for one in told["roots"]],
    )
    _section("config", ("key", "value"), sorted(told["config"].items()))
    _section("metadata", ("key", "value"), sorted(told["metadata"].items()))
    _section("feature flags", ("flag", "for", "meaning"), [_feature(one) for one in told["features"]])
    if told["marks"] is None:
        click.echo("\nmarks: none, no committer has written this table")
    else:
        _print_marks(told["marks"])


def _print_marks(marks: dict[str, Any]) -> None:
    click.echo("\nmarks")
    print_line(f"  table id    {marks['table_id']}")
    print_line(
        f"  made for    version {marks['version']:,} by epoch {marks['epoch']:,}, rules {marks['rules']}"
    )
    if marks["position"] is not None:
        at = marks["position"]
        place = f"{at['topic']}/{at['partition']}"
        reached = f"{place}@{at['offset']}" if at["offset"] >= 0 else f"the start of {place}"
        print_line(f"  folded to   {reached} (topic id {at['topic_id']})")
    for move in marks["moves"]:
        print_line(f"  {move['why']}: {move['text']}, {move['time']}")
    for name, offset in marks["file_logs"].items():
        print_line(f"  folded to   file log {name}@{offset}")
    rows = [
        (app, ", ".join(f"{first}-{last}" for first, last in mark["batches"]), mark["time"])
        for app, mark in marks["apps"].items()
    ]
    _section("batches folded", ("app", "batches", "last"), rows)


def _section(title: str, header: tuple[str, ...], rows: list[Any]) -> None:
    if rows:
        click.echo(f"\n{title}")
        print_columns(header, rows)


def _column(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["name"], one["type"], "yes" if one["nullable"] else "no"


def _index(one: dict[str, Any], fragments: int) -> tuple[str, str, str, str]:
    covered = one["covered_fragments"]
    covers = "not told" if covered is None else f"{covered:,} of {fragments:,} fragments"
    return one["name"], ", ".join(one["columns"]), one["type"], covers


def _feature(one: dict[str, Any]) -> tuple[int, str, str]:
    who = [name for name in ("readers", "writers") if one[name]]
    return one["flag"], " and ".join(who), one["meaning"]
