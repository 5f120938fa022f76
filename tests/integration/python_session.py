"""A Python session in a process of its own, into which the blocks of a page are pasted."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOOP: Final = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
names = {"__name__": "__main__"}
for line in sys.stdin:
    text, where = json.loads(line)
    try:
        exec(compile(text, where, "exec"), names)
        fault = ""
    except BaseException:
        fault = traceback.format_exc()
    sys.stdout.flush()
    print(json.dumps(fault), file=answers, flush=True)
"""
"""What a block prints goes to a file, and its errors to the log; only faults are answered."""


class PythonSession:
    """A session that begins with the first block. `folder`: where it runs, and where it leaves its files."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = variables
        self._process: subprocess.Popen[str] | None = None

    def run(self, text: str, where: str) -> str:
        """Runs a block, and fails with its traceback. Returns what it has printed."""
        process = self._process = self._process or self._begin()
        before = self._printed.stat().st_size
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([text, where]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"{where}: the session has ended\n{self._log.read_text()[-3000:]}"
        fault = json.loads(answer)
        assert not fault, f"{where}\n{fault}"
        return self._printed.read_bytes()[before:].decode(errors="replace")

    @property
    def _printed(self) -> Path:
        return self._folder / "session.out"

    @property
    def _log(self) -> Path:
        return self._folder / "session.log"

    def _begin(self) -> subprocess.Popen[str]:
        self._printed.touch()
        with self._log.open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _LOOP, self._printed.name],
                cwd=self._folder, env=dict(self._variables),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process is None:
            return
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        assert kind is not None or self._process.returncode == 0, self._log.read_text()[-3000:]
