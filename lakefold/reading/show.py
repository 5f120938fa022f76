"""`lakefold show`: what the manifest of a version of a table contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import (
    STORE,
    check_one_of,
    json_option,
    point_options,
    settings_options,
    verb,
)
from lakefold.console.output import print_columns, print_json, print_line, ranges_text

if TYPE_CHECKING:
    from lakefold.console.options import Point
    from lakefold.console.settings import Settings


@verb(
    "lakefold show /data/flights",
    "lakefold show /data/flights --version 12",
    "lakefold show /data/flights --tag release-3",
    "lakefold show /data/delta-events --version 0",
    "lakefold show /data/flights --as-of 2026-05-01T12:00:00Z --json",
    "lakefold show /data/flights --at-position lakefold.transactions/0@4711",
)
@click.argument("table")
@settings_options(*STORE)
@click.option(
    "--version", "number", type=click.IntRange(min=0), help="The version to show.  [default: the newest]"
)
@click.option("--branch", metavar="NAME", help="The branch to read.  [default: main, or the branch at TABLE]")
@click.option("--tag", help="The version that this tag names, on its branch.")
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
    """Show a version of TABLE: time, fragments, rows, schema, indices, configuration, feature flags, marks.

    The marks are the committer's record of the log: the last position that was folded, and the batches of
    each app. Only the manifest is read, no data files.
    """
    check_one_of(point, version=number, tag=tag)
    if tag is not None and branch is not None:
        raise click.UsageError("a tag belongs to one branch already; leave --branch out")
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
    document = plain_table(opened)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _print(version: dict[str, Any]) -> None:
    """Prints a version as text: single facts, each on a line, then lists as tables."""
    facts = {
        "table": version["table"],
        "format": version["format"],
        **({"branch": version["branch"]} if version["branch"] else {}),
        "version": f"{version['version']:,}",
        "timestamp": version["timestamp"],
        "fragments": f"{version['fragments']:,}",
        "rows": f"{version['rows']:,}",
        "deleted rows": f"{version['deleted_rows']:,}",
        "data files": _data_files(version),
    }
    for name, value in facts.items():
        print_line(f"{name:<14}{value}")
    _section("schema", ("column", "type", "null"), [_column(field) for field in version["schema"]])
    _section(
        "indices",
        ("index", "columns", "type", "covers"),
        [_index(index, version["fragments"]) for index in version["indices"]],
    )
    _section(
        "other roots",
        ("root", "name", "path"),
        [(root["id"], root["name"], root["path"]) for root in version["roots"]],
    )
    _section("config", ("key", "value"), sorted(version["config"].items()))
    _section("metadata", ("key", "value"), sorted(version["metadata"].items()))
    _section("commit properties", ("key", "value"), sorted(version["commit_properties"].items()))
    _section("feature flags", ("flag", "for", "meaning"), [_feature(flag) for flag in version["features"]])
    if version["marks"] is None:
        click.echo("\nmarks: none; no committer has written this table")
    else:
        _print_marks(version["marks"])


def _data_files(version: dict[str, Any]) -> str:
    if version["format"] == "delta":
        return "Parquet"
    return f"version {version['storage_version'] or 'unknown'}"


def _print_marks(marks: dict[str, Any]) -> None:
    click.echo("\nmarks")
    print_line(f"  table id    {marks['table_id']}")
    print_line(
        f"  made for    version {marks['version']:,} by epoch {marks['epoch']:,}, rules {marks['rules']}"
    )
    if marks["position"] is not None:
        at = marks["position"]
        partition = f"{at['topic']}/{at['partition']}"
        reached = f"{partition}@{at['offset']}" if at["offset"] >= 0 else f"the start of {partition}"
        print_line(f"  folded to   {reached} (topic id {at['topic_id']})")
    for move in marks["moves"]:
        print_line(f"  {move['why']}: {move['text']}, {move['time']}")
    for name, offset in marks["file_logs"].items():
        print_line(f"  folded to   file log {name}@{offset}")
    rows = [(app, ranges_text(mark["batches"]), mark["time"]) for app, mark in marks["apps"].items()]
    _section("batches folded", ("app", "batches", "last"), rows)


def _section(title: str, header: tuple[str, ...], rows: list[Any]) -> None:
    if rows:
        click.echo(f"\n{title}")
        print_columns(header, rows)


def _column(field: dict[str, Any]) -> tuple[str, str, str]:
    return field["name"], field["type"], "yes" if field["nullable"] else "no"


def _index(index: dict[str, Any], fragments: int) -> tuple[str, str, str, str]:
    covered = index["covered_fragments"]
    covers = "unknown" if covered is None else f"{covered:,} of {fragments:,} fragments"
    return index["name"], ", ".join(index["columns"]), index["type"], covers


def _feature(feature: dict[str, Any]) -> tuple[int, str, str]:
    who = [name for name in ("readers", "writers") if feature[name]]
    return feature["flag"], " and ".join(who), feature["meaning"]
