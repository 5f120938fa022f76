"""Ends what the demo started where the demo itself was killed and could not.

A broker outlives the process that started it, and so do others in process groups of their own. This small
process is told what runs, line by line, through a pipe that nobody but the demo holds. When the pipe ends
without "done", the demo is dead: everything that was named is killed and the scratch folder removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_DONE = "done"
_WAIT_S = 10.0


class Watch:
    """The pipe to a watching process. As a context manager it is started, and let go when all is ended."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def group(self, number: int) -> None:
        """Have this process group ended."""
        self._tell("group", str(number))

    def forget(self, number: int) -> None:
        """The group has ended; its number may come to stand for another."""
        self._tell("forget", str(number))

    def broker(self, folder: Path) -> None:
        """Have the broker whose files lie here ended, if it runs then."""
        self._tell("broker", str(folder))

    def scratch(self, folder: Path) -> None:
        """Have this folder removed."""
        self._tell("scratch", str(folder))

    def __enter__(self) -> Self:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lakefold.demo.watch"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go: everything has been ended."""
        with suppress(BrokenPipeError):
            self._tell(_DONE)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, *words: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()


def watch(told: IO[str]) -> None:
    """Read what runs until the demo is done, or dead; in the second case end all of it."""
    groups: set[int] = set()
    brokers: list[Path] = []
    folders: list[Path] = []
    for line in told:
        word, _, rest = line.rstrip("\n").partition(" ")
        match word:
            case "group":
                groups.add(int(rest))
            case "forget":
                groups.discard(int(rest))
            case "broker":
                brokers.append(Path(rest))
            case "scratch":
                folders.append(Path(rest))
            case _:
                return
    _end(groups, brokers, folders)


def _end(groups: set[int], brokers: list[Path], folders: list[Path]) -> None:
    from lakefold.local.broker import Broker

    for number in groups:
        with suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)
    for folder in brokers:
        Broker(folder).kill()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.stdin)
