"""Ends a server when the process that needs it dies, so that a killed test or demo leaves no server behind.

A process that is killed by SIGKILL can't stop the processes it has started. So a shell in another session
reads from a pipe that only this process can write to. If the process dies, the kernel closes the pipe, and
the shell ends the server.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_WAIT = 'read -r _ || { test -z "$1" || kill -s KILL -- "-$1"; test -z "$2" || rm -rf -- "$2"; }'


class KillOnExit:
    """Ends a process group and removes a folder when this process dies, unless it is released before."""

    def __init__(self, group: int | None = None, remove: Path | None = None) -> None:
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "sh", str(group or ""), str(remove or "")],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def release(self) -> None:
        """Ends and removes nothing any more. The group may have ended already; repeated calls are allowed."""
        if self._watch.stdin is not None and not self._watch.stdin.closed:
            self._watch.communicate(b"\n")
