"""The demo's reader: follows the table from its first version on, and adds up the checksum of its rows."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from threading import Event
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

import lakefold
from lakefold.demo.dataset import TIME
from lakefold.demo.verification import Checksum, checksum_of
from lakefold_table.errors import NotATableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold.demo.screen import DemoProgress
    from lakefold_reader.tail.change import Change

_LOOK_EVERY_S: Final = 0.05


class Follower:
    """Tails the table until it is stopped, and reports to `state`.

    `arrivals`: the monotonic time at which each version was read, with its number of rows. `seen`: the
    checksum of all rows up to now.
    """

    def __init__(self, table: Path, state: DemoProgress) -> None:
        self.arrivals: list[tuple[float, int]] = []
        self.seen = Checksum()
        self._table = table
        self._state = state
        self._stopped = Event()

    @property
    def pace(self) -> tuple[int, float]:
        """The median number of rows of a version, and the median of seconds between two versions."""
        pairs = list(pairwise(self.arrivals)) or [(self.arrivals[0], self.arrivals[0])]
        return round(median(rows for _, (_, rows) in pairs)), median(
            new - old for (old, _), (new, _) in pairs
        )

    def run(self) -> None:
        """Reads version after version until `stop` is called."""
        for change in self._changes():
            rows = change.inserted()
            text = f"tail: version {change.version}, {change.operation}, no rows"
            if rows.num_rows:
                self.seen += checksum_of(rows, f"version {change.version}")
                until = f"{pc.max(rows[TIME]).as_py():%d %b %Y}"
                text = f"tail: version {change.version}, +{rows.num_rows:,} rows, "
                text += f"in all {self.seen.rows:,}, up to {until}"
            self.arrivals.append((time.monotonic(), rows.num_rows))
            offset = "" if change.position is None else f", log offset {change.position.offset}"
            self._state.note(text + offset)
            self._state.saw(self.seen.rows, change.version)

    def stop(self) -> None:
        """Ends the tail after its present step."""
        self._stopped.set()

    def _changes(self) -> Iterator[Change]:
        """Waits until the table is created. Returns its changes, none if it is stopped before."""
        while not self._stopped.is_set():
            try:
                return lakefold.tail(self._table, "earliest", follow=True, stop=self._stopped.is_set)
            except NotATableError:
                self._stopped.wait(_LOOK_EVERY_S)
        return iter(())
