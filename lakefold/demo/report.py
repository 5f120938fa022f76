"""The demo's report: the comparison of rows, the table's history, the throughput, and what to try next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import lakefold
from lakefold.console.output import print_columns
from lakefold.reading.log import print_versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.demo.folder import Folder
    from lakefold.demo.verification import DemoVerification, ServicesVerification
    from lakefold_reader.snapshot.history import HistoryRow

_MB: Final = 1_000_000


@dataclass(frozen=True)
class Report:
    """The result of a run, and its table.

    `size` is the bytes of all events, `seconds` the time from the query's start to the last row that was
    read, `total_seconds` the duration of the whole demo, `pace` the median rows and seconds of a version.
    """

    folder: Folder
    rows: int
    size: int
    seconds: float
    total_seconds: float
    pace: tuple[int, float]
    verifications: Sequence[DemoVerification]
    services: ServicesVerification

    @cached_property
    def history(self) -> Sequence[HistoryRow]:
        """The versions of the table, newest first."""
        return list(lakefold.open(self.folder.table).history())

    @property
    def transactions(self) -> int:
        """The number of proposals that were folded."""
        return sum(row.entries or 0 for row in self.history)

    @property
    def table_size(self) -> int:
        """The bytes of the table's files."""
        return sum(path.stat().st_size for path in self.folder.table.rglob("*") if path.is_file())


def as_json(report: Report) -> dict[str, Any]:
    """Returns the report as a single document. Times are in seconds, sizes in bytes."""
    return {
        "rows": report.rows,
        "event_bytes": report.size,
        "seconds": round(report.seconds, 3),
        "total_seconds": round(report.total_seconds, 3),
        "rows_per_second": round(report.rows / report.seconds),
        "median_batch": {"rows": report.pace[0], "seconds": round(report.pace[1], 3)},
        "versions": len(report.history),
        "transactions": report.transactions,
        "table": str(report.folder.table),
        "table_bytes": report.table_size,
        "services": asdict(report.services),
        "verification": [
            {"witness": each.name, "rows": each.saw.rows, "checksum": str(each.saw), "same": each.same}
            for each in report.verifications
        ],
    }


def print_report(report: Report) -> None:
    """Prints the report as plain lines that a terminal can wrap and a user can copy."""
    services, folder = report.services, report.folder
    _section("Verification: are the rows in the table those of the CSV file, each exactly once?")
    verdicts = {True: "the same", False: "NOT THE SAME"}
    rows = [[each.name, each.saw.rows, str(each.saw), verdicts[each.same]] for each in report.verifications]
    print_columns(["read by", "rows", "checksum of all columns", ""], rows)
    click.echo("Yes." if all(each.same for each in report.verifications) else "NO.")
    click.echo(
        f"Beside it {services.services} services appended {services.rows:,} rows to another table, all at "
        f"once, in {services.versions:,} versions: "
        f"{'each row is there once' if services.same else 'ROWS ARE MISSING OR REPEATED'}"
    )
    _section("History: the operation of each version, and its positions in the log")
    print_versions(report.history)
    _print_figures(report)
    _section(
        "Where the files are",
        f"table   {folder.table} ({report.table_size / _MB:.1f} MB)",
        f"        {folder.services_table} of the services",
        f"logs    {folder.logs}, {folder.broker}/broker.log",
        "All processes are stopped. The next demo replaces this folder.",
    )
    for heading, lines in advice_for(folder).items():
        _section(heading, *lines)


def _print_figures(report: Report) -> None:
    rows, megabytes = report.rows / report.seconds, report.size / report.seconds / _MB
    batch, pause = report.pace
    _section(
        "Throughput",
        f"{report.rows:,} rows ({report.size / _MB:.0f} MB of JSON) in {report.seconds:.1f} s, "
        f"including the kill of the committer: {rows:,.0f} rows/s, {megabytes:.1f} MB/s",
        f"the median batch: {batch:,} rows every {pause:.1f} s, {batch / pause:,.0f} rows/s",
        f"{report.transactions} transactions in {len(report.history)} versions",
        f"the whole demo took {report.total_seconds:.0f} s",
    )


def _section(heading: str, *lines: str) -> None:
    click.echo()
    click.secho(heading, bold=True)
    for line in lines:
        click.echo(line)


def advice_for(folder: Folder) -> dict[str, Sequence[str]]:
    """Returns what to try with the table, the tables in Python, and the log of the run in `folder`.

    By headings: commands for a shell in the current folder, and lines for a Python prompt in that folder.
    """
    lakefold, python = _program("lakefold"), _program("python")
    table, root, broker = (shlex.quote(_short(path)) for path in (folder.table, folder.root, folder.broker))
    quoted, format_ = repr(_short(folder.table)), folder.table_format
    return {
        "What to try next, from this folder": (
            f"{lakefold} log {table}",
            f"{lakefold} show {table} --version 2",
            f"{lakefold} tail {table} --from 0",
        ),
        f"What to try in Python ({python})": (
            f"import lakefold, {format_.module}",
            f"table = lakefold.open({quoted})",
            'table.to_arrow(columns=["time_hour", "carrier", "dest", "dep_delay"], filter="dep_delay > 600")',
            f"next(lakefold.tail({quoted}, start=1)).inserted()",
            format_.count.format(quoted),
        ),
        "Start the same log again: a new committer finds all of it folded, and adds nothing twice": (
            f"{lakefold} up --dir {broker}",
            f"{lakefold} committer --root {root} --http-port 0 --until-caught-up",
            f"{lakefold} down",
        ),
    }


def _program(name: str) -> str:
    """Returns how to call a program of this environment: by its name if a shell finds the same program."""
    path = Path(sys.executable).with_name(name)
    on_path = shutil.which(name)
    is_found = on_path is not None and Path(on_path).absolute() == path
    return name if is_found else shlex.quote(_short(path))


def _short(path: Path) -> str:
    """Returns a path relative to the current folder if it is inside it, else the absolute path."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else os.fspath(path)
