"""Ends the demo's processes if the demo itself was killed and could not do that.

A broker outlives the process that started it, and so do processes in other process groups. This small process
reads the names of what runs, line by line, from a pipe that only the demo writes to. If the pipe is closed
before the line "done", the demo is dead: everything that was named is killed, and the scratch folder is
removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

_DONE = "done"
_WAIT_S = 10.0


class Watchdog:
    """The pipe to a watching process, which is started and ended as a context manager."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def group(self, number: int) -> None:
        """Lets the process end this process group if the demo dies."""
        self._write("group", str(number))

    def forget(self, number: int) -> None:
        """Removes a group that has ended, because another group may get its number."""
        self._write("forget", str(number))

    def broker(self, folder: Path) -> None:
        """Lets the process end the broker with its files in `folder` if the demo dies."""
        self._write("broker", str(folder))

    def scratch(self, folder: Path) -> None:
        """Lets the process remove this folder if the demo dies."""
        self._write("scratch", str(folder))

    def __enter__(self) -> Self:
        """Starts the process."""
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

    def __exit__(self, *_: object) -> None:
        """Ends the process, after everything else has been ended."""
        with suppress(BrokenPipeError):
            self._write(_DONE)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, *words: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()


def watch(lines: IO[str]) -> None:
    """Reads the names of what runs until the demo is done. If the demo is dead before, ends all of it."""
    groups: set[int] = set()
    brokers: list[Path] = []
    folders: list[Path] = []
    for line in lines:
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
