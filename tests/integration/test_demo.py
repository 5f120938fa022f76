"""The demo as a newcomer sees it: it checks itself, its advice works, and nothing runs on after any end.

Each process of the demo has a variable of the demo's own environment, which the tests search for in the
environments of all processes of the machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

from lakefold.local.broker import Broker
from lakefold.local.ports import is_free
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A run takes half a minute on an idle machine, and several on a machine that is busy with other tests.
pytestmark = pytest.mark.timeout(600)

ROWS: Final = 5_000
MARK: Final = "DEMO_TEST_MARK"
WHOLE_RUN_SECONDS: Final = 400
STOP_SECONDS: Final = 120
# `python -m lakefold` with fewer batches.
IN_SIX_BATCHES: Final = """
from lakefold.__main__ import main
from lakefold.demo import run
run.BATCHES = 6
main()
"""
# Runs the command in a terminal of its own, and hands on what is typed.
TERMINAL: Final = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@dataclass
class Running:
    """A demo at work. `folder`: the current folder it was started in; `screen`: the file of what it shows."""

    process: subprocess.Popen[bytes]
    folder: Path
    mark: str

    @property
    def screen(self) -> str:
        """What it has shown so far."""
        return (self.folder / "screen").read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until it shows the text."""

        def shown() -> bool:
            assert self.process.poll() is None, self.screen
            return text in self.screen

        until(shown, f"{text!r} on the screen", seconds=WHOLE_RUN_SECONDS)

    def processes(self) -> list[str]:
        """The command lines of all processes that it started and that still run."""
        actual = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    actual.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return actual

    def left_over(self) -> list[str]:
        """Temporary files."""
        scratch = self.folder / ".lakefold" / "demo" / "scratch"
        return [str(path) for path in [*(self.folder / "tmp").iterdir(), scratch] if path.exists()]


@contextmanager
def running_demo(
    folder: Path, *before: str, format_: str = "lance", program: Sequence[str] = ("-m", "lakefold")
) -> Iterator[Running]:
    """A demo in `folder`, killed with all that it started if the test leaves it running."""
    mark = uuid4().hex
    (folder / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {MARK: mark, "TMPDIR": str(folder / "tmp"), "TERM": "xterm", "COLUMNS": "100"}
    command = [*before, sys.executable, *program, "demo", "--rows", str(ROWS)]
    command += ["--format", format_]
    with (folder / "screen").open("wb") as screen:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=screen, stderr=screen
        )
    running = Running(process, folder, mark)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
        until(lambda: not running.processes(), "the end of all that it started", seconds=STOP_SECONDS)


def advice(screen: str, heading: str) -> list[str]:
    """Returns the lines that are printed below a heading."""
    return screen.split(heading, 1)[1].split("\n\n", maxsplit=1)[0].splitlines()[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as people name them; tools that read lists or command lines trip over such names."""
    odd = tmp_path / "my lake, 2"
    odd.mkdir()
    return odd


def run_in(folder: Path, program: str, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, "-i"] if "python" in program else ["bash", "-c", text],
        input=text,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=STOP_SECONDS * 2,
    )


@pytest.mark.parametrize(("format_", "client"), [("lance", "pylance"), ("delta", "delta-rs")])
def test_proves_itself_survives_the_kill_and_gives_advice_that_works(
    folder: Path, format_: str, client: str
) -> None:
    """That of a Delta table writes fewer batches, and starts its log only once."""
    program, most = (("-m", "lakefold"), 20) if format_ == "lance" else (("-c", IN_SIX_BATCHES), 10)
    with running_demo(folder, format_=format_, program=program) as demo:
        see_the_page(demo)
        assert demo.process.wait(WHOLE_RUN_SECONDS) == 0, demo.screen
        assert demo.processes() == []
        assert demo.left_over() == []
    screen = demo.screen
    address = re.search(r"listens on 127\.0\.0\.1:(\d+)", screen)
    assert address is not None
    assert is_free(int(address[1]))
    assert "SIGKILL: the committer" in screen
    assert len(set(re.findall(r"committer: pid (\d+)", screen))) == 2
    seen = re.findall(
        rf"^(the CSV file|lakefold\.open|lakefold\.tail|{client}) +5,000 +(\w+) +the same",
        screen,
        re.MULTILINE,
    )
    assert len(seen) == 4
    assert len({checksum for _, checksum in seen}) == 1
    services = re.search(
        r"8 services appended ([\d,]+) rows .* in ([\d,]+) versions: each row is there once", screen
    )
    assert services is not None, screen
    assert int(services[1].replace(",", "")) > int(services[2].replace(",", "")) > 0
    versions = {int(number) for number in re.findall(r"tail: version (\d+)", screen)}
    assert versions == set(range(min(versions), max(versions) + 1))
    assert min(versions) == {"lance": 1, "delta": 0}[format_]
    assert most / 2 < len(versions) <= most
    table = try_advice(folder, screen)
    if format_ == "lance":
        start_the_log_again(folder, screen, table)


def see_the_page(demo: Running) -> None:
    """The page answers before the committer is killed, and again after the next committer has begun."""
    demo.wait_for("page: open ")
    address = re.search(r"page: open http://127\.0\.0\.1:(\d+)/ in a browser", demo.screen)
    assert address is not None, demo.screen

    def overview() -> dict[str, Any]:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{address[1]}/api/overview", timeout=STOP_SECONDS
        ) as answer:
            document: dict[str, Any] = json.load(answer)
            return document

    def is_shown() -> bool:
        assert demo.process.poll() is None, demo.screen
        try:
            return bool(overview()["committer"].get("ready"))
        except urllib.error.URLError:
            # Its address is shown as soon as it is started.
            return False

    until(is_shown, "the committer on the page", seconds=WHOLE_RUN_SECONDS)
    assert "SIGKILL: the committer" not in demo.screen
    demo.wait_for("continues where the killed one stopped")
    shown = overview()
    assert (shown["problem"], shown["feed_problem"]) == ("", "")
    assert shown["tables"] > 0
    assert shown["partitions"]


def try_advice(folder: Path, screen: str) -> str:
    """Paste what the demo printed: each command does what it says. Returns what the first one shows."""
    shell = advice(screen, "What to try next")
    processes = [run_in(folder, "bash", line) for line in shell]
    assert [(line, done.stderr) for line, done in zip(shell, processes, strict=True) if done.returncode] == []
    assert "departures" in processes[0].stdout
    python = re.search(r"What to try in Python \((.*)\)", screen)
    assert python is not None
    # A program on the PATH is named without its folder.
    program = str(folder / python[1]) if "/" in python[1] else python[1]
    prompt = run_in(folder, program, "\n".join(advice(screen, "What to try in Python")) + "\n")
    assert "Traceback" not in prompt.stderr
    assert "5000" in prompt.stdout
    return processes[0].stdout


def start_the_log_again(folder: Path, screen: str, table: str) -> None:
    """Paste the rest, with the same broker and another committer: the table stays as it is."""
    broker = Broker(folder / ".lakefold" / "demo" / "broker")
    try:
        for line in advice(screen, "Start the same log again"):
            done = run_in(folder, "bash", line)
            assert done.returncode == 0, (line, done.stderr)
    finally:
        assert not broker.stop(), "`lakefold down` had stopped it"
    assert run_in(folder, "bash", advice(screen, "What to try next")[0]).stdout == table


@pytest.mark.parametrize("moment", ["starting a Kafka broker", "query: Spark, pid"])
def test_ctrl_c_at_the_terminal_leaves_nothing_running(folder: Path, moment: str) -> None:
    with running_demo(folder, sys.executable, "-c", TERMINAL) as demo:
        demo.wait_for(moment)
        until(lambda: len(demo.processes()) > 2, "a process that it starts", seconds=STOP_SECONDS)
        assert demo.process.stdin is not None
        demo.process.stdin.write(b"\x03")
        demo.process.stdin.flush()
        assert demo.process.wait(STOP_SECONDS) == 128 + signal.SIGINT
        assert demo.processes() == []
        assert demo.left_over() == []
    assert "SIGINT: everything is stopped" in demo.screen
    assert "Traceback" not in demo.screen


def test_a_demo_that_is_killed_leaves_nothing_running(folder: Path) -> None:
    with running_demo(folder) as demo:
        demo.wait_for("starting Spark")
        assert len(demo.processes()) > 3
        demo.process.kill()
        until(lambda: not demo.processes(), "the end of all that it started", seconds=STOP_SECONDS)
        until(lambda: not demo.left_over(), "the scratch folder to go", seconds=STOP_SECONDS)


def test_a_part_that_fails_ends_the_demo_with_its_last_words(folder: Path) -> None:
    with running_demo(folder) as demo:
        demo.wait_for("starting Spark")
        # A process that starts another one has a copy of itself for a moment.
        until(lambda: len(queries(folder)) == 1, "the process of the query", seconds=STOP_SECONDS)
        os.kill(min(queries(folder)), signal.SIGKILL)
        assert demo.process.wait(STOP_SECONDS) == 5
        assert demo.processes() == []
    assert "the streaming query was ended by SIGKILL" in demo.screen
    assert "query.log" in demo.screen


def queries(folder: Path) -> list[int]:
    """The process of the demo's query, by its command line."""
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if b"lakefold.demo.query" in command_line(entry) and b"python" in command_line(entry)
        if str(folder).encode() in command_line(entry)
    ]


def command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
