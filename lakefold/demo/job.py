"""The processes that write: the demo starts them, follows their progress files and ends them."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from lakefold.demo.children import Child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold.demo.folder import Folder
    from lakefold.demo.screen import Screen
    from lakefold.demo.state import DemoProgress

BATCHES: Final = 16
"""The number of micro-batches."""
TOPIC: Final = "flights"
"""The topic of the events."""
PARTITIONS: Final = 2
_STOP_S: Final = 20.0


class WritingJob(ABC):
    """A process that writes to a table and reports to a progress file. `done` is true after all is written.

    `name`: of the process, in messages. `more`: arguments that only this one takes.
    """

    def __init__(
        self, name: str, module: str, folder: Folder, bootstrap_servers: str, table: Path, **more: object
    ) -> None:
        self.done = False
        files = folder.logs / module.rpartition(".")[2]
        self._progress = ProgressFile(files.with_name(f"{files.name}-progress.jsonl"))
        given = {
            "bootstrap-servers": bootstrap_servers,
            "table": table,
            "format": folder.format,
            "progress": self._progress.path,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        arguments = [f"--{name}={value}" for name, value in given.items()]
        self.child = Child(name, module, arguments, log=files.with_suffix(".log"), scratch=folder.scratch)

    def look(self, state: DemoProgress, _: Screen) -> None:
        """Shows the progress since the last call. Raises the process's failure if it exited too early."""
        ended = self.child.exit_code is not None
        for event in self._progress.new_lines():
            self._apply(event, state)
        if ended and not self.done:
            raise self.child.failure()

    @abstractmethod
    def _apply(self, event: dict[str, Any], state: DemoProgress) -> None:
        """Notes what a line of the progress file says."""


class Job(WritingJob):
    """The query's process. `started` is the monotonic time of its start; it is done after all batches."""

    def __init__(self, folder: Folder, bootstrap_servers: str, rows: int) -> None:
        self.started: float | None = None
        super().__init__(
            "streaming query",
            "lakefold.demo.query",
            folder,
            bootstrap_servers,
            folder.table,
            topic=TOPIC,
            checkpoint=folder.checkpoint,
            scratch=folder.scratch,
            rows=rows,
            # Spark divides the limit among the partitions and rounds down.
            batch_rows=-(-rows // BATCHES) + PARTITIONS - 1,
        )

    def stop(self) -> None:
        """Waits for the query to exit, as it does when it is done; kills it if that takes too long."""
        self.child.end(_STOP_S)

    def _apply(self, event: dict[str, Any], state: DemoProgress) -> None:
        match event["event"]:
            case "started":
                self.started = time.monotonic()
                state.query = "streaming, first batch"
            case "batch":
                state.batches += 1
                state.written += event["rows"]
                state.query = f"batch {event['batch']}: {event['rows']:,} rows in {event['seconds']:.1f} s"
            case "done":
                self.done = True
                state.query = "done"


class ServicesJob(WritingJob):
    """The process of the services. `committed`: how many rows of each are in the table, as it reports."""

    def __init__(self, folder: Folder, bootstrap_servers: str) -> None:
        self.committed: list[int] = []
        self.versions = 0
        super().__init__(
            "services", "lakefold.demo.services", folder, bootstrap_servers, folder.services_table
        )

    def _apply(self, event: dict[str, Any], state: DemoProgress) -> None:
        self.committed, self.versions = event["committed"], event["versions"]
        self.done = event["event"] == "done"
        state.service_rows, state.services = sum(self.committed), len(self.committed)


class ProgressFile:
    """A file of JSON lines that another process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = 0

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Yields the lines added since the last call. An incomplete line is left for the next call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield json.loads(line)
