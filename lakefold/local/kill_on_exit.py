"""Ends a server when the process that needs it dies, so that a killed test or demo leaves no server behind.

A process that is killed by SIGKILL can't stop the processes it has started. So a shell in another session
reads from a pipe that only this process can write to. If the process dies, the kernel closes the pipe, and
the shell ends the server.
"""

from __future__ import annotations

import subprocess

_WAIT = 'read -r _ || kill -s KILL -- "-$0"'


class KillOnExit:
    """Ends the process group `group` when this process dies, unless it is released before."""

    def __init__(self, group: int) -> None:
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, str(group)], stdin=subprocess.PIPE, start_new_session=True
        )

    def release(self) -> None:
        """Leaves the group alone from now on. It may have ended already, and this may be called again."""
        if self._watch.stdin is not None and not self._watch.stdin.closed:
            self._watch.communicate(b"\n")
