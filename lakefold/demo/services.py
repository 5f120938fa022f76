"""The demo's services, which run in a process of their own: many writers append to one table at once.

Each service has a Writer of its own, as if it were a process on another machine, and numbers its rows. So at
the end it is plain from the table whether a row is lost or repeated. No service knows of another: their
transactions meet in the log, and none is refused.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import lakefold
from lakefold.console.interrupts import on_end
from lakefold.console.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

SERVICES: Final = 8
_SCHEMA: Final = pa.schema(
    [("service", pa.int32()), ("number", pa.int64()), ("sent_at", pa.timestamp("us", "UTC"))]
)
_PAUSE_S: Final = 0.2
_MAX_DELAY_S: Final = 1.0


def main() -> None:
    """Appends five rows a second for each service until SIGTERM; then waits for the outcomes of all rows."""
    given = Namespace(**json.loads(sys.argv[1]))
    stopped = Event()
    on_end(stopped.set)
    sent: list[list[Future[lakefold.BatchReport]]] = [[] for _ in range(SERVICES)]
    with ExitStack() as stack:
        writers = [stack.enter_context(_writer(given, service)) for service in range(SERVICES)]
        while not stopped.wait(_PAUSE_S):
            for service, writer in enumerate(writers):
                number, now = len(sent[service]), int(time.time() * 1_000_000)
                row = {"service": service, "number": number, "sent_at": now}
                sent[service].append(writer.append(pa.Table.from_pylist([row], _SCHEMA)))
            _report(sent)
    _report(sent)
    print_json({"done": True})


def _report(sent: Sequence[Sequence[Future[lakefold.BatchReport]]]) -> None:
    """Prints how many rows of each service have an outcome that says they are in the table."""
    reports = [[row.result() for row in rows if row.done() and not row.exception()] for rows in sent]
    versions = {report.version for of_service in reports for report in of_service} - {None}
    print_json({"committed": [len(each) for each in reports], "versions": len(versions)})


def _writer(given: Namespace, service: int) -> lakefold.Writer:
    return lakefold.Writer(
        given.table,
        app_id=f"service-{service}",
        format=given.format,
        max_delay=_MAX_DELAY_S,
        bootstrap_servers=given.bootstrap_servers,
    )


if __name__ == "__main__":
    main()
