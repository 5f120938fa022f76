"""The demo's processes: each is started in its own process group, and ended with its descendants.

They also end if the demo itself is killed. Because of the group, Ctrl-C at the terminal doesn't reach a child
before the demo stops it in order.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lakefold.errors import SetupError
from lakefold.local.kill_on_exit import KillOnExit
from lakefold_table.errors import LakefoldError, RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FOREIGN_SETTINGS: Final = re.compile(r"LAKEFOLD_(?!CACHE$)|PYSPARK_|SPARK_")
"""Variables that a user may have set for other work, such as another topic. The demo removes them."""

_LAST_LINES: Final = 15
_POLL_S: Final = 0.02


class Child:
    """A process and its descendants. Its output is appended to `log`, temporary files are in `scratch`."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], *, log: Path, scratch: Path) -> None:
        self.name = name
        self.log = log
        self._ended = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(scratch),
                start_new_session=True,
            )
        self._kill_on_exit = KillOnExit(self.pid, remove=scratch)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while the process runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Sends SIGTERM to the process and its descendants."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)

    def end(self, patience_s: float = 0.0) -> None:
        """Waits up to `patience_s` seconds for the process to exit, then kills it with its descendants."""
        if self._ended:
            return
        deadline = time.monotonic() + patience_s
        while self.exit_code is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._ended = True
        self._kill_on_exit.release()

    def stop(self, patience_s: float) -> None:
        """Has the process end in order; kills it after `patience_s` seconds."""
        self.ask_to_stop()
        self.end(patience_s)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def failure(self) -> LakefoldError:
        """Returns the error for a process that exited too early, with the last lines of its output."""
        code = self.exit_code or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        message = f"the {self.name} {how}; its last output:\n{self.last_lines()}\n"
        kind = SetupError if code == SetupError.exit_code else RetryError
        return kind(message, hint=f"its whole output is in {self.log}")

    def last_lines(self) -> str:
        """Returns the last lines of the process's output."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  nothing"


def _environment(scratch: Path) -> dict[str, str]:
    """Returns the environment for a child: ours without those variables, temporary files in `scratch`."""
    own = {name: value for name, value in os.environ.items() if not _FOREIGN_SETTINGS.match(name)}
    return {**own, "TMPDIR": str(scratch)}
