"""The demo's processes: each is started in its own process group, and ended with its descendants.

They also end if the demo itself is killed. Because of the group, Ctrl-C at the terminal doesn't reach a child
before the demo stops it in order.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lakefold.errors import SetupError
from lakefold.local.kill_on_exit import KillOnExit
from lakefold_table.errors import LakefoldError, RetryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_FOREIGN_SETTINGS: Final = re.compile(r"LAKEFOLD_(?!CACHE$)|PYSPARK_|SPARK_")
"""Variables that a user may have set for other work, such as another topic. The demo removes them."""

_LAST_LINES: Final = 15


class Child:
    """A process and its descendants. Its output is appended to `log`, temporary files are in `scratch`.

    `report`: the newest value of each name that it has printed in lines of JSON, as of the last `check`.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str], *, log: Path, scratch: Path) -> None:
        self.name = name
        self.log = log
        self.report: dict[str, Any] = {}
        own = {name: value for name, value in os.environ.items() if not _FOREIGN_SETTINGS.match(name)}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**own, "TMPDIR": str(scratch)},
                start_new_session=True,
            )
        self._lines = NewLines(log)
        self._kill_on_exit = KillOnExit(self.pid, remove=scratch)
        self._ended = False

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while the process runs."""
        return self._process.poll()

    def check(self) -> None:
        """Reads what it has printed. Raises its failure if it has exited without a report that it is done."""
        ended = self.exit_code is not None
        for line in self._lines.read():
            if line.startswith("{"):
                self.report |= json.loads(line)
        if ended and not self.done:
            raise self.failure()

    @property
    def done(self) -> bool:
        """Whether it has reported that it is done."""
        return "done" in self.report

    def stop(self, patience_s: float) -> None:
        """Has the process end in order; kills it after `patience_s` seconds."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
        self.end(patience_s)

    def end(self, patience_s: float = 0.0) -> None:
        """Waits up to `patience_s` seconds for the process to exit, then kills it with its descendants."""
        if self._ended:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._ended = True
        self._kill_on_exit.release()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process and its descendants."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def failure(self) -> LakefoldError:
        """Returns the error for a process that exited too early, with the last lines of its output."""
        code = self.exit_code or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        last = "\n".join(f"  {line}" for line in lines) or "  nothing"
        kind = SetupError if code == SetupError.exit_code else RetryError
        message = f"the {self.name} {how}; its last output:\n{last}\n"
        return kind(message, hint=f"its whole output is in {self.log}")


class NewLines:
    """The lines of a file that another process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> Iterator[str]:
        """Yields the lines added since the last call. An incomplete line is left for the next call."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield line.decode(errors="replace").rstrip("\n")
