"""Runs programs that may have few threads only, as under `ulimit -u` or the `pids` limit of a container."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_FIRST_UID = 100_000
"""Above every user's; each test process takes another one, because the limit counts all threads of a user."""


def limited(threads: int, *arguments: str) -> list[str]:
    """The command that runs Python with these arguments; the process may have so many threads.

    The limit doesn't hold for root. So root runs it as a user that has no other process, and may read and
    write all files as root does.
    """
    command = [sys.executable, *arguments]
    if os.geteuid():
        return ["prlimit", f"--nproc={_running(os.geteuid()) + threads}", *command]
    user = ["setpriv", f"--reuid={_FIRST_UID + os.getpid() % 1_000_000}"]
    rights = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return [*user, *rights, "prlimit", f"--nproc={threads}", *command]


def _running(uid: int) -> int:
    """Returns how many threads this user has now."""
    number = 0
    for tasks in Path("/proc").glob("[0-9]*/task"):
        try:
            number += len(list(tasks.iterdir())) if tasks.stat().st_uid == uid else 0
        except FileNotFoundError:
            continue  # It has ended meanwhile.
    return number
