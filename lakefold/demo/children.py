"""The demo's processes: started in groups of their own, watched, and ended with everything they started.

A group of its own keeps Ctrl-C at the terminal from reaching a child before the demo can stop it in order.
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
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold.demo.watch import Watch
    from lakefold_table.errors import LakefoldError

_FOREIGN_SETTINGS: Final = re.compile(r"LAKEFOLD_(?!CACHE$)|PYSPARK_|SPARK_")
"""Settings that a person has for other work: another topic, another Spark. The demo's parts get none."""

_LAST_WORDS: Final = 15
_POLL_S: Final = 0.02


class Child:
    """One process and its descendants. What it prints goes to the end of `log`."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], *, log: Path, watch: Watch, scratch: Path
    ) -> None:
        self.name = name
        self.log = log
        self._watch = watch
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
        watch.group(self.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Ask the process, and what it started, to end (SIGTERM)."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)

    def end(self, patience_s: float = 0.0) -> None:
        """Wait so many seconds for it to end by itself, then kill it with everything it started."""
        if self._ended:
            return
        deadline = time.monotonic() + patience_s
        while self.exit_code is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._ended = True
        with suppress(BrokenPipeError):
            self._watch.forget(self.pid)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def failure(self) -> LakefoldError:
        """Give the error for a process that ended and should not have, with the last lines it printed."""
        code = self.exit_code or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        message = f"the {self.name} {how}; the last it said:\n{self.last_words()}\n"
        kind = SetupError if code == SetupError.exit_code else RetryError
        return kind(message, hint=f"all of it is in {self.log}")

    def last_words(self) -> str:
        """Give the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LAST_WORDS:]) or "  nothing"


def _environment(scratch: Path) -> dict[str, str]:
    """Give the variables for a child: ours without those settings, temporary files in `scratch`."""
    kept = {name: value for name, value in os.environ.items() if not _FOREIGN_SETTINGS.match(name)}
    return {**kept, "TMPDIR": str(scratch)}
