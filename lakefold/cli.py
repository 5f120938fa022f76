"""The command line: finds a verb, loads it only when it is asked for, and turns errors into exit codes.

Operators and scripts rely on the exit codes and on `--json`, so both are settled here, once, for every verb.
Nothing heavy is imported: `lakefold --help` answers at once, and the committer never loads Arrow or Spark.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import signal
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

import click

from lakefold.console.interrupts import INTERRUPTED, end_at_once, raise_between_imports
from lakefold.console.output import print_json, print_line
from lakefold.console.streams import mend_streams
from lakefold_table.errors import InvalidError, LakefoldError, NotATableError

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE: Final = 2
"""Exit code: the command was called wrongly."""

_BROKEN_PIPE: Final = 1
"""Nobody reads stdout any more (`lakefold tail | head`); click's own code for it."""

MOST_NAMED: Final = 10
"""How many tables a hint names at most."""

EXTRAS: Final = {"confluent_kafka": "kafka", "prometheus_client": "committer", "pyspark": "ingest"}
"""The optional libraries, and the extra of the package that brings each."""

EXIT_CODES: Final = {
    0: "done; also tail --follow after Ctrl-C, a committer after Ctrl-C or SIGTERM",
    1: "nobody reads stdout any more (| head), or a fault in Lakefold",
    2: "wrong usage",
    3: "refused: a conflict or an invalid proposal",
    4: "damaged data",
    5: "try again: not reachable, or timed out",
    INTERRUPTED: "interrupted by Ctrl-C (SIGINT)",
    128 + signal.SIGTERM: "told to end (SIGTERM)",
}
"""What each exit code means."""

_EPILOG: Final = "\b\nExit codes:\n" + "\n".join(f"  {code:3}  {text}" for code, text in EXIT_CODES.items())


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb before it is loaded: where its command lies, and what `--help` says of it.

    `runs_on`: it ends when it is told to stop, and sees to that by itself once it has begun.
    """

    target: str
    summary: str
    runs_on: bool = False

    def load(self) -> click.Command:
        """Import its module and give its command."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


VERBS: Final = {
    "up": Verb("lakefold.setup.up:command", "Start a local Kafka broker for this folder."),
    "down": Verb("lakefold.setup.down:command", "Stop the local Kafka broker."),
    "status": Verb("lakefold.setup.status:command", "Show brokers, topics, lag and tables."),
    "demo": Verb("lakefold.demo.demo:command", "Run the whole way on real events."),
    "committer": Verb(
        "lakefold.folding.committer:command", "Fold the log into versions of the tables.", runs_on=True
    ),
    "propose": Verb("lakefold.proposals.propose:command", "Send one transaction to the log."),
    "fold": Verb("lakefold.folding.fold:command", "Fold a file of envelopes into a table, without Kafka."),
    "show": Verb("lakefold.reading.show:command", "Show one version of a table."),
    "log": Verb("lakefold.reading.log:command", "List a table's versions, newest first."),
    "tail": Verb("lakefold.reading.tail:command", "Print new versions as they come."),
    "changes": Verb("lakefold.reading.changes:command", "Print the change feed."),
    "refs": Verb("lakefold.reading.refs:command", "List a table's tags and branches."),
    "consumers": Verb("lakefold.reading.consumers:command", "List, set and drop a table's named consumers."),
    "cleanup": Verb("lakefold.reading.cleanup:command", "Remove old versions that no consumer needs."),
    "explain": Verb("lakefold.proposals.explain:command", "Tell what became of one proposal and why."),
    "replay": Verb("lakefold.folding.replay:command", "Fold the log again and compare with what is stored."),
    "redrive": Verb("lakefold.proposals.redrive:command", "List dead letters and send chosen ones again."),
    "adopt": Verb("lakefold.binding.adopt:command", "Bind a table that follows no log to a partition."),
    "rebind": Verb("lakefold.binding.rebind:command", "Bind a table to another partition or log."),
    "detach": Verb("lakefold.binding.detach:command", "Let a table follow no log any more."),
    "drop": Verb("lakefold.binding.drop:command", "Delete a table that follows no log."),
}


class VerbGroup(click.Group):
    """A click group that loads a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the verbs in the order of the table above, which goes from set-up to repair."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a verb."""
        del ctx
        verb = VERBS.get(cmd_name)
        return None if verb is None else verb.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that is called. A name that is none is refused with the nearest one."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = difflib.get_close_matches(name, VERBS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "`lakefold --help` lists the verbs"
            ctx.fail(f"there is no verb {name!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs from the table, so that help loads none of them."""
        del ctx
        rows = [(name, verb.summary) for name, verb in VERBS.items()]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's way
    if not wanted:
        return
    try:
        installed = version("lakefold")
    except PackageNotFoundError:
        installed = "(not installed as a package)"
    click.echo(f"lakefold {installed}")
    ctx.exit()


@click.group(
    cls=VerbGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB [ARGS]…",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and leave.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="LAKEFOLD_LOG_LEVEL",
    help="The least that is logged, to stderr. [env: LAKEFOLD_LOG_LEVEL]",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    envvar="LAKEFOLD_LOG_FORMAT",
    help="JSON lines, or text for people; auto: text at a terminal. [env: LAKEFOLD_LOG_FORMAT]",
)
def lakefold(log_level: str, log_format: str) -> None:
    """Many writers, one lake table: a Kafka log orders their transactions, a committer publishes them."""
    from lakefold.console.logs import configure

    configure(log_level, form=log_format)


def run(args: Sequence[str]) -> int:
    """Run one command line and give its exit code; whatever went wrong is told on stderr.

    With `--json` among `args` the error is also printed as one JSON document on stdout.
    """
    wants_json = "--json" in args
    try:
        code = lakefold.main(args=list(args), prog_name="lakefold", standalone_mode=False)
        sys.stdout.flush()
    except LakefoldError as error:
        _tell(error, as_json=wants_json)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        message, hint = f"{error.name} is not installed", f"pip install 'lakefold[{EXTRAS[error.name]}]'"
        _tell(InvalidError(message, hint=hint), as_json=wants_json, code=USAGE)
        return USAGE
    except click.ClickException as error:
        error.show()
        if wants_json:
            _tell_json(InvalidError(error.format_message()), USAGE)
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno is None:
            raise
        return _tell_of_system(error, as_json=wants_json)
    return code if isinstance(code, int) else 0


def _name_tables_below(error: NotATableError) -> None:
    """Add the tables that lie below the folder to the hint: people name the lake instead of a table."""
    from lakefold.setup.tables import local_tables

    if not error.where.startswith("file:"):
        return
    tables = list(islice(local_tables([error.where]), MOST_NAMED + 1))
    if tables:
        more = ", …" if len(tables) > MOST_NAMED else ""
        names = ", ".join(tables[:MOST_NAMED])
        error.hint = "; ".join(text for text in (error.hint, f"tables below it: {names}{more}") if text)


def _tell(error: LakefoldError, *, as_json: bool, code: int | None = None) -> None:
    if isinstance(error, NotATableError):
        _name_tables_below(error)
    print_line(f"Error: {f'{error.where}: ' if error.where else ''}{error.message}", err=True)
    if error.hint:
        print_line(f"Hint: {error.hint}", err=True)
    if as_json:
        _tell_json(error, error.exit_code if code is None else code)


def _tell_of_system(error: OSError, *, as_json: bool) -> int:
    """Tell what the operating system refused a verb: a file that can't be written, a full disk, a socket."""
    import structlog

    from lakefold_table.storage.os_errors import failure

    if structlog.is_configured():
        structlog.get_logger("lakefold").debug("refused by the system", exc_info=error)
    told = failure(error, "" if error.filename is None else str(error.filename))
    try:
        _tell(told, as_json=as_json)
        sys.stdout.flush()
    except OSError:
        # It is stdout itself that can't be written.
        _silence_stdout()
    return told.exit_code


def _silence_stdout() -> None:
    """Keep Python from complaining when it flushes once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell_json(error: LakefoldError, code: int) -> None:
    told = {"message": error.message, "where": error.where, "hint": error.hint, "exit_code": code}
    print_json({"error": {"kind": _kind_of(error), **told}})


def _leave(_: int, __: object) -> NoReturn:
    """End at once: nothing is begun yet that would have to be stopped.

    An exception that is raised just anywhere may get lost or be taken for another fault; settings were found
    wrong that weren't.
    """
    os._exit(0)


def main() -> NoReturn:
    """Run the command line of this process."""
    end_at_once()
    mend_streams()
    # What stdout's encoding has no form for, and names that are no UTF-8, are told escaped.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    verb = VERBS.get(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
    if verb is not None and verb.runs_on:
        signal.signal(signal.SIGTERM, _leave)
    else:
        # What a verb has started is stopped.
        raise_between_imports(signal.SIGTERM)
    try:
        raise_between_imports(signal.SIGINT)
        code = run(sys.argv[1:])
    finally:
        end_at_once()
    sys.exit(code)


def _kind_of(error: LakefoldError) -> str:
    """The name of the error's class, or of the nearest class above it that is public."""
    names = (each.__name__ for each in type(error).__mro__)
    return next(name for name in names if not name.startswith("_"))
