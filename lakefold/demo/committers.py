"""The demo's committer and, after the first was killed, the next one."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from lakefold.demo.children import Child
from lakefold.local.ports import free_port

if TYPE_CHECKING:
    from lakefold.demo.folder import Folder
    from lakefold.demo.screen import Screen
    from lakefold.demo.state import State
    from lakefold.demo.watch import Watch

_ASK_EVERY_S: Final = 0.1
_ANSWER_S: Final = 1.0
_FINISH_S: Final = 10.0


class Committers:
    """Runs one committer at a time, each with a log and a port for its health of its own."""

    def __init__(self, folder: Folder, watch: Watch, bootstrap_servers: str) -> None:
        self._folder = folder
        self._watch = watch
        self._bootstrap_servers = bootstrap_servers
        self._number = 0
        self._asked = 0.0
        self._ready = False
        self.child = self._start()

    @property
    def ready(self) -> bool:
        """Whether the one that runs folds. It is asked every now and then until it says so."""
        if not self._ready and time.monotonic() >= self._asked + _ASK_EVERY_S:
            self._asked = time.monotonic()
            self._ready = self._says_ready()
        return self._ready

    def look(self, state: State, _: Screen) -> None:
        """Tell how it is. Raises the failure of one that ended by itself."""
        if self.child.exit_code is not None:
            raise self.child.failure()
        state.committer = f"pid {self.child.pid}, {'folding' if self.ready else 'starting'}"

    def kill(self) -> int:
        """End the one that runs with SIGKILL; give its process id."""
        self.child.end()
        return self.child.pid

    def start_next(self) -> int:
        """Start another; give its process id."""
        self.child = self._start()
        return self.child.pid

    def stop(self, patience_s: float = _FINISH_S) -> None:
        """Have it finish the group in flight and leave."""
        self.child.ask_to_stop()
        self.child.end(patience_s)

    def _start(self) -> Child:
        self._number += 1
        self._ready, self._asked = False, 0.0
        self._port = free_port()
        arguments = ["committer", "--bootstrap-servers", self._bootstrap_servers]
        arguments += ["--root", str(self._folder.root), "--http-port", str(self._port)]
        log = self._folder.logs / f"committer-{self._number}.log"
        return Child(
            "committer", "lakefold", arguments, log=log, watch=self._watch, scratch=self._folder.scratch
        )

    def _says_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=_ANSWER_S):
                return True
        except (urllib.error.URLError, OSError):
            return False
