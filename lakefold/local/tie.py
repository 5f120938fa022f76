"""Ties a server's life to the process that needs it, so that a killed test or demo leaves no server behind.

A process that dies by SIGKILL can't stop what it started. A shell of its own session waits at a pipe whose
other end only that process holds: the kernel closes it with the process, and the shell ends the server.
"""

from __future__ import annotations

import subprocess

_WAIT = 'read -r _ || kill -s KILL -- "-$0"'


class Tie:
    """Ends the process group `group` when this process dies, unless released before."""

    def __init__(self, group: int) -> None:
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, str(group)], stdin=subprocess.PIPE, start_new_session=True
        )

    def release(self) -> None:
        """Let the group be; it may have ended already. Safe to call again."""
        if self._watch.stdin is not None and not self._watch.stdin.closed:
            self._watch.communicate(b"\n")
