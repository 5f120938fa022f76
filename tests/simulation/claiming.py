"""Envelopes that lie beside their table, and what goes to the log in their place.

A claim's file is written before its message is sent. Here it may also be gone, come late, or be other bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_log.codec.claims import path_of, put_claim
from lakefold_log.codec.envelope import encode
from tests.memory_storage import MemoryStorage
from tests.simulation.runtime import START_S

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.simulation.runtime import Hub
    from tests.simulation.store import Store

THERE, LATE, GONE, OTHER, SHORT = "there", "late", "gone", "other bytes", "fewer bytes"
FATES: Final = (*[THERE] * 6, *[LATE] * 2, GONE, OTHER, SHORT)
NOTHING: Final = frozenset({GONE, OTHER, SHORT})
"""Fates of a claim that stands for no envelope."""


@dataclass
class Claimer:
    """Writes claims. `late_s`: how late the file of a late claim comes, at most."""

    hub: Hub
    store: Store
    late_s: float = 4.0
    _written: int = 0

    def claim(self, envelope: Envelope, fate: str) -> Envelope:
        """What goes to the log for this envelope, its file written as the fate says."""
        storage = MemoryStorage(envelope.table)
        self._written += 1
        sent_ns = int((START_S + self.hub.now) * 1e9) + self._written
        small = put_claim(storage, envelope, encode(envelope), sent_ns)
        path = path_of(small.claim)
        data = storage.get(path)
        storage.delete(path)
        if fate == THERE:
            self._put(envelope.table, path, data)
        elif fate == LATE:
            put = partial(self._put, envelope.table, path, data)
            self.hub.later(self.hub.random.random() * self.late_s, put)
        elif fate != GONE:
            self._put(envelope.table, path, data[:-1] + (b"" if fate == SHORT else b"\xff"))
        return small

    def _put(self, uri: str, path: str, data: bytes) -> None:
        MemoryStorage(uri).put(path, [data])
        self.store.note(uri, path)
