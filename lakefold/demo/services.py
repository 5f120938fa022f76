"""The demo's services, which run in a process of their own: many writers append to one table at once.

Each service has a Writer of its own, as if it were a process on another machine, and numbers its rows. So at
the end it is plain from the table whether a row is lost or repeated. No service knows of another: their
transactions meet in the log, and none is refused.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import lakefold
from lakefold.console.interrupts import on_end

if TYPE_CHECKING:
    from concurrent.futures import Future

SERVICES: Final = 8
SCHEMA: Final = pa.schema(
    [("service", pa.int32()), ("number", pa.int64()), ("sent_at", pa.timestamp("us", "UTC"))]
)
_PAUSE_S: Final = 0.2
_MAX_DELAY_S: Final = 1.0
_RECORD_EVERY_S: Final = 0.5


@dataclass
class Service:
    """A service. `sent`: how many rows it has appended; `committed`: how many of them are in the table."""

    number: int
    sent: int = 0
    committed: int = 0
    versions: set[int] = field(default_factory=set)

    def run(self, writer: lakefold.Writer, stop: threading.Event) -> None:
        """Appends five rows a second until `stop` is set."""
        with writer:
            while not stop.is_set():
                row = [[self.number], [self.sent], [int(time.time() * 1_000_000)]]
                arrays = [pa.array(values, each.type) for values, each in zip(row, SCHEMA, strict=True)]
                writer.append(pa.table(arrays, SCHEMA)).add_done_callback(self._count)
                self.sent += 1
                stop.wait(_PAUSE_S)

    def _count(self, done: Future[lakefold.BatchReport]) -> None:
        if done.exception() is None:
            version = done.result().version
            self.committed += 1
            self.versions |= set() if version is None else {version}


def main() -> None:
    """Runs the services until SIGTERM. Then each ends with the outcomes of all its rows."""
    given = _arguments()
    stop = threading.Event()
    on_end(stop.set)
    services = [Service(number) for number in range(SERVICES)]
    with given.progress.open("a") as progress, ThreadPoolExecutor(SERVICES) as pool:

        def record(event: str) -> None:
            committed = [service.committed for service in services]
            versions = len(set().union(*(service.versions for service in services)))
            progress.write(json.dumps({"event": event, "committed": committed, "versions": versions}) + "\n")
            progress.flush()

        running = [pool.submit(service.run, _writer(given, service.number), stop) for service in services]
        while (state := wait(running, _RECORD_EVERY_S)).not_done:
            record("running")
            if any(each.exception() for each in state.done):
                stop.set()
        for each in running:
            each.result()
        record("done")


def _writer(given: argparse.Namespace, number: int) -> lakefold.Writer:
    return lakefold.Writer(
        given.table,
        app_id=f"service-{number}",
        format=given.format,
        max_delay=_MAX_DELAY_S,
        bootstrap_servers=given.bootstrap_servers,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap-servers", "table", "format"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--progress", required=True, type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
