"""The demo's web page: `lakefold console` for the demo's broker and table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold.demo.children import Child
from lakefold.local.ports import free_port

if TYPE_CHECKING:
    from lakefold.demo.folder import Folder
    from lakefold.demo.screen import Screen
    from lakefold.demo.state import DemoProgress


class ConsolePage:
    """A running console. `committer_port`: the health port of the committer that it asks."""

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

    def stop(self, patience_s: float) -> None:
        """Ends it, by a signal first."""
        self.child.ask_to_stop()
        self.child.end(patience_s)
