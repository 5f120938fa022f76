"""Lets the Python processes that Spark starts begin with their imports done.

A Spark session starts a process of Python for each kind of work and each set of variables: some hundred in
the tests' two sessions, and most of the CPU time of each is imports. So a test process with a session starts
one process that has imported what they need. Spark is given a program in place of Python which asks that
process for a copy of itself. The copy continues as `python -m MODULE` would, with the variables, the folder,
the standard streams and the exit code of the program.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakefold.local.spark import prepare_session

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
MESSAGE_BYTES: Final = 256 * 1024
"""The longest request: the environment is most of it."""
MODULES: Final = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner")
"""The modules that Spark runs by their names."""
IMPORTED: Final = (
    "lakefold_ingest.spark.data_source",
    "lakefold_ingest.spark.keyed_tasks",
    "lakefold_reader.spark.data_source",
    "lance",
    "pandas",
    "pyarrow.dataset",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.analyze_udtf",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)
"""What those processes import, as long as no thread is started by it."""

_QUICK_PYTHON: Final = "LAKEFOLD_TEST_QUICK_PYTHON"
"""The environment variable with the path of the program, for sessions that other processes start."""

_PROGRAM: Final = """\
import json, os, signal, socket, sys
if sys.argv[1:2] != ["-m"] or sys.argv[2] not in {modules!r}:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
request = {{"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}}
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
    asked.connect({address!r})
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    socket.send_fds(asked, [json.dumps(request).encode()], [0, 1, 2])
    if copy := asked.recv(64):
        signal.signal(signal.SIGTERM, lambda *_: os.kill(int(copy), signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = asked.recv(64)
os._exit(int(code or 1))
"""
"""What Spark starts in place of Python. It imports next to nothing, and ends as the copy does.

The first answer is the process id of the copy, which gets SIGTERM in place of the program, the second is its
exit code.
"""


@contextmanager
def quick_python(folder: Path) -> Iterator[Path]:
    """Lets sessions use the program, and yields it. It and its socket are files in `folder`."""
    address, program, source = folder / "python.socket", folder / "python", folder / "python.py"
    source.write_text(_PROGRAM.format(python=sys.executable, modules=MODULES, address=str(address)))
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{source}" "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(address))
        listening.listen(64)
        command = [sys.executable, "-m", "tests.servers.quick_python", str(listening.fileno())]
        # A process that has threads should not be copied, and numpy would start some. The seed of hashes is
        # what Spark gives its processes.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, pass_fds=(listening.fileno(),)
        )
        try:
            os.environ[_QUICK_PYTHON] = str(program)
            yield program
        finally:
            os.environ.pop(_QUICK_PYTHON, None)
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def prepare_quick_session(folder: Path) -> dict[str, str]:
    """As `prepare_session`, with the program if there is one."""
    options = prepare_session(folder)
    os.environ["PYSPARK_PYTHON"] = session_python()
    return options


def session_python() -> str:
    """Returns what a session is to run as Python: the program if there is one."""
    return os.environ.get(_QUICK_PYTHON, sys.executable)


class _Original:
    """The process that is copied."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._asking: dict[int, tuple[int, socket.socket]] = {}
        self._events = select.poll()
        self._events.register(sys.stdin.fileno(), select.POLLHUP)
        self._events.register(listening, select.POLLIN)

    def serve(self) -> tuple[dict[str, Any], list[int]] | None:
        """Answers programs until the test process has closed standard input, and ends the copies then.

        In a copy, returns the request and the standard streams of the program.
        """
        while True:
            for ready, _ in self._events.poll():
                if ready == sys.stdin.fileno():
                    for pid, _ in self._asking.values():
                        os.kill(pid, signal.SIGKILL)
                    return None
                if ready in self._asking:
                    self._answer(ready)
                elif (copy := self._accept()) is not None:
                    return copy

    def _accept(self) -> tuple[dict[str, Any], list[int]] | None:
        asked, _ = self._listening.accept()
        message, files, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
        pid = os.fork()
        if pid == 0:
            for each, (_, other) in self._asking.items():
                os.close(each)
                other.close()
            asked.close()
            self._listening.close()
            return json.loads(message), files
        for file in files:
            os.close(file)
        with suppress(BrokenPipeError):
            asked.send(str(pid).encode())
        ended = os.pidfd_open(pid)
        self._asking[ended] = (pid, asked)
        self._events.register(ended, select.POLLIN)
        return None

    def _answer(self, ended: int) -> None:
        """Sends the exit code of a copy to the program that asked for it."""
        pid, asked = self._asking.pop(ended)
        self._events.unregister(ended)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with asked, suppress(BrokenPipeError):
            asked.send(str(code % 256).encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Runs the module that the request names, in this copy."""
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    module, *arguments = request["arguments"]
    sys.argv = [module, *arguments]
    # It is run once more, as a main program.
    del sys.modules[module]
    runpy.run_module(module, run_name="__main__", alter_sys=False)


def _load() -> None:
    """Imports what copies need, and keeps the garbage collector from touching it in each of them."""
    for module in (*IMPORTED, *MODULES):
        importlib.import_module(module)
    # Importing it starts no thread. A copy begins to use it after the last fork.
    warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
    gc.collect()
    gc.freeze()
    tasks = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    # The memory allocator of pyarrow starts its thread again in a copy.
    assert tasks <= {Path(sys.executable).name[:15], "python3", "python", "jemalloc_bg_thd"}, tasks


if __name__ == "__main__":
    _load()
    copy = _Original(socket.socket(fileno=int(sys.argv[1]))).serve()
    if copy is not None:
        _become(*copy)
