"""`lakefold cleanup`: removes old versions, except those that a consumer, tag or branch still needs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_columns, print_json, print_line, print_table

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_reader.consumers.expire_versions import Plan
    from lakefold_reader.consumers.kept_versions import KeptFor
    from lakefold_reader.format.snapshots import Cleaned
    from lakefold_reader.format.source import Source

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_AGE: Final = re.compile(r"(\d{1,6})([dhms])")


class Age(click.ParamType):  # type: ignore[type-arg]
    """The type of an option that is a duration such as 14d, 12h, 30m or 0s."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Returns the duration. Raises `click.BadParameter` if `value` is not a duration."""
        match = _AGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not an age; write it as 14d, 12h, 30m or 0s", param, ctx)
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


@verb(
    "lakefold cleanup /data/flights --dry-run",
    "lakefold cleanup /data/flights --older-than 30d --keep 100",
    "lakefold cleanup /data/flights --kept",
    "lakefold cleanup /data/flights --branch audit --json",
)
@click.argument("table")
@settings_options(*STORE)
@click.option(
    "--branch", metavar="NAME", help="The branch to clean up.  [default: main, or the branch at TABLE]"
)
@click.option(
    "--older-than",
    type=Age(),
    default="14d",
    show_default=True,
    help="The age above which versions are removed.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Keep at least this many of the newest versions.",
)
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would be removed.")
@click.option(
    "--kept",
    is_flag=True,
    help="Remove nothing; print for whom old versions are kept, and the files that only they need.",
)
@json_option
def command(
    settings: Settings,
    table: str,
    *,
    branch: str | None,
    older_than: timedelta,
    keep: int,
    dry_run: bool,
    kept: bool,
    as_json: bool,
) -> None:
    """Remove old versions of TABLE and the files that only they need.

    A version is kept if a named consumer hasn't read it, if a tag names it, or if a branch was made from it.
    Files that no version names are kept for seven days, because they may belong to proposals that wait in the
    log. A proposal that was built on a removed version is refused and must be built again.

    Of a Delta table only versions before a checkpoint are removed, and none in which a tombstone has not
    expired (delta.deletedFileRetentionDuration). Files that no version needs are left to `lakefold maintain`.
    """
    from lakefold_reader.consumers.expire_versions import clean_up, plan
    from lakefold_reader.consumers.kept_versions import kept_versions
    from lakefold_reader.formats import on_branch

    def counted(source: Source) -> tuple[Source, list[KeptFor]]:
        return source, kept_versions(source, plan(source, older_than, keep=keep))

    def cleaned(source: Source) -> tuple[Source, Plan, Cleaned]:
        planned = plan(source, older_than, keep=keep)
        return source, planned, clean_up(source, planned, dry_run=dry_run)

    if kept:
        source, rows = on_branch(table, branch, settings.storage_options, counted)
        _print_kept(source, rows, as_json=as_json)
        return

    source, planned, removed = on_branch(table, branch, settings.storage_options, cleaned)
    if as_json:
        plain = _plain(planned, removed)
        print_json({"table": source.uri, "format": source.format.name, **plain, "dry_run": dry_run})
    else:
        print_table(source.uri, source.format.name)
        _print(planned, removed, dry_run=dry_run)


def _print_kept(source: Source, rows: list[KeptFor], *, as_json: bool) -> None:
    from lakefold_reader.as_json import plain_kept

    if as_json:
        plain = [plain_kept(row) for row in rows]
        print_json({"table": source.uri, "format": source.format.name, "kept": plain})
    else:
        print_table(source.uri, source.format.name)
        print_columns(
            ("kept for", "names", "versions", "data files", "bytes"),
            [
                (
                    "nobody" if row.reason == "removable" else row.reason,
                    ", ".join(row.names),
                    row.versions,
                    "not known" if row.files is None else f"{row.files:,}",
                    "not known" if row.bytes is None else f"{row.bytes:,}",
                )
                for row in rows
            ],
        )


def _plain(planned: Plan, removed: Cleaned) -> dict[str, object]:
    return {
        "removed_versions": removed.versions,
        "removed_data_files": removed.data_files,
        "removed_bytes": removed.bytes,
        "held_by": [consumer.name for consumer in planned.held_by],
    }


def _print(planned: Plan, removed: Cleaned, *, dry_run: bool) -> None:
    would = "would be removed" if dry_run else "removed"
    files = f"{removed.data_files:,} data files, {removed.bytes:,} bytes"
    print_line(f"{removed.versions:,} versions {would}, with {files}")
    for consumer in planned.held_by:
        read = "nothing yet" if consumer.at is None else f"up to version {consumer.version:,}"
        print_line(f"versions are kept for the consumer {consumer.name}, which has read {read}")
