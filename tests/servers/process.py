"""A server of a test's own on loopback: started when it answers, ended with the process that needs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from lakefold.local.kill_on_exit import KillOnExit
from lakefold.local.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

_READY_SECONDS: Final = 120.0


class LoopbackServer(ABC):
    """A program that speaks HTTP at `port`, with its files in `directory`.

    `start` may be called again after `stop` or `kill`: the port stays. As a context manager it starts on
    entering, stops on leaving, and doesn't outlive this process, even if that is killed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_on_exit: KillOnExit | None = None

    @property
    def endpoint(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def prepare(self) -> Sequence[str]:
        """Write what the program needs, and give its command line."""

    def start(self) -> None:
        """Starts the server and waits until it answers. Raises if it doesn't."""
        command = self.prepare()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        self._kill_on_exit = KillOnExit(self._process.pid)
        try:
            until(self._has_ended_or_answers, f"{type(self).__name__} to answer", seconds=_READY_SECONDS)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask the server to end, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a power cut of its machine would."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.directory / f"{type(self).__name__}.log"

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            self._process.wait()
            self._process = None
        if self._kill_on_exit is not None:
            self._kill_on_exit.release()
            self._kill_on_exit = None

    def _has_ended_or_answers(self) -> bool:
        """Returns whether it serves. Raises `RuntimeError` if it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{type(self).__name__} did not start: {self._last_words()}")
        return self._answers()

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
            asked.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return asked.recv(5) == b"HTTP/"
        return False

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-5:])


def cpu_seconds(pid: int) -> float:
    """The processor time that a running process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11], fields[12]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
