"""A process that has imported what the tests of memory need, and runs their programs in copies of itself.

Importing takes longer than most of these programs. A copy begins with the memory that a process of its own
would have after its imports, and what it allocates ends with it, so programs don't affect each other.

`Preloaded` starts `python -m tests.faults.preloaded`. That process reads a line of JSON for each program: the
name of its module and the arguments of the module's `main`. It forks, waits until the copy has ended, and
writes a line with the exit code after the copy's line of output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.faults import dense_parts, large_flood, many_parts, short_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

ROOT = Path(__file__).parents[2]
PROGRAMS: Mapping[str, Callable[..., None]] = {
    module.__name__.rpartition(".")[2]: module.main
    for module in (dense_parts, large_flood, many_parts, short_of_memory)
}
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Threads would take address space beforehand, and a process that has threads should not be copied."""


class Preloaded:
    """The process, while the context lasts. `run` returns what a program prints."""

    def __enter__(self) -> Self:
        """Start the process."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.preloaded"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, also if a program was interrupted by its test's time limit."""
        self._process.kill()
        self._process.communicate()

    def run(self, program: str, *arguments: str) -> Any:  # noqa: ANN401 - whatever it prints as JSON
        """Returns what the program prints. Fails if it ends with an error, which is on the error output."""
        requests, lines = self._process.stdin, self._process.stdout
        assert requests is not None
        assert lines is not None
        requests.write(json.dumps([program, *arguments]) + "\n")
        requests.flush()
        printed = json.loads(lines.readline())
        code = printed if isinstance(printed, int) else json.loads(lines.readline())
        assert code == 0, f"{program} {arguments} ended with exit code {code}"
        return printed


def copy_that_runs(program: str, arguments: list[str]) -> int:
    """Runs the program in a copy of this process. Returns its exit code, negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            PROGRAMS[program](*arguments)
            sys.stdout.flush()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing of the copy may reach the loop of the process it copies
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Runs a program for each line of the input."""
    while line := sys.stdin.readline():
        program, *arguments = json.loads(line)
        sys.stdout.write(f"{copy_that_runs(program, arguments)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
