"""`lakefold ls`: the tables below a folder or a bucket, with what their newest versions say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.output import print_columns, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.console.settings import Settings
    from lakefold_reader.format.source import Source

_NAMES = ("format", "version", "rows", "bytes", "changed", "error")


@verb(
    "lakefold ls /data",
    "lakefold ls s3://lake/sales --json | jq -r .table",
)
@click.argument("root")
@settings_options(*STORE)
@json_option
def command(settings: Settings, root: str, *, as_json: bool) -> None:
    """List the tables below ROOT, a folder or bucket prefix: format, version, rows, bytes and last change.

    With --json each is a line. Folders are searched three levels deep, hidden ones are not; nothing is
    searched for inside of tables. A table that can't be read has the reason instead. Of each only the newest
    version is read, and no data file. The bytes are those of the data files of this version.
    """
    from lakefold.setup.tables import all_tables, without_branches
    from lakefold_table.errors import NotATableError
    from lakefold_table.uri import canonical, local_path

    def warn(where: str) -> None:
        print_line(f"not all folders below {where} were searched: name one of them", err=True)

    uri = canonical(root)
    if uri.startswith("file:") and not Path(local_path(uri)).is_dir():
        raise NotATableError("there is no folder here", where=root, hint="is the path right?")
    tables = without_branches({*all_tables((uri,), settings.storage_options, warn)})
    rows = (_document(table, settings) for table in tables)
    if as_json:
        for row in rows:
            print_json(row)
    elif tables:
        print_columns(("table", *_NAMES), [[*row.values()] for row in rows])
    else:
        print_line(f"no tables below {root}", err=True)


def _document(table: str, settings: Settings) -> dict[str, Any]:
    """Returns what is listed of a table; None if its version does not say it."""
    from lakefold_reader.formats import in_its_format, open_source
    from lakefold_table.errors import LakefoldError

    row: dict[str, Any] = {"table": table, **dict.fromkeys(_NAMES)}
    try:
        return row | in_its_format(open_source(table, settings.storage_options), _figures)
    except LakefoldError as error:
        return row | {"error": error.message}


def _figures(source: Source) -> dict[str, Any]:
    from lakefold_reader.as_json import iso
    from lakefold_reader.snapshot.snapshot import table_of

    table = table_of(source)
    rows = [None if each.rows is None else each.rows - each.deleted for each in table.fragment_sizes()]
    return {
        "format": table.format,
        "version": table.version,
        "rows": _sum(rows),
        "bytes": _sum([size for _, size in table.data_files()]),
        "changed": iso(table.timestamp),
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
