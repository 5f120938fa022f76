"""The demo's reader: follows the table from its first version on, and adds up the checksum of its rows."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

import lakefold
from lakefold.demo.checksum import Checksum, TableChecksums
from lakefold.demo.dataset import SCHEMA, TIME
from lakefold_table.errors import NotATableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

    from lakefold.demo.screen import Screen
    from lakefold.demo.state import DemoProgress
    from lakefold_reader.tail.change import Change

_LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Arrival:
    """A version that the reader got at the monotonic time `at`. `until` is the latest departure in it."""

    version: int
    operation: str
    rows: int
    offset: int | None
    until: datetime | None
    at: float


class Follower:
    """A thread that tails the table until it is stopped.

    `arrivals`, `seen` (the checksum of all rows up to now), `version` and `error` may be read in any thread.
    """

    def __init__(self, table: Path) -> None:
        self.arrivals: list[Arrival] = []
        self.seen = Checksum()
        self.error: Exception | None = None
        self._table = table
        self._noted = 0
        self._rows_noted = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The newest version that was read, 0 before the first."""
        return self.arrivals[-1].version if self.arrivals else 0

    @property
    def pace(self) -> tuple[int, float]:
        """The median number of rows of a version, and the median of seconds between two versions."""
        pairs = list(pairwise(self.arrivals)) or [(self.arrivals[0], self.arrivals[0])]
        return round(median(new.rows for _, new in pairs)), median(new.at - old.at for old, new in pairs)

    def look(self, state: DemoProgress, screen: Screen) -> None:
        """Shows the versions that were read since the last call. Raises the tail's error if it failed."""
        for arrival in self.arrivals[self._noted :]:
            self._noted += 1
            self._rows_noted += arrival.rows
            screen.note(_text(arrival, self._rows_noted))
        state.version = self.version
        state.saw(self._rows_noted)
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Ends the tail and waits for its last step."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.error = error

    def _follow(self) -> None:
        checksums = TableChecksums(SCHEMA)
        changes = self._begin()
        if changes is None:
            return
        for change in changes:
            rows = change.inserted()
            if rows.num_rows:
                self.seen += checksums.of(rows, f"version {change.version}")
            offset = None if change.position is None else change.position.offset
            until = _latest(rows)
            arrival = Arrival(
                change.version, change.operation, rows.num_rows, offset, until, time.monotonic()
            )
            self.arrivals.append(arrival)

    def _begin(self) -> Iterator[Change] | None:
        """Waits until the table is created. Returns its changes, or None if it is stopped before."""
        while not self._stop.is_set():
            try:
                return lakefold.tail(self._table, "earliest", follow=True, stop=self._stop.is_set)
            except NotATableError:
                self._stop.wait(_LOOK_EVERY_S)
        return None


def _latest(rows: pa.Table) -> datetime | None:
    latest: datetime | None = pc.max(rows[TIME]).as_py() if rows.num_rows else None
    return latest


def _text(arrival: Arrival, rows: int) -> str:
    """Returns the line that is shown for a version."""
    offset = "" if arrival.offset is None else f", log offset {arrival.offset}"
    if not arrival.rows or arrival.until is None:
        return f"tail: version {arrival.version}, {arrival.operation}, no rows{offset}"
    until = f"{arrival.until:%d %b %Y}"
    return f"tail: version {arrival.version}, +{arrival.rows:,} rows, in all {rows:,}, up to {until}{offset}"
