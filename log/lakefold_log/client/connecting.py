"""Finds out why no broker answers: a request alone only reports that it timed out.

A wrong password, and a certificate of an unknown authority, stay wrong however long a client waits. So they
are reported at once, and by name, to a client that never got an answer. Later the same errors may pass: a
broker that restarts opens its port a moment before it knows its users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakefold_log.client.admin_client import KeptClient
from lakefold_log.client.error_codes import Local
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError

_NOT_LET_IN: Final = (
    "correct the kafka options sasl.username, sasl.password and sasl.mechanisms, or the user at the broker"
)
_NOT_KNOWN: Final = (
    "set the kafka option ssl.ca.location to the authority that signed the broker's certificate"
)
_UNVERIFIED: Final = "certificate verify failed"


class ConnectionProbe:
    """A client that only tries to connect and records the errors. Drop it once the reason is known.

    `last` is the newest error. It is a client of its own because such events pile up if they are not polled.
    """

    def __init__(self, brokers: str, options: Mapping[str, Any]) -> None:
        self.last = ""
        self._where = brokers
        self._all_down = False
        self._refused: tuple[str, str] | None = None
        quiet: dict[str, Any] = {**options, "log_level": 0, "error_cb": self._note}
        self._client = KeptClient.made(quiet)

    def check(self, doing: str) -> None:
        """Raises `InvalidError` if all brokers that were tried are unreachable or refuse this client."""
        self._client.poll(0)
        if self._refused is not None and self._all_down:
            text, hint = self._refused
            raise InvalidError(f"{doing}: {text}", where=self._where, hint=hint)

    def _note(self, error: KafkaError) -> None:
        code, text = error.code(), error.str()
        if code == Local.ALL_BROKERS_DOWN:
            self._all_down = True
            return
        self.last = text
        if code == Local.AUTHENTICATION:
            self._refused = text, _NOT_LET_IN
        elif code == Local.SSL and _UNVERIFIED in text:
            self._refused = text, _NOT_KNOWN
