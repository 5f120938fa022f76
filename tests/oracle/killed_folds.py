"""A program that a test starts: `lakefold fold` repeatedly, each killed at a random moment.

`TABLE FILE KILLS SEED`: prints a line of JSON for each run: the outcomes it had printed when SIGKILL met it,
some milliseconds after it had come a few entries further than the runs before. It prints one more at most,
however late it is killed. The runs come by fork, so that none costs a start of Python; pylance and Arrow are
not loaded here.
"""

from __future__ import annotations

import io
import json
import os
import random
import select
import signal
import sys

from lakefold import cli
from lakefold.folding import fold as _loaded
from lakefold_committer.replay import file_fold as filefold
from lakefold_committer.tables import branches as lines
from lakefold_table.lance import format as _too

LOADED = (_loaded, filefold, lines, _too)
STEPS = 3
LONGEST_REST_SECONDS = 0.006


class Bounded(io.TextIOWrapper):
    """An output that takes so many lines, and then waits to be killed.

    `until_closed`: the reading end of a pipe. If the process that would kill this one has ended, it ends.
    """

    def __init__(self, descriptor: int, lines: int, until_closed: int) -> None:
        super().__init__(os.fdopen(descriptor, "wb", buffering=0), write_through=True)
        self._left = lines
        self._until_closed = until_closed

    def write(self, text: str) -> int:
        """Writes a line, or what click tries whether text can be written: nothing."""
        if text and not self._left:
            os.read(self._until_closed, 1)
            os._exit(1)
        written = super().write(text)
        self._left -= bool(text)
        return written


def killed(table: str, file: str, lines: int, seconds: float) -> list[object]:
    """The outcomes of a run that lives until it has printed so many lines, and so long after."""
    reading, writing = os.pipe()
    until_closed, closes = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(closes)
        try:
            os.dup2(writing, 1)
            sys.stdout = Bounded(1, lines + 1, until_closed)
            cli.run(["fold", table, file, "--group-max-entries", "1", "--json"])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as output:
        names = [output.readline() for _ in range(lines)]
        select.select([], [], [], seconds)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        names += output
    os.close(until_closed)
    os.close(closes)
    return [json.loads(line) for line in names if line.endswith("\n")]


if __name__ == "__main__":
    moments, done = random.Random(int(sys.argv[4])), 0
    for _ in range(int(sys.argv[3])):
        rest = moments.uniform(0, LONGEST_REST_SECONDS)
        outcomes = killed(sys.argv[1], sys.argv[2], done + moments.randrange(STEPS), rest)
        done = max(done, len(outcomes))
        json.dump(outcomes, sys.stdout)
        sys.stdout.write("\n")
