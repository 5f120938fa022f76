"""The logger for librdkafka's own log lines, which limits how often the same line is repeated.

An unreachable broker would fill the process's log: every client tries to connect several times a second and
logs each attempt (tried: librdkafka 2.16 doesn't slow down). The first line of a kind is enough.
"""

from __future__ import annotations

import logging
import time
from typing import Final

_SAME_EVERY_S: Final = 30.0


class _OncePerKind(logging.Filter):
    """Passes a line if its client has logged none of its kind for half a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._next_at: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # The client library logs with the arguments (kind, client's name, text).
        kind = record.args[:2] if isinstance(record.args, tuple) else (record.msg,)
        now = time.monotonic()
        if now < self._next_at.get(kind, 0.0):
            return False
        self._next_at[kind] = now + _SAME_EVERY_S
        return True


# Nothing is printed unless the process sets a handler. Without the null handler, Python itself prints
# warnings to stderr.
LOGGER: Final = logging.getLogger("lakefold_log.kafka")
LOGGER.addHandler(logging.NullHandler())
LOGGER.addFilter(_OncePerKind())
