"""Why no broker answers: told by the client library beside its answers, which only say that none came.

A wrong password, and a certificate from an authority that isn't known, stay wrong however long one waits. So
they are told at once, and as what they are, to whom never got an answer. Later the same may pass: a broker
that comes back up knows its users a moment later than its port.
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
    "mend sasl.username, sasl.password and sasl.mechanisms among the kafka options, or the user at the broker"
)
_NOT_KNOWN: Final = (
    "name the authority that signed the broker's certificate: ssl.ca.location among the kafka options"
)
_UNVERIFIED: Final = "certificate verify failed"


class ConnectionProbe:
    """A client that does nothing but try to connect, and notes what becomes of it. Drop it once that is told.

    `last` is the newest of what it met. It is a client of its own because what one is told in this way piles
    up where nobody listens.
    """

    def __init__(self, brokers: str, options: Mapping[str, Any]) -> None:
        self.last = ""
        self._where = brokers
        self._nobody_left = False
        self._refused: tuple[str, str] | None = None
        quiet: dict[str, Any] = {**options, "log_level": 0, "error_cb": self._note}
        self._client = KeptClient.made(quiet)

    def check(self, doing: str) -> None:
        """Raises `InvalidError` where of all brokers that were tried none is there, or none lets us in."""
        self._client.poll(0)
        if self._refused is not None and self._nobody_left:
            text, hint = self._refused
            raise InvalidError(f"{doing}: {text}", where=self._where, hint=hint)

    def _note(self, error: KafkaError) -> None:
        code, text = error.code(), error.str()
        if code == Local.ALL_BROKERS_DOWN:
            self._nobody_left = True
            return
        self.last = text
        if code == Local.AUTHENTICATION:
            self._refused = text, _NOT_LET_IN
        elif code == Local.SSL and _UNVERIFIED in text:
            self._refused = text, _NOT_KNOWN
