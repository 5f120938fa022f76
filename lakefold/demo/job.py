"""The process of the streaming query: the demo starts it, follows its progress file and ends it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic of the events."""

    name: str
    partitions: int


_STOP_S: Final = 20.0


class Job:
    """The query's process. `started` is the monotonic time of its start; `done` is true after all batches."""

    def __init__(self, folder: Folder, bootstrap_servers: str, topic: Topic, rows: int) -> None:
        self.started: float | None = None
        self.done = False
        self._progress = ProgressFile(folder.logs / "query-progress.jsonl")
        given = {
            "bootstrap-servers": bootstrap_servers,
            "topic": topic.name,
            "table": folder.table,
            "format": folder.format,
            "checkpoint": folder.checkpoint,
            "scratch": folder.scratch,
            "progress": self._progress.path,
            "rows": rows,
            # Spark divides the limit among the partitions and rounds down.
            "batch-rows": -(-rows // BATCHES) + topic.partitions - 1,
        }
        arguments = [f"--{name}={value}" for name, value in given.items()]
        log = folder.logs / "query.log"
        self.child = Child(
            "streaming query", "lakefold.demo.query", arguments, log=log, scratch=folder.scratch
        )

    def look(self, state: DemoProgress, _: Screen) -> None:
        """Shows the progress since the last call. Raises the query's failure if it exited too early."""
        ended = self.child.exit_code is not None
        for event in self._progress.new_lines():
            self._apply(event, state)
        if ended and not self.done:
            raise self.child.failure()

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
