"""The demo's report: the comparison of rows, the table's history, the throughput, and what to try next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import lakefold
from lakefold.console.output import print_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.demo.folder import Folder
    from lakefold.demo.run import Result
    from lakefold_reader.snapshot.history import HistoryRow

_MB: Final = 1_000_000
_CLOCKS_MS: Final = 5
"""Shorter times can't be measured, because they are differences between two clocks."""


@dataclass(frozen=True)
class Report:
    """The result of a run, and its table. `total_seconds` is the duration of the whole demo."""

    folder: Folder
    result: Result
    history: Sequence[HistoryRow]
    table_size: int
    total_seconds: float

    @property
    def transactions(self) -> int:
        """The number of proposals that were folded."""
        return sum(row.entries or 0 for row in self.history)


def report_of(folder: Folder, result: Result, total_seconds: float) -> Report:
    """Returns the report of a run; reads the table's history and size."""
    history = list(lakefold.open(folder.table).history())
    size = sum(path.stat().st_size for path in folder.table.rglob("*") if path.is_file())
    return Report(folder, result, history, size, total_seconds)


def as_json(report: Report) -> dict[str, Any]:
    """Returns the report as a single document. Times are in seconds, sizes in bytes."""
    result = report.result
    return {
        "rows": result.rows,
        "event_bytes": result.size,
        "seconds": round(result.seconds, 3),
        "total_seconds": round(report.total_seconds, 3),
        "rows_per_second": round(result.rows / result.seconds),
        "median_batch": {"rows": result.pace[0], "seconds": round(result.pace[1], 3)},
        "versions": len(report.history),
        "transactions": report.transactions,
        "table": str(report.folder.table),
        "table_bytes": report.table_size,
        "services": {
            "services": result.services.services,
            "rows": result.services.rows,
            "versions": result.services.versions,
            "same": result.services.same,
        },
        "verification": [
            {"witness": each.name, "rows": each.saw.rows, "checksum": str(each.saw), "same": each.same}
            for each in result.verifications
        ],
    }


def print_report(report: Report) -> None:
    """Prints the report as plain lines that a terminal can wrap and a user can copy."""
    verifications = report.result.verifications
    _head("Verification: are the rows in the table those of the CSV file, each exactly once?")
    rows = [[each.name, each.saw.rows, str(each.saw), _verdict(each.same)] for each in verifications]
    print_columns(["read by", "rows", "checksum of all columns", ""], rows)
    click.echo("Yes." if all(each.same for each in verifications) else "NO.")
    services = report.result.services
    click.echo(
        f"Beside it {services.services} services appended {services.rows:,} rows to another table, all at "
        f"once, in {services.versions:,} versions: "
        f"{'each row is there once' if services.same else 'ROWS ARE MISSING OR REPEATED'}"
    )
    _print_history(report)
    _print_figures(report)
    _print_advice(report)


def _print_history(report: Report) -> None:
    _head("History: the operation of each version, and its positions in the log")
    rows = [
        [row.version, row.operation, _offsets(row), _batches(row), row.rows_in, row.files_in, _visible(row)]
        for row in report.history
    ]
    head = ["version", "operation", "log offset", "app:batch", "rows", "files", "commit latency, ms"]
    print_columns(head, rows)


def _print_figures(report: Report) -> None:
    result = report.result
    rows, megabytes = result.rows / result.seconds, result.size / result.seconds / _MB
    _head("Throughput")
    click.echo(
        f"{result.rows:,} rows ({result.size / _MB:.0f} MB of JSON) in {result.seconds:.1f} s, "
        f"including the kill of the committer: {rows:,.0f} rows/s, {megabytes:.1f} MB/s"
    )
    batch, pause = result.pace
    click.echo(f"the median batch: {batch:,} rows every {pause:.1f} s, {batch / pause:,.0f} rows/s")
    click.echo(f"{report.transactions} transactions in {len(report.history)} versions")
    click.echo(f"the whole demo took {report.total_seconds:.0f} s")


def _print_advice(report: Report) -> None:
    folder, advice = report.folder, advice_for(report.folder)
    _head("Where the files are")
    click.echo(f"table   {folder.table} ({report.table_size / _MB:.1f} MB)")
    click.echo(f"        {folder.services_table} of the services")
    click.echo(f"logs    {folder.logs}, {folder.broker}/broker.log")
    click.echo("All processes are stopped. The next demo replaces this folder.")
    _head("What to try next, from this folder")
    _lines(advice.table)
    _head(f"What to try in Python ({advice.python})")
    _lines(advice.prompt)
    _head("Start the same log again: a new committer finds all of it folded, and adds nothing twice")
    _lines(advice.log)


def _offsets(row: HistoryRow) -> str | None:
    if row.positions is None:
        return None
    first, last = row.positions.first, row.positions.last
    return str(first) if first == last else f"{first}-{last}"


def _batches(row: HistoryRow) -> str | None:
    texts = (
        f"{app.app_id}:{app.first}" if app.first == app.last else f"{app.app_id}:{app.first}-{app.last}"
        for app in row.apps
    )
    return ", ".join(texts) or None


def _visible(row: HistoryRow) -> str | None:
    """Returns the milliseconds from the log time of the last entry to the time of the version's file."""
    if row.seconds_to_visible is None:
        return None
    milliseconds = round(row.seconds_to_visible * 1000)
    return f"{milliseconds:,}" if milliseconds > _CLOCKS_MS else f"< {_CLOCKS_MS}"


def _verdict(same: bool) -> str:  # noqa: FBT001 - a value to be shown
    return "the same" if same else "NOT THE SAME"


def _head(text: str) -> None:
    click.echo()
    click.secho(text, bold=True)


def _lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line)


@dataclass(frozen=True, slots=True)
class Advice:
    """Commands for a shell in the current folder, and lines for a Python prompt in that folder."""

    python: str
    table: Sequence[str]
    prompt: Sequence[str]
    log: Sequence[str]


def advice_for(folder: Folder) -> Advice:
    """Returns the commands for the table, broker and logs of the run in `folder`."""
    lakefold, python = _lakefold(), _program("python")
    table, root, broker = (_short(path) for path in (folder.table, folder.root, folder.broker))
    quoted = repr(_short_text(folder.table))
    module, count = folder.table_format.python
    return Advice(
        python=python,
        table=(
            f"{lakefold} log {table}",
            f"{lakefold} show {table} --version 2",
            f"{lakefold} tail {table} --from 0",
        ),
        prompt=(
            f"import lakefold, {module}",
            f"table = lakefold.open({quoted})",
            'table.to_arrow(columns=["time_hour", "carrier", "dest", "dep_delay"], filter="dep_delay > 600")',
            f"next(lakefold.tail({quoted}, start=1)).inserted()",
            count.format(quoted),
        ),
        log=(
            f"{lakefold} up --dir {broker}",
            f"{lakefold} committer --root {root} --http-port 0 --until-caught-up",
            f"{lakefold} down",
        ),
    )


def _lakefold() -> str:
    """Returns how to call `lakefold` from the current folder, even if its script was not installed."""
    script = Path(sys.executable).with_name("lakefold")
    return _program("lakefold") if script.exists() else f"{_program('python')} -m lakefold"


def _program(name: str) -> str:
    """Returns how to call a program of this environment: by its name if a shell finds the same program."""
    path = Path(sys.executable).with_name(name)
    on_path = shutil.which(name)
    return name if on_path is not None and Path(on_path).absolute() == path else _short(path)


def _short(path: Path) -> str:
    return shlex.quote(_short_text(path))


def _short_text(path: Path) -> str:
    """Returns a path relative to the current folder if it is inside it, else the absolute path."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else os.fspath(path)
