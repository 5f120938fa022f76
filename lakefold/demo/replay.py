"""Sends the departures to the topic, as fast as the broker accepts them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lakefold.demo.events import events_of
from lakefold.demo.tasks import Task
from lakefold_log.write.events import EventSender

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefold.demo.screen import Screen
    from lakefold.demo.state import State
    from lakefold_log.client.admin import KafkaConfig


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

    def look(self, state: State, _: Screen) -> None:
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
