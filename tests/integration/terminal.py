"""A shell in a folder, in which commands run as a reader of the documentation types them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.local.home import known_broker
from lakefold.local.ports import free_port
from tests.servers.quick_python import session_python
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

BESIDE = "in a terminal of its own"
SECONDS = 240


@dataclass
class Terminal:
    """A shell in `folder`: commands that end are waited for, the others run until it is closed."""

    folder: Path
    stack: ExitStack
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> None:
        """Runs a line of a shell block."""
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
        until(lambda: self._is_ready() or process.poll() is not None, text, seconds=120)
        assert process.poll() is None, f"{text} has ended"

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.variables['LAKEFOLD_HTTP_PORT']}/readyz").close()
        except OSError:
            return False
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0


@contextmanager
def terminal_in(folder: Path) -> Iterator[Terminal]:
    """Yields a terminal as after `make demo`: programs are on the PATH, and no setting is set.

    Only the Python processes of Spark may be copies of a loaded one.
    """
    variables = {name: text for name, text in os.environ.items() if not name.startswith("LAKEFOLD_")}
    variables |= {
        "PATH": f"{Path(sys.executable).parent}:{variables['PATH']}",
        "LAKEFOLD_HTTP_PORT": str(free_port()),
        "PYSPARK_PYTHON": session_python(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    try:
        with ExitStack() as stack:
            yield Terminal(folder, stack, variables)
    finally:
        broker = known_broker(folder)
        if broker is not None:
            broker.kill()
