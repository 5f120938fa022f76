"""The command line answers at once, exits with the codes that scripts rely on, and prints errors twice."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import lakefold
from lakefold import cli
from lakefold.console.options import KAFKA, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_columns, print_json
from lakefold_table.entry import Conflict, Outcome, RefusedError, Rejected
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    PreconditionError,
    RetryError,
    StopError,
)
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold.console.settings import Settings

HEAVY = ("pyarrow", "lance", "pyspark", "confluent_kafka", "pydantic", "structlog", "pandas", "numpy")


def run_python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_rich_is_not_loaded_if_it_is_installed() -> None:
    """It would be loaded by structlog, for tracebacks that no verb prints."""
    assert importlib.util.find_spec("rich") is not None
    process = run_python("import sys, lakefold.__main__, structlog.dev; print('rich.console' in sys.modules)")
    assert (process.stdout, process.stderr) == ("False\n", "")


def with_verb(monkeypatch: pytest.MonkeyPatch, command: click.Command, *, runs_on: bool = False) -> None:
    """Let the command line have a verb `try` that runs `command`."""
    monkeypatch.setitem(cli.VERBS, "try", cli.Verb("lakefold.cli:command", "Try.", runs_on=runs_on))
    monkeypatch.setattr(cli, "command", command, raising=False)


def raising(error: Exception) -> click.Command:
    @click.command()
    @json_option
    def command(*, as_json: bool) -> None:
        del as_json
        raise error

    return command


def test_help_loads_nothing_heavy_and_names_every_verb() -> None:
    code = (
        "import sys; from lakefold.cli import run; code = run(['--help']);"
        f"print([name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    process = run_python(code)
    assert process.returncode == 0
    assert process.stdout.splitlines()[-1] == "[]"
    for name in cli.VERBS:
        assert f"\n  {name} " in process.stdout


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_has_help_with_examples_and_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert f"lakefold {verb}" in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    "args", [[], ["nonsense"], ["up", "--nonsense"], ["--nonsense"], ["up", "--port", "x"]]
)
def test_wrong_usage_exits_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidError("no", where="here", hint="do"), 2),
        (DamagedError("no", where="here", hint="do"), 4),
        (RetryError("no", where="here", hint="do"), 5),
        (StopError("no", where="here", hint="do"), 5),
    ],
)
def test_an_error_gives_its_exit_code_and_is_printed_for_people_and_programs(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_verb(monkeypatch, raising(error))
    assert cli.run(["try", "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == "Error: here: no\nHint: do\n"
    fields = {"kind": type(error).__name__, "message": "no", "where": "here", "hint": "do", "exit_code": code}
    assert json.loads(captured.out) == {"error": fields}
    assert cli.run(["try"]) == code
    assert capsys.readouterr().out == ""


def test_names_of_many_kilobytes_are_shortened_for_people_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, many = "n" * 100_000, "name " * 2000
    error = InvalidError(
        f"{name} is not a column; these are: {many}.", where="here", hint=f"drop {name}, now"
    )
    with_verb(monkeypatch, raising(error))
    assert cli.run(["try", "--json"]) == 2
    captured = capsys.readouterr()
    begin = f"Error: here: {'n' * 200}…(99600 more characters)…{'n' * 200} is not a column"
    assert captured.err.startswith(begin)
    assert "name .\nHint: drop nnn" in captured.err
    assert captured.err.endswith("nnn, now\n")
    assert max(map(len, captured.err.splitlines())) < 4100
    assert len(str(error)) < 5000
    assert json.loads(captured.out)["error"]["message"] == error.message


def test_an_error_of_a_private_class_is_named_by_the_public_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class _BoundError(PreconditionError):
        pass

    with_verb(monkeypatch, raising(_BoundError("no")))
    assert cli.run(["try", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "PreconditionError"


@pytest.mark.parametrize(
    ("library", "advice"),
    [("pyspark", "pip install 'lakefold[ingest]'"), ("lance", "pip install 'lakefold[lance]'")],
)
def test_a_missing_library_is_named_with_what_to_do(
    library: str, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_verb(monkeypatch, raising(ModuleNotFoundError("no", name=library)))
    assert cli.run(["try"]) == 2
    assert advice in capsys.readouterr().err


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with_verb(monkeypatch, raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.run(["try"])


@pytest.mark.parametrize(
    ("error", "code", "logged"),
    [
        (StopError("no", where="here", hint="do"), 5, {"error": "here: no", "hint": "do", "exit_code": 5}),
        (click.UsageError("no"), 2, {"error": "no", "hint": None, "exit_code": 2}),
        (PermissionError(13, "Permission denied", "f"), 2, {"error": "f: Permission denied", "exit_code": 2}),
        (ModuleNotFoundError("no", name="lance"), 2, {"error": "lance is not installed", "exit_code": 2}),
        (ZeroDivisionError("no"), 1, {"error": "ZeroDivisionError('no')", "exit_code": 1}),
    ],
)
def test_the_last_error_of_a_daemon_is_a_line_of_its_log(
    error: Exception,
    code: int,
    logged: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_verb(monkeypatch, raising(error), runs_on=True)
    assert cli.run(["--log-format", "json", "try", "--json"]) == code
    captured = capsys.readouterr()
    (line,) = [json.loads(line) for line in captured.err.splitlines()]
    assert line["level"] == "error"
    assert line["event"] == "failed"
    assert logged.items() <= line.items()
    assert [json.loads(line)["error"]["exit_code"] for line in captured.out.splitlines()] == [code] * (
        code > 1
    )


def test_the_last_error_of_a_daemon_is_text_if_its_log_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_verb(monkeypatch, raising(StopError("no", hint="do")), runs_on=True)
    assert cli.run(["--log-format", "text", "try"]) == 5
    assert capsys.readouterr().err == "Error: no\nHint: do\n"


BUSY_IN_C = """
import os, sys, threading
import pyarrow
from lakefold import cli

class Device:
    closed = False

    def read(self, size):
        reading.set()
        os.urandom(1 << 16)
        return b"x" * size

def read_on():
    file = pyarrow.BufferedInputStream(pyarrow.PythonFile(Device(), mode="r"), 1)
    while True:
        file.read(10)

def run(words):
    threading.Thread(target=read_on, daemon=True).start()
    reading.wait()
    return eval(words[0])

reading = threading.Event()
cli.run = run
cli.main()
"""


@pytest.mark.parametrize(
    ("end", "code", "shown"),
    [("4", 4, ""), ("sys.exit(143)", 143, ""), ("1 / 0", 1, "ZeroDivisionError: division by zero\n")],
)
def test_a_thread_that_is_busy_in_a_c_library_does_not_change_the_exit_code(
    end: str, code: int, shown: str
) -> None:
    """Python's finalization unwinds its stack, which aborts the process."""
    process = run_python(BUSY_IN_C, end)
    assert process.returncode == code, process.stderr
    assert process.stderr.endswith(shown)
    assert bool(shown) == bool(process.stderr)


def test_a_full_disk_is_reported_without_a_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", "from lakefold.cli import main; main()", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (process.returncode, process.stderr) == (
        5,
        "Error: No space left on device\nHint: the disk is full: free some space\n",
    )


@pytest.mark.parametrize("words", [("show", "nosuch.lance"), ("show", "--nosuch")])
def test_an_error_keeps_its_code_if_its_document_can_not_be_printed(words: Sequence[str]) -> None:
    command = [sys.executable, "-c", "from lakefold.cli import main; main()", *words, "--json"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert process.returncode == 2
    assert "Error: " in process.stderr
    assert "Traceback" not in process.stderr


def test_what_the_system_refuses_a_verb_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_verb(monkeypatch, raising(PermissionError(13, "Permission denied", str(tmp_path))))
    assert cli.run(["try", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"Error: {tmp_path}: Permission denied\nHint: ")
    assert json.loads(captured.out)["error"]["where"] == str(tmp_path)
    with_verb(monkeypatch, raising(OSError("no system's")))
    with pytest.raises(OSError, match="no system's"):
        cli.run(["try"])


def test_what_stdout_can_not_encode_is_printed_escaped() -> None:
    code = "import os, sys; from lakefold.cli import main; sys.argv[1:] = ['show', 's3:/é\\udcff']; main()"
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert process.returncode == 2
    assert "Traceback" not in process.stderr


def test_a_verb_may_end_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def command(ctx: click.Context) -> None:
        ctx.exit(3)

    with_verb(monkeypatch, command)
    assert cli.run(["try"]) == 3


def test_settings_reach_the_verb_from_its_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @verb("lakefold try")
    @settings_options(*KAFKA, *TOPICS, "roots", "storage_options", "partitions", "group_max_wait")
    @json_option
    def command(settings: Settings, *, as_json: bool) -> None:
        print_json([as_json, settings.printable()])

    with_verb(monkeypatch, command)
    monkeypatch.setenv("LAKEFOLD_GROUP", "variable")
    flags = ["--bootstrap-servers", "a:1", "--kafka", "x=1", "--kafka", "y=2", "--transactions-topic", "t"]
    flags += ["--roots", "s3://a", "--root", "s3://b/", "--storage-option", "o=p", "--partitions", "0-2"]
    assert cli.run(["try", *flags, "--group-max-wait", "0.5", "--json"]) == 0
    as_json, reported = json.loads(capsys.readouterr().out)
    assert as_json is True
    assert reported["bootstrap_servers"] == "a:1"
    assert reported["kafka"] == {"x": "1", "y": "2"}
    assert reported["transactions_topic"] == "t"
    assert reported["roots"] == ["s3://a", "s3://b"]
    assert reported["storage_options"] == {"o": "p"}
    assert reported["partitions"] == [0, 1, 2]
    assert reported["group_max_wait"] == 0.5
    assert reported["group"] == "variable"
    assert cli.run(["try", "--partitions", "x"]) == 2
    assert "--partitions: partitions: 'x' is not a partition" in capsys.readouterr().err


def test_a_refusal_exits_with_3_and_prints_its_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    position = Position(LogId("cluster", "topic-id", 0), 7, "transactions")
    outcome = Outcome(position, "file:///t", Rejected(Conflict(retryable=False, message="it is gone")))
    with_verb(monkeypatch, raising(RefusedError("the batch was refused: it is gone", outcome=outcome)))
    assert cli.run(["try", "--json"]) == 3
    out, err = capsys.readouterr()
    assert "it is gone" in err
    error = json.loads(out)["error"]
    assert error["kind"] == "RefusedError"
    assert error["outcome"]["rejected"]["message"] == "it is gone"
    assert error["outcome"]["position"]["offset"] == "7"


def test_logs_go_to_stderr_as_json_if_that_is_no_terminal() -> None:
    code = (
        "import structlog; from lakefold.console.logs import configure; configure('info');"
        "log = structlog.get_logger(); log.debug('unseen'); log.info('seen', version=7)"
    )
    process = run_python(code)
    assert process.stdout == ""
    line = json.loads(process.stderr)
    assert (line["event"], line["level"], line["version"]) == ("seen", "info", 7)
    assert line["timestamp"].endswith("Z")


def test_the_lines_of_libraries_take_the_same_form_and_no_traceback_shows_variables() -> None:
    code = (
        "import logging; from lakefold.console.logs import configure; configure('info'); password = 'geheim';"
        "logging.getLogger('lakefold_log.kafka').warning('FAIL [%s] %s', 'client', 'refused');"
        "exec('try:\\n 1 / 0\\nexcept ZeroDivisionError:\\n logging.exception(str(7))')"
    )
    refused, failed = run_python(code).stderr.splitlines()
    assert (json.loads(refused)["event"], json.loads(refused)["level"]) == (
        "FAIL [client] refused",
        "warning",
    )
    assert json.loads(failed)["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert "geheim" not in failed


@pytest.mark.parametrize(("form", "is_json"), [("auto", True), ("json", True), ("text", False)])
def test_the_form_of_log_lines_may_be_said(form: str, is_json: bool) -> None:  # noqa: FBT001 - a case
    code = (
        f"import structlog; from lakefold.console.logs import configure; configure('info', form={form!r});"
        "structlog.get_logger().info('seen', version=7)"
    )
    line = run_python(code).stderr
    assert line.startswith("{") is is_json
    assert "seen" in line
    assert "7" in line


def test_a_log_format_that_does_not_exist_is_wrong_usage() -> None:
    assert cli.run(["--log-format", "xml", "status"]) == 2


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_line_shows_a_secret(form: str) -> None:
    code = (
        f"import structlog; from lakefold.console.logs import configure; configure('info', form={form!r})\n"
        "log = structlog.get_logger(); password = 'geheim'\n"
        "log.info('a', sasl_password='geheim', error='sasl.password=geheim, other=shown')\n"
        "log.info('b', where='s3://me:geheim@bucket/t', options={'aws_secret_access_key': 'geheim'})\n"
        "log.info('c', error=\"{'account_key': 'geheim'}\", keys=['shown'])\n"
        "try:\n    raise ValueError('https://me:geheim@host')\n"
        "except ValueError:\n    log.exception('d')\n"
    )
    stderr = run_python(code).stderr
    assert "geheim" not in stderr
    assert stderr.count("***") == 6
    assert stderr.count("shown") == 2
    assert "bucket/t" in stderr
    if form == "json":
        assert [json.loads(line)["event"] for line in stderr.splitlines()] == ["a", "b", "c", "d"]


def test_no_name_in_a_log_line_for_people_moves_their_cursor() -> None:
    code = (
        "import structlog\n"
        "from lakefold.console.logs import configure\n"
        "configure('info', form='text')\n"
        "said = dict(app_id='\\x1b[2Jx', table='\\x9b2J', uuid='1\\n2', text='é\\u202e')\n"
        "structlog.get_logger().info('a', **said)\n"
    )
    stderr = run_python(code).stderr
    assert stderr.count("\n") == 1
    assert stderr.strip().isprintable()
    for shown in (r"app_id=\x1b[2Jx", r"table=\x9b2J", r"uuid='1\n2'", r"text=é\u202e"):
        assert shown in stderr


def test_a_reader_that_goes_away_is_no_fault() -> None:
    code = "from lakefold.cli import main; main()"
    command = f"{sys.executable} -c '{code}' --help | true; exit ${{PIPESTATUS[0]}}"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert process.stderr == ""
    assert process.returncode in {0, 1}


@pytest.mark.parametrize("loading", ["lakefold.folding.committer", "lakefold_committer.process.daemon"])
def test_a_committer_that_is_stopped_while_it_is_loaded_ends_without_an_error(loading: str) -> None:
    """Whatever happens to an exception there."""
    code = (
        "import os, signal, sys\n"
        "class Stopping:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == '{loading}':\n"
        "            try:\n"
        "                os.kill(os.getpid(), signal.SIGTERM)\n"
        "            except BaseException:\n"
        "                pass\n"
        "sys.meta_path.insert(0, Stopping())\n"
        "from lakefold.cli import main; main()\n"
    )
    process = run_python(code, "committer", "--bootstrap-servers", "127.0.0.1:1", "--http-port", "0")
    assert (process.returncode, process.stderr) == (0, "")


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(("topic", "high", "what"), [("a", 1_000, None), ("longer", 7, "x")])
    assert capsys.readouterr().out == "topic    high  what\na       1,000  -\nlonger      7  x\n"


def test_no_cell_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(("app",), [("\x1b[2Jx",), ("é\u202e",)])
    assert capsys.readouterr().out == "app\n\\x1b[2Jx\né\\u202e\n"


ENDED = """
import ctypes, tempfile
import click
from lakefold import cli
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)

@click.command
def command():
    global folder
    import confluent_kafka
    folder = tempfile.TemporaryDirectory()
    print(folder.name)
    click.get_current_context().exit(3)

cli.VERBS["try"] = cli.Verb("__main__:command", "Try.")
cli.main()
"""


def test_a_verb_that_used_kafka_ends_without_exit_handlers_of_c_libraries() -> None:
    """OpenSSL's handler frees what threads of the client may use. What Python's exit removes is removed."""
    ended = run_python(ENDED, "try")
    assert ended.returncode == 3, ended
    assert not Path(ended.stdout.strip()).exists()


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"lakefold {version('lakefold')}\n"
    assert lakefold.__version__ == version("lakefold")


def test_an_option_that_belongs_after_the_verb_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["--wait", "3", "append", "/nowhere"]) == cli.USAGE
    assert "options of a verb follow it: lakefold VERB --wait …" in capsys.readouterr().err
    assert cli.run(["--log-levl", "debug", "show", "/nowhere"]) == cli.USAGE
    assert "Did you mean '--log-level'?" in capsys.readouterr().err


def test_an_option_that_belongs_before_the_verb_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["show", "/nowhere", "--log-level", "debug"]) == cli.USAGE
    assert "--log-level is given before the verb: lakefold --log-level … VERB" in capsys.readouterr().err
    assert cli.run(["show", "/nowhere", "--log-levl", "debug"]) == cli.USAGE
    assert "before the verb" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("taill", "did you mean tail?"),
        ("comitter", "did you mean committer?"),
        ("optimize", "did you mean compact?"),
        ("zzz", "lists the verbs"),
    ],
)
def test_a_misspelt_verb_is_refused_with_the_nearest(
    typed: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([typed, "x"]) == 2
    assert hint in capsys.readouterr().err


def test_a_folder_that_holds_tables_is_answered_with_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        (tmp_path / "lake" / f"t{number:02}" / "_versions").mkdir(parents=True)
    assert cli.run(["log", str(tmp_path / "lake")]) == 2
    hint = capsys.readouterr().err
    assert "/lake/t00, " in hint
    assert hint.rstrip().endswith("/lake/t09, …")


def test_columns_fit_a_terminal_and_stay_whole_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(1, "a" * 30 + "z", "b" * 12), (2, "short", "b")]
    print_columns(("version", "id", "name"), rows, shorten=("id",))
    assert "a" * 30 + "z" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    print_columns(("version", "id", "name"), rows, shorten=("id",))
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) == 40
    assert "aaaaaaaa…aaaaaaaz" in shown[1]
    assert "b" * 12 in shown[1], "only columns that may be shortened are"
