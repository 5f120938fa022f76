"""A table that we write, and a stream of our commits to it while a foreign client works."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import lance

from lakefold_table.errors import RetryError, StopError
from lakefold_table.storage import open_storage
from tests.clients.arrow import SCHEMA, rows
from tests.tables import Folded
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry

FIRST: Final = 300
"""So many rows are there before a client comes: enough to train an index on."""
OURS: Final = 100_000
"""The first id of the stream."""


class _Now(Folded):
    """A table whose versions are as old as they look: others clean up by their stamps."""

    def entry(self, envelope: Envelope) -> Entry:
        return replace(super().entry(envelope), time_us=time.time_ns() // 1000)


class Stream:
    """Commits a row at a time, from a thread, whatever foreign clients do in between.

    `expected`: the text of each row by its id, as our own commits leave the table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = time.monotonic()
        self._table = _Now(open_storage(path), schema=SCHEMA)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._next = OURS
        self.commits = 0
        self.expected: dict[int, str] = {}
        for first in range(0, FIRST, 100):
            ids = list(range(first, first + 100))
            self._table.append(rows(ids, "first"))
            self.expected |= dict.fromkeys(ids, "first")

    @property
    def version(self) -> int:
        """The newest version."""
        return self._table.versions.latest()

    @property
    def oldest(self) -> int:
        """The oldest version that is left."""
        return min(self._table.versions.numbers())

    @property
    def seconds(self) -> float:
        """How long the table has been there."""
        return time.monotonic() - self._began

    def commit(self, count: int = 1) -> None:
        """Commit so many versions of a single row each."""
        for _ in range(count):
            with self._lock:
                self._commit()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Commits until the context ends; at least five are made within. Raises what a commit raised."""
        self._stop.clear()
        before = self.commits
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
            until(lambda: self.commits >= before + 5 or self._failure is not None, "five commits")
        finally:
            self._stop.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def check(self) -> None:
        """The table is sound, and holds exactly the expected rows."""
        dataset = lance.dataset(str(self.path))
        dataset.validate()
        table = dataset.to_table(columns=["id", "text"])
        ids = table["id"].to_pylist()
        assert len(set(ids)) == len(ids)
        assert dict(zip(ids, table["text"].to_pylist(), strict=True)) == self.expected

    def _run(self) -> None:
        began = time.monotonic()
        try:
            # A client that lost the race for a version must check all newer versions before its next attempt.
            # Beside a stream that never slows down it may lose for ever.
            while not self._stop.wait(0.02 + (time.monotonic() - began) / 100):
                self.commit()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._failure = error

    def _commit(self) -> None:
        number = self._next
        while True:
            try:
                self._table.append(rows([number], "ours"))
            except (StopError, RetryError):
                # Others removed old versions: what is there is opened, as a committer does.
                self._table.take_over()
                continue
            break
        self._next += 1
        self.commits += 1
        self.expected[number] = "ours"
