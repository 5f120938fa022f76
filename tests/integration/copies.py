"""A process that has imported the command line, and runs verbs in copies of itself.

The tests start some two hundred committers, and most of the CPU time of a short one is imports. So each
test process starts `python -m tests.integration.copies` once, which imports what a committer needs. At each
request that process forks, and the copy continues as `python -m lakefold` would: with arguments, environment,
folder and outputs of its own. Signals, exit codes and open files are those of any process. Only its command
line, as other processes see it, is that of the original.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from lakefold.cli import VERBS, main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from signal import Signals

ROOT: Final = Path(__file__).parents[2]
MESSAGE_BYTES: Final = 128 * 1024
"""The longest message between the test and the original: the environment is most of it."""
NEEDED: Final = ("committer", "replay")
"""The verbs whose modules are imported beforehand."""
LATER: Final = (
    "lakefold.console.logs",
    "lakefold_committer.observability.gc_tuning",
    "lakefold_committer.observability.health",
    "lakefold_committer.observability.tracing",
    "lakefold_committer.process.daemon",
    "lakefold_committer.process.ordinals",
    "lakefold_committer.replay.log_reader",
    "lakefold_committer.replay.replay",
    "lakefold_log.client.topic_names",
    "lakefold_table.storage.local",
    "encodings.raw_unicode_escape",
    "encodings.unicode_escape",
)
"""Modules that those verbs import only when they run."""
IMPORTED: Final = "LAKEFOLD_TEST_IMPORTED"
"""The variable that names a file for the modules that a copy imports itself, one a line."""


class CopiedProcess:
    """A verb that runs in a copy, with what tests use of `subprocess.Popen`."""

    def __init__(self, original: LoadedCommandLine, pid: int) -> None:
        self._original = original
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, negative if a signal ended it. Returns None if it still runs."""
        if self.returncode is None:
            self.returncode = self._original.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end. Raises `TimeoutExpired` if it still runs after `timeout` seconds."""
        if self.poll() is None:
            ended = select.poll()
            descriptor = os.pidfd_open(self.pid)
            try:
                ended.register(descriptor, select.POLLIN)
                ended.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(descriptor)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("lakefold", timeout or 0)
        return code

    def send_signal(self, number: Signals) -> None:
        """Sends a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it by SIGKILL if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, 9)


class LoadedCommandLine:
    """The original. If the test process ends, the original ends with all its copies.

    `python`: that of another environment, whose lakefold and packages are run instead of those of the tests.
    """

    def __init__(self, python: Path | None = None) -> None:
        # With -P, Python doesn't look for packages in the folder of this file.
        program = ["-m", "tests.integration.copies"] if python is None else ["-P", __file__]
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [python or sys.executable, *program, str(theirs.fileno())],
                cwd=ROOT,
                # A process that has threads should not be copied, and numpy would start some.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def close(self) -> None:
        """Ends the original, and copies that still run."""
        self._socket.close()
        self._process.wait()

    def start(
        self, arguments: Sequence[str], *, stdout: IO[bytes] | None = None, stderr: IO[bytes]
    ) -> CopiedProcess:
        """Runs `lakefold` with these arguments. Without `stdout` what it prints there is discarded."""
        request = {"arguments": list(arguments), "folder": str(Path.cwd()), "environment": dict(os.environ)}
        with Path(os.devnull).open("wb") as nowhere:
            pid = self._ask(request, [(stdout or nowhere).fileno(), stderr.fileno()])
        assert pid is not None
        return CopiedProcess(self, pid)

    def run(self, arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Runs `lakefold` to its end, as `subprocess.run` does with `capture_output` and `text`."""
        with TemporaryFile() as stdout, TemporaryFile() as stderr:
            process = self.start(arguments, stdout=stdout, stderr=stderr)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
                process.wait()
            for file in (stdout, stderr):
                file.seek(0)
            printed = stdout.read().decode(), stderr.read().decode()
        return subprocess.CompletedProcess(list(arguments), code, *printed)

    def exit_code(self, pid: int) -> int | None:
        """Returns the exit code of a copy, once. Returns None if it still runs."""
        return self._ask(pid)

    def _ask(self, request: dict[str, Any] | int, files: Sequence[int] = ()) -> int | None:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            answer = self._socket.recv(MESSAGE_BYTES)
        assert answer, "the process that is copied has ended"
        code: int | None = json.loads(answer)
        return code


@cache
def command_line() -> LoadedCommandLine:
    """Returns the original of this test process, which is started at the first call."""
    loaded = LoadedCommandLine()
    atexit.register(loaded.close)
    return loaded


def serve(control: socket.socket) -> bool:
    """Answers requests until the test process closes its end. Returns True in a copy."""
    copies: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            break
        request = json.loads(message)
        answer: int | None
        if isinstance(request, int):
            answer = _exit_code(request)
            if answer is not None:
                copies.discard(request)
        else:
            answer = os.fork()
            if answer == 0:
                control.close()
                _become(request, files)
                return True
            copies.add(answer)
            for file in files:
                os.close(file)
        control.send(json.dumps(answer).encode())
    for copy in copies:
        os.kill(copy, 9)
        os.waitpid(copy, 0)
    return False


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(request: dict[str, Any], files: Sequence[int]) -> None:
    """Gives this copy what the request says."""
    for descriptor, file in zip((1, 2), files, strict=True):
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["lakefold", *request["arguments"]]


def _load() -> None:
    """Imports what copies need, and keeps the garbage collector from touching it in each of them."""
    importlib.import_module("lakefold.__main__")
    for verb in NEEDED:
        VERBS[verb].load()
    for module in LATER:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "only a process without threads is copied"


if __name__ == "__main__":
    _load()
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        loaded = {*sys.modules}
        try:
            main()
        finally:
            if IMPORTED in os.environ:
                Path(os.environ[IMPORTED]).write_text("\n".join({*sys.modules} - loaded))
