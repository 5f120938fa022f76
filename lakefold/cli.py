"""The command line: finds a verb, loads its module only if it is called, and turns errors into exit codes.

Operators and scripts rely on the exit codes and on `--json`, so both are handled here for all verbs. Nothing
large is imported: `lakefold --help` answers at once, and the committer never loads Arrow or Spark.
"""

from __future__ import annotations

import atexit
import difflib
import importlib
import io
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING, Final, NoReturn

import click

from lakefold.console.interrupts import INTERRUPTED, end_at_once, raise_between_imports, raised_signal
from lakefold.console.output import print_json, print_line
from lakefold.console.streams import mend_streams
from lakefold.stderr_lines import only_json
from lakefold_table.entry import RefusedError
from lakefold_table.errors import InvalidError, LakefoldError, NotATableError, shortened
from lakefold_table.new_threads import new_threads
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE: Final = 2
"""Exit code: the command was called wrongly."""

_LOG_FORMAT: Final = "LAKEFOLD_LOG_FORMAT"

_BROKEN_PIPE: Final = 1
"""Exit code: the reader of stdout has closed it (`lakefold tail | head`). click uses the same code."""

MOST_NAMED: Final = 10
"""A hint names at most this many tables."""

EXIT_CODES: Final = {
    0: "done; also if Ctrl-C or SIGTERM ended a committer or tail --follow",
    1: "stdout was closed by its reader (| head), or a fault in Lakefold",
    2: "wrong usage",
    3: "refused: a conflict or an invalid proposal",
    4: "damaged data",
    5: "try again: not reachable, or timed out",
    INTERRUPTED: "interrupted by Ctrl-C (SIGINT)",
    128 + signal.SIGTERM: "ended by SIGTERM",
}
"""The meaning of each exit code, for `--help` and the documentation."""

_EPILOG: Final = "\b\nExit codes:\n" + "\n".join(f"  {code:3}  {text}" for code, text in EXIT_CODES.items())


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb that is not loaded yet: the module and name of its command, and its line in `--help`.

    `runs_on`: it runs until it is stopped, and handles the signals itself after it has started.
    """

    target: str
    summary: str
    runs_on: bool = False

    def load(self) -> click.Command:
        """Imports the module and returns the command."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


VERBS_BY_PURPOSE: Final = {
    "Run": {
        "up": Verb("lakefold.setup.local_broker:up", "Start a local Kafka broker for this folder."),
        "down": Verb("lakefold.setup.local_broker:down", "Stop the local Kafka broker."),
        "status": Verb("lakefold.setup.status:command", "Show brokers, topics, lag and tables."),
        "committer": Verb(
            "lakefold.folding.committer:command", "Fold the log into versions of the tables.", runs_on=True
        ),
        "catalog": Verb(
            "lakefold.namespace.verb:command",
            "Serve Lance clients whose commits go through the log.",
            runs_on=True,
        ),
        "console": Verb(
            "lakefold.web.console_verb:command", "Serve a web page of the tables and the log.", runs_on=True
        ),
        "demo": Verb(
            "lakefold.demo.demo:command", "Run all parts on real events: Kafka, Spark, committer, reader."
        ),
    },
    "Write": {
        "create": Verb("lakefold.tables.verbs:create", "Create a table without rows."),
        "alter": Verb("lakefold.tables.verbs:alter", "Change columns and properties of a table."),
        "append": Verb("lakefold.writing.verbs:append", "Append the rows of files to a table."),
        "upsert": Verb("lakefold.writing.verbs:upsert", "Merge the rows of files into a table by keys."),
        "delete": Verb("lakefold.writing.verbs:delete", "Delete rows of a table."),
        "apply-changes": Verb(
            "lakefold.writing.verbs:apply_changes", "Apply the change events of files to a table."
        ),
        "propose": Verb("lakefold.proposals.propose:command", "Send one transaction to the log."),
        "fold": Verb(
            "lakefold.folding.fold:command", "Fold a file of envelopes into a table, without Kafka."
        ),
    },
    "Read": {
        "ls": Verb("lakefold.reading.listing:command", "List the tables below a folder or bucket."),
        "head": Verb("lakefold.reading.head:command", "Print the first rows of a table."),
        "show": Verb("lakefold.reading.show:command", "Show one version of a table."),
        "log": Verb("lakefold.reading.log:command", "List a table's versions, newest first."),
        "tail": Verb("lakefold.reading.tail:command", "Print new versions as they come."),
        "changes": Verb("lakefold.reading.changes:command", "Print the change feed."),
        "diff": Verb(
            "lakefold.reading.diff:command", "Show what differs between two versions, tags or branches."
        ),
        "refs": Verb("lakefold.reading.refs:command", "List a table's tags and branches."),
        "consumers": Verb(
            "lakefold.reading.consumers:command", "List, set and drop a table's named consumers."
        ),
    },
    "Maintain": {
        "compact": Verb(
            "lakefold.maintaining.compact:command", "Join a table's small fragments, through the log."
        ),
        "optimize-indices": Verb(
            "lakefold.maintaining.optimize_indices:command", "Bring a table's indices up to date."
        ),
        "cleanup": Verb("lakefold.reading.cleanup:command", "Remove old versions that no consumer needs."),
        "maintain": Verb(
            "lakefold.maintaining.maintain:command",
            "Compact and clean up tables by their policies.",
            runs_on=True,
        ),
        "tag": Verb("lakefold.branching.verbs:tag", "Give a version of a table a name, through the log."),
        "branch": Verb(
            "lakefold.branching.verbs:branch", "Begin a branch of a table, or delete it, through the log."
        ),
        "restore": Verb(
            "lakefold.branching.verbs:restore",
            "Make an earlier version the newest again, through the log.",
        ),
        "revert": Verb(
            "lakefold.branching.revert_verb:command",
            "Take out what single batches did, through the log.",
        ),
    },
    "Operate": {
        "explain": Verb(
            "lakefold.proposals.explain:command", "Show the outcome of one proposal and its reason."
        ),
        "redrive": Verb(
            "lakefold.proposals.redrive:command", "List dead letters and send chosen ones again."
        ),
        "replay": Verb(
            "lakefold.folding.replay:command", "Fold the log again and compare with what is stored."
        ),
        "forget": Verb(
            "lakefold.proposals.forget:command", "Have a table forget an app's batches, through the log."
        ),
        "adopt": Verb("lakefold.binding.verbs:adopt", "Take over an existing table."),
        "rebind": Verb("lakefold.binding.verbs:rebind", "Bind a table to another partition or log."),
        "detach": Verb("lakefold.binding.verbs:detach", "End a table's binding to its partition."),
        "drop": Verb("lakefold.binding.drop:command", "Delete a table (after `detach`)."),
    },
}
"""The verbs as `--help` lists them."""
VERBS: Final = {name: verb for verbs in VERBS_BY_PURPOSE.values() for name, verb in verbs.items()}


# What Delta and Iceberg call the work of a verb, if their name resembles no verb or another one.
ALIKE: Final = {"history": "log", "merge": "upsert", "optimize": "compact", "vacuum": "cleanup"}


# How similar an option before the verb is to one that exists, from 0 to 1, if it is one that was mistyped.
_ALMOST_THE_SAME: Final = 0.8


class VerbGroup(click.Group):
    """A click group that loads a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the verbs in the order of `--help`."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a verb. Returns None if no verb has this name."""
        del ctx
        verb = VERBS.get(cmd_name)
        return None if verb is None else verb.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the verb that is called.

        An unknown name is a usage error that suggests the verb that does the same, or the most similar one.
        """
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = ALIKE.get(name) or next(iter(difflib.get_close_matches(name, VERBS, n=1)), None)
            hint = f"did you mean {near}?" if near else "`lakefold --help` lists the verbs"
            ctx.fail(f"there is no verb {name!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs from `VERBS`, so that `--help` loads no module of a verb."""
        del ctx
        for purpose, verbs in VERBS_BY_PURPOSE.items():
            with formatter.section(purpose):
                formatter.write_dl([(name, verb.summary) for name, verb in verbs.items()])


def _print_version(ctx: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click passes it so
    if not given:
        return
    from lakefold import __version__

    click.echo(f"lakefold {__version__}")
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
    help="Print the version and exit.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="LAKEFOLD_LOG_LEVEL",
    help="The lowest level that is logged to stderr. [env: LAKEFOLD_LOG_LEVEL]",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    envvar=_LOG_FORMAT,
    help="JSON lines or text; auto is text at a terminal, else JSON. With json all of stderr is JSON lines. "
    "[env: LAKEFOLD_LOG_FORMAT]",
)
def lakefold(log_level: str, log_format: str) -> None:
    """Many writers, one lake table: a Kafka log orders their transactions, a committer publishes them."""
    from lakefold.console.logs import configure

    configure(log_level, form=log_format)


def run(args: Sequence[str]) -> int:
    """Runs a command line and returns its exit code. Prints an error on stderr.

    If `--json` is among `args`, an error is also printed as a JSON document on stdout. With `--log-format
    json` it is a JSON line on stderr. A verb that runs until it is stopped logs its last error as a JSON line
    whenever its log lines are JSON.
    """
    wants_json = "--json" in args
    if _requests_json(args):
        from lakefold.console.logs import configure

        # A mistake in the command line is reported before its options count.
        configure(form="json")
    try:
        return _run(args, as_json=wants_json)
    except Exception as error:
        if not _logs_errors(args):
            raise
        import structlog

        structlog.get_logger("lakefold").error("failed", error=repr(error), exit_code=1, exc_info=error)
        return 1


def _run(args: Sequence[str], *, as_json: bool) -> int:
    """Runs a command line, as `run` does, but raises an exception that is a fault in Lakefold."""
    logged = partial(_logs_errors, args)
    try:
        with explained_imports():
            code = _code_of_verb(args)
        sys.stdout.flush()
    except LakefoldError as error:
        _print_error(error, as_json=as_json, logged=logged())
        return error.exit_code
    except click.ClickException as caught:
        _print_misuse(_explained_misuse(caught), as_json=as_json, logged=logged())
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno is None:
            raise
        return _print_os_error(error, as_json=as_json, logged=logged())
    return code


def _code_of_verb(args: Sequence[str]) -> int:
    """Runs the verb and returns its exit code. Raises what it raises, unless a signal ended it.

    What a signal raises in a callback of a C++ or Rust library comes back as an error of that library.
    """
    try:
        with new_threads():
            code = lakefold.main(args=list(args), prog_name="lakefold", standalone_mode=False)
    except Exception:
        number = raised_signal()
        if number is None:
            raise
        return 128 + number
    return code if isinstance(code, int) else 0


def _requests_json(args: Sequence[str]) -> bool:
    """Returns whether JSON is requested for stderr by an option before the verb, or by the environment."""
    form, words = os.environ.get(_LOG_FORMAT), [*takewhile(lambda word: word not in VERBS, args)]
    for word, following in pairwise([*words, ""]):
        name, is_whole, value = word.partition("=")
        if name == "--log-format":
            form = value if is_whole else following
    return form == "json"


def _logs_errors(args: Sequence[str]) -> bool:
    """Returns whether a verb's last error is logged.

    It is if JSON was requested, and for a daemon whose log lines are JSON.
    """
    verb = VERBS.get(next((word for word in args if word in VERBS), ""))
    from lakefold.console.logs import are_json

    return only_json() or (verb is not None and verb.runs_on and are_json())


def _print_misuse(misuse: click.ClickException, *, as_json: bool, logged: bool) -> None:
    error = InvalidError(misuse.format_message())
    if logged:
        _log_error(error, USAGE)
    else:
        misuse.show()
    if as_json:
        _print_json_error(error, USAGE)


def _explained_misuse(error: click.ClickException) -> click.ClickException:
    """Returns the error. If an option is on the wrong side of the verb, the error says so."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    name, options = error.option_name, {each for parameter in lakefold.params for each in parameter.opts}
    near = difflib.get_close_matches(name, options, cutoff=_ALMOST_THE_SAME)
    if error.ctx.command is lakefold and not near:
        where = f"options of a verb follow it: lakefold VERB {name} …"
        return click.UsageError(f"there is no option {name} before the verb; {where}", error.ctx)
    if name in options:
        return click.UsageError(f"{name} is given before the verb: lakefold {name} … VERB", error.ctx)
    return error


def _name_tables_below(error: NotATableError) -> None:
    """Adds the tables inside the folder to the hint, because users often name the lake instead of a table."""
    from lakefold.setup.tables import local_tables

    if not error.where.startswith("file:"):
        return
    inside = (table for table in local_tables([error.where]) if table != error.where)
    tables = list(islice(inside, MOST_NAMED + 1))
    if tables:
        more = ", …" if len(tables) > MOST_NAMED else ""
        names = ", ".join(tables[:MOST_NAMED])
        hint = "; ".join(text for text in (error.hint, f"tables below it: {names}{more}") if text)
        error.texts = error.message, error.where, hint


def _print_error(
    error: LakefoldError, *, as_json: bool, logged: bool = False, code: int | None = None
) -> None:
    if isinstance(error, NotATableError):
        _name_tables_below(error)
    code = error.exit_code if code is None else code
    if logged:
        _log_error(error, code)
    else:
        _show_error(error)
    if as_json:
        _print_json_error(error, code)


def _log_error(error: LakefoldError, code: int) -> None:
    import structlog

    hint = shortened(error.hint) or None
    structlog.get_logger("lakefold").error("failed", error=error.reason, hint=hint, exit_code=code)


def _show_error(error: LakefoldError) -> None:
    print_line(f"Error: {error.reason}", err=True)
    if error.hint:
        print_line(f"Hint: {shortened(error.hint)}", err=True)


def _print_os_error(error: OSError, *, as_json: bool, logged: bool) -> int:
    """Prints an error of the operating system: an unwritable file, a full disk. Returns the exit code."""
    import structlog

    from lakefold_table.storage.os_errors import failure

    if structlog.is_configured():
        structlog.get_logger("lakefold").debug("refused by the system", exc_info=error)
    failed = failure(error, "" if error.filename is None else str(error.filename))
    _print_error(failed, as_json=as_json, logged=logged)
    return failed.exit_code


def _silence_stdout() -> None:
    """Redirects stdout to the null device, so that Python's flush at its exit raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_json_error(error: LakefoldError, code: int) -> None:
    document = {"message": error.message, "where": error.where, "hint": error.hint, "exit_code": code}
    outcome = {}
    if isinstance(error, RefusedError):
        from lakefold_log.codec.envelope import json_form, outcome_message

        outcome = {"outcome": json_form(outcome_message(error.outcome))}
    try:
        print_json({"error": {"kind": _kind_of(error), **document, **outcome}})
        sys.stdout.flush()
    except OSError:
        # stdout can't be written. The error is on stderr.
        _silence_stdout()


def _leave(_: int, __: object) -> NoReturn:
    """Ends the process at once, because nothing has been started yet that would have to be stopped.

    An exception from a signal handler may be caught by a library and reported as another error: right
    settings were reported as wrong.
    """
    os._exit(0)


def main() -> NoReturn:
    """Runs the command line of this process and exits with its code."""
    end_at_once()
    mend_streams()
    # Characters that stdout's encoding lacks, and file names that are not UTF-8, are printed escaped.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    verb = VERBS.get(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
    if verb is not None and verb.runs_on:
        signal.signal(signal.SIGTERM, _leave)
    else:
        # An exception lets the verb stop what it has started.
        raise_between_imports(signal.SIGTERM)
    codes: list[int] = []
    # What is registered first runs last.
    atexit.register(_end_with, codes)
    try:
        raise_between_imports(signal.SIGINT)
        codes.append(run(sys.argv[1:]))
    except BaseException as error:
        codes.append(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
        raise
    finally:
        end_at_once()
    sys.exit(codes[0])


def _end_with(codes: list[int]) -> None:
    """Ends the process with this exit code, without Python's finalization and exit handlers of C libraries.

    Both free what other threads still use. Python ends a thread that comes back from C++ or Rust by unwinding
    its stack, which aborts the process: the demo did so on Ctrl-C while it read its rows. A Kafka client that
    the brokers refused still has threads, which connect again: OpenSSL's handler frees what they use, and
    about one of a hundred such verbs ended by a segmentation fault.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # Python's own flush fails as well, and says so.
        return
    os._exit(codes[0])


def _kind_of(error: LakefoldError) -> str:
    """Returns the name of the error's class, or of its nearest base class that is public."""
    names = (each.__name__ for each in type(error).__mro__)
    return next(name for name in names if not name.startswith("_"))
