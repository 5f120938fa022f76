"""SIGTERM and SIGINT at each line by which a verb begins to wait for its end: none of them is missed.

Each signal comes to a process of its own, a copy of one that has imported the verbs. Several run at once,
since they wait for most of their time.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MOMENTS: Final = 24
"""More lines than the beginning of a wait has."""
PROGRAM: Final = """
import os, select, signal, sys, threading
import lakefold.folding.committer, lakefold.maintaining.maintain, lakefold.web.console_verb, lakefold.web.site
import lakefold_committer.process.daemon, lakefold_maintenance.scheduling.maintainer
from lakefold import cli

SECONDS, AT_ONCE, MOMENTS = 60, 8, int(sys.argv[1])
sys.argv = ["lakefold", *sys.argv[2:]]


class Signalled:
    # Sends a signal before a line, counted over the lines of `threading` that the main thread runs once the
    # verb handles the signal itself.
    def __init__(self, number, line):
        self.number, self.left = number, line

    def frame(self, frame, event, _):
        return self.line if frame.f_code.co_filename == threading.__file__ and self.is_wait(frame) else None

    def is_wait(self, frame):
        while frame is not None:
            if frame.f_code.co_name == "wait" and frame.f_code.co_filename == threading.__file__:
                return True
            frame = frame.f_back
        return False

    def line(self, frame, event, _):
        if event == "line" and signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, cli._leave}:
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                os.kill(os.getpid(), self.number)
        return self.line


def begun(number, line):
    child = os.fork()
    if child == 0:
        # What it prints would come between the lines of its parent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.settrace(Signalled(number, line).frame)
        cli.main()
    return child


def ended(child):
    process = os.pidfd_open(child)
    has_ended, _, _ = select.select([process], [], [], SECONDS)
    os.close(process)
    if not has_ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if has_ended else "missed"


moments = [(number, line) for line in range(1, MOMENTS + 1) for number in (signal.SIGTERM, signal.SIGINT)]
for first in range(0, len(moments), AT_ONCE):
    some = moments[first : first + AT_ONCE]
    children = [begun(number, line) for number, line in some]
    for (number, line), child in zip(some, children):
        print(number.name, line, ended(child), flush=True)
"""
VERBS: Final = {
    "committer": ("--http-port", "0"),
    "maintain": ("--http-port", "0", "--every", "1000"),
    "console": ("--port", "0"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_begins_to_wait_for_its_end_ends(verb: str, tmp_path: Path) -> None:
    words = [verb, "--bootstrap-servers", "127.0.0.1:1", "--root", str(tmp_path), *VERBS[verb]]
    command = [sys.executable, "-c", PROGRAM, str(MOMENTS), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ends = [line.split() for line in done.stdout.splitlines() if line.startswith("SIG")]
    assert len(ends) == 2 * MOMENTS, done.stderr
    assert [end for end in ends if end[-1] != "0"] == [], done.stderr
