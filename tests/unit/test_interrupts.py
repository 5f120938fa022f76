"""Ctrl-C ends a verb quietly, wherever it comes; what it was doing is stopped in order.

The process sends the signal to itself at a chosen moment: when a certain module is imported.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lakefold_table.storage.local import LocalStorage
from tests.tables import Folded

ENTRY = "import runpy; runpy.run_module('lakefold', run_name='__main__', alter_sys=True)"
AT_IMPORT = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {name!r}:
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.{signal})
            except BaseException:
                if {swallowed}:
                    raise ImportError("something else")
                raise
sys.meta_path.insert(0, Interrupting())
{entry}
"""
IN_A_CALLBACK = """
import os, signal
import pyarrow
from lakefold import cli

def batches():
    os.kill(os.getpid(), signal.{signal})
    yield from ()

def verb(**_):
    try:
        pyarrow.RecordBatchReader.from_batches(pyarrow.schema([]), batches()).read_all()
    except Exception as error:
        raise RuntimeError("another error") from error

cli.lakefold.main = verb
{entry}
"""
AFTER_ITS_END = """
import atexit, os, signal
from lakefold import cli

def run(words):
    code = verb(words)
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
    return code

verb, cli.run = cli.run, run
{entry}
"""
MOMENTS = (
    "lakefold.cli",
    "click",
    "click.core",
    "lakefold.console.output",
    "lakefold_table.errors",
    "lakefold.console.logs",
    "structlog",
    "lakefold.reading.tail",
    "pydantic",
    "lakefold.console.settings",
    "lakefold_reader.versions.listing",
    "google.protobuf",
    "lakefold_protos.lance.table_pb2",
    "lakefold_reader.tail.tail",
)
"""Modules that `lakefold tail` imports one after the other."""


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


BEFORE_A_VERB = 5


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Folded(LocalStorage(tmp_path_factory.mktemp("interrupts") / "t")).uri


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("name", MOMENTS)
def test_while_it_is_loaded(table: str, name: str, *, swallowed: bool) -> None:
    code = AT_IMPORT.format(name=name, signal="SIGINT", swallowed=swallowed, entry=ENTRY)
    process = run(code, "tail", table, "--follow")
    # click ends the line that a terminal shows ^C in.
    assert (process.stdout, process.stderr.replace(f"{table} (lance table)", "").strip()) == ("", "")
    # A follower that has begun is ended by Ctrl-C as is meant.
    assert process.returncode in ({130} if name in MOMENTS[:BEFORE_A_VERB] else {0, 130})


@pytest.mark.parametrize("name", ["lakefold.reading.tail", "lakefold_reader.versions.listing"])
def test_sigterm_is_put_off_in_the_same_way(table: str, name: str) -> None:
    code = AT_IMPORT.format(name=name, signal="SIGTERM", swallowed=True, entry=ENTRY)
    process = run(code, "tail", table, "--follow")
    shown = process.stderr.replace(f"{table} (lance table)\n", "")
    assert (process.returncode, process.stdout, shown) == (143, "", "")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_in_a_callback_of_a_library_that_makes_it_another_error(name: str, code: int) -> None:
    process = run(IN_A_CALLBACK.format(signal=name, entry=ENTRY), "show")
    assert (process.returncode, process.stdout, process.stderr) == (code, "", "")


def test_after_its_end() -> None:
    process = run(AFTER_ITS_END.format(entry=ENTRY), "--version")
    assert (process.returncode, process.stderr) == (130, "")
    assert process.stdout.startswith("lakefold ")


def test_an_interrupt_that_nobody_catches() -> None:
    process = run(
        "from lakefold.console.interrupts import end_at_once; end_at_once(); raise KeyboardInterrupt"
    )
    assert (process.returncode, process.stderr) == (130, "")
    process = run("from lakefold.console.interrupts import end_at_once; end_at_once(); raise ValueError('x')")
    assert process.returncode == 1
    assert "ValueError: x" in process.stderr


@pytest.mark.parametrize("name", ["click", "lakefold.console.logs", "lakefold_reader.versions.listing"])
def test_a_process_in_the_background_of_a_script_goes_on(tmp_path: Path, name: str) -> None:
    """A shell has it ignore SIGINT, so Ctrl-C is meant for others."""
    code = AT_IMPORT.format(name=name, signal="SIGINT", swallowed=False, entry=ENTRY)
    process = run(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + code, "tail", str(tmp_path / "t")
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert "no table here yet" in process.stderr


def test_nothing_that_takes_time_is_imported_before_the_entry_is_ready() -> None:
    process = run("import sys, lakefold.console.interrupts; print(*sys.modules)")
    ours = {name for name in process.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in ours if name.startswith("lakefold")} == {
        "lakefold",
        "lakefold.console",
        "lakefold.console.interrupts",
    }
    assert not {"click", "structlog", "pydantic", "google"} & ours


def test_the_script_is_the_entry_that_is_tried_here() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"lakefold": "lakefold.__main__:main"}
