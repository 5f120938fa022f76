"""The process of the streaming query, seen from the demo: started, followed by what it tells, ended."""

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
    from lakefold.demo.state import State
    from lakefold.demo.watch import Watch

BATCHES: Final = 16
"""Into how many micro-batches the rows are cut."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic of the events."""

    name: str
    partitions: int


_STOP_S: Final = 20.0


class Job:
    """The query's process. `started`: when the query began, on the monotonic clock; `done`: all is in."""

    def __init__(self, folder: Folder, watch: Watch, bootstrap_servers: str, topic: Topic, rows: int) -> None:
        self.started: float | None = None
        self.done = False
        self._told = ProgressFile(folder.logs / "query-progress.jsonl")
        given = {
            "bootstrap-servers": bootstrap_servers,
            "topic": topic.name,
            "table": folder.table,
            "checkpoint": folder.checkpoint,
            "scratch": folder.scratch,
            "progress": self._told.path,
            "rows": rows,
            # Spark parts the limit among the partitions and leaves out what doesn't come to a whole row.
            "batch-rows": -(-rows // BATCHES) + topic.partitions - 1,
        }
        arguments = [f"--{name}={value}" for name, value in given.items()]
        log = folder.logs / "query.log"
        self.child = Child(
            "streaming query", "lakefold.demo.query", arguments, log=log, watch=watch, scratch=folder.scratch
        )

    def look(self, state: State, _: Screen) -> None:
        """Take in what it told since the last look. Raises its failure."""
        ended = self.child.exit_code is not None
        for told in self._told.new_lines():
            self._take(told, state)
        if ended and not self.done:
            raise self.child.failure()

    def stop(self) -> None:
        """Let it end by itself, which it does when it is done."""
        self.child.end(_STOP_S)

    def _take(self, told: dict[str, Any], state: State) -> None:
        match told["event"]:
            case "started":
                self.started = time.monotonic()
                state.query = "streaming, first batch"
            case "batch":
                state.batches += 1
                state.written += told["rows"]
                state.query = f"batch {told['batch']}: {told['rows']:,} rows in {told['seconds']:.1f} s"
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
        """Give the lines added since the last call; one that isn't whole yet is left for the next."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield json.loads(line)
