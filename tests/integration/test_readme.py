"""The README's examples work as printed, block after block, in a folder of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefold.local.broker import Broker
from lakefold.local.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PASTED = "## Use it"
"""The section that a reader pastes. What stands above it is run by CI itself (`make`), or is a drawing."""
BESIDE = "in a terminal of its own"
SECONDS = 240


@dataclass
class Terminal:
    """A shell in `folder`: commands that end are waited for, the others run until it is closed."""

    folder: Path
    stack: ExitStack
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> None:
        """Runs one line of a shell block."""
        text, _, comment = command.partition("#")
        if BESIDE in comment:
            self._begin(text)
            return
        done = subprocess.run(
            ["bash", "-c", text], cwd=self.folder, env=self.variables, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout.strip(), f"{command} says nothing"

    def _begin(self, text: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"], cwd=self.folder, env=self.variables,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.stack.callback(_end, process)
        until(lambda: self._is_ready() or process.poll() is not None, text, seconds=60)
        assert process.poll() is None, f"{text} has ended"

    def _is_ready(self) -> bool:
        status = subprocess.run(
            ["lakefold", "status"], cwd=self.folder, env=self.variables, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return "no committer answers" not in status.stdout and status.returncode == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def blocks() -> list[tuple[str, str]]:
    """Language and text of the blocks to paste, in order."""
    return BLOCK.findall(README.read_text().partition(PASTED)[2])


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal as after `make demo`: the environment's programs are on the PATH, and no setting is set."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("LAKEFOLD_")}
    variables |= {
        "PATH": f"{Path(sys.executable).parent}:{variables['PATH']}",
        "LAKEFOLD_HTTP_PORT": str(free_port()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    try:
        with ExitStack() as stack:
            yield Terminal(tmp_path, stack, variables)
    finally:
        Broker(tmp_path / ".lakefold").kill()


def test_each_block_to_paste_works(terminal: Terminal) -> None:
    """Python's blocks are pasted into one session; those of the shell run around it as in the text."""
    kinds = [kind for kind, _ in blocks()]
    assert kinds == ["sh", "python", "python", "python", "python", "sh"], "a block that no test runs"
    shell, *session, rest = [text for _, text in blocks()]
    for line in filter(None, shell.splitlines()):
        terminal.run(line)
    script = terminal.folder / "session.py"
    script.write_text("\n".join([*session, "query.stop()", "spark.stop()", "print('done')"]))
    terminal.run(f"{sys.executable} session.py")
    for line in filter(None, rest.splitlines()):
        terminal.run(line)
