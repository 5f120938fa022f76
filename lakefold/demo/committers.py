"""The demo's committer and, after that was killed, the next; and the web page, which asks the committer."""

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
    from lakefold.demo.state import DemoProgress

_ASK_EVERY_S: Final = 0.1
_ANSWER_S: Final = 1.0
_FINISH_S: Final = 10.0


class Committers:
    """Runs a single committer at a time, each with its own log; all have the same health port."""

    def __init__(self, folder: Folder, bootstrap_servers: str) -> None:
        self._folder = folder
        self._bootstrap_servers = bootstrap_servers
        self._number = 0
        self._checked_at = 0.0
        self._ready = False
        # The page of the console asks each of them there.
        self.port = free_port()
        self.child = self._start()

    @property
    def ready(self) -> bool:
        """Whether the running committer folds. Its health is requested from time to time until it does."""
        if not self._ready and time.monotonic() >= self._checked_at + _ASK_EVERY_S:
            self._checked_at = time.monotonic()
            self._ready = self._is_ready()
        return self._ready

    def look(self, state: DemoProgress, _: Screen) -> None:
        """Shows the state of the committer. Raises its failure if it exited by itself."""
        if self.child.exit_code is not None:
            raise self.child.failure()
        state.committer = f"pid {self.child.pid}, {'folding' if self.ready else 'starting'}"

    def kill(self) -> int:
        """Ends the running committer by SIGKILL. Returns its process id."""
        self.child.end()
        return self.child.pid

    def start_next(self) -> int:
        """Starts another committer. Returns its process id."""
        self.child = self._start()
        return self.child.pid

    def stop(self, patience_s: float = _FINISH_S) -> None:
        """Lets the committer finish its group and exit; kills it after `patience_s` seconds."""
        self.child.stop(patience_s)

    def _start(self) -> Child:
        self._number += 1
        self._ready, self._checked_at = False, 0.0
        arguments = ["committer", "--bootstrap-servers", self._bootstrap_servers]
        arguments += ["--root", str(self._folder.root), "--http-port", str(self.port)]
        # The next one doesn't wait until the session of a killed one has timed out.
        arguments += ["--partitions", "all"]
        log = self._folder.logs / f"committer-{self._number}.log"
        return Child("committer", "lakefold", arguments, log=log, scratch=self._folder.scratch)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=_ANSWER_S):
                return True
        except (urllib.error.URLError, OSError):
            return False


class ConsolePage:
    """A running `lakefold console`. `committer_port`: the health port of the committer that it asks."""

    def __init__(self, folder: Folder, bootstrap_servers: str, committer_port: int) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}/"
        arguments = ["console", "--port", str(port), "--bootstrap-servers", bootstrap_servers]
        arguments += ["--root", str(folder.root), "--http-port", str(committer_port)]
        log = folder.logs / "console.log"
        self.child = Child("console", "lakefold", arguments, log=log, scratch=folder.scratch)

    def look(self, _: DemoProgress, __: Screen) -> None:
        """Raises its failure if it exited by itself."""
        if self.child.exit_code is not None:
            raise self.child.failure()
