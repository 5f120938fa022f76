"""Finds out why no broker answers: a request alone only reports that it timed out.

A wrong password, and a certificate of an unknown authority, stay wrong however long a client waits. So they
are reported at once, and by name, to a client that never got an answer. Later the same errors may pass: a
broker that restarts opens its port a moment before it knows its users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakefold_log.client.admin_client import KeptClient
from lakefold_log.client.error_codes import Local
from lakefold_log.client.meanings import Meaning, Request, meaning_of
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

    It is a client of its own because such events pile up if they are not polled.
    """

    def __init__(self, brokers: str, options: Mapping[str, Any]) -> None:
        self._where = brokers
        self._errors = _Errors()
        # The callback does not lead back to the client: `KeptClient` takes a client that a cycle refers to
        # for one that is used, so it would try to connect until the process ends.
        quiet: dict[str, Any] = {**options, "log_level": 0, "error_cb": self._errors.note}
        self._client = KeptClient.made(quiet)

    @property
    def last(self) -> str:
        """The newest error, empty if there is none yet."""
        return self._errors.last

    def check(self, doing: str) -> None:
        """Raises `InvalidError` if all brokers that were tried are unreachable or refuse this client."""
        self._client.poll(0)
        if self._errors.refused is not None and self._errors.all_down:
            text, hint = self._errors.refused
            raise InvalidError(f"{doing}: {text}", where=self._where, hint=hint)


class _Errors:
    """What a client has reported. `refused`: why brokers refuse this client, and what to do."""

    def __init__(self) -> None:
        self.last = ""
        self.all_down = False
        self.refused: tuple[str, str] | None = None

    def note(self, error: KafkaError) -> None:
        code, text = error.code(), error.str()
        if code == Local.ALL_BROKERS_DOWN:
            self.all_down = True
            return
        self.last = text
        if meaning_of(error, Request.CONNECTION) is Meaning.REFUSED:
            self.refused = text, _NOT_LET_IN
        elif code == Local.SSL and _UNVERIFIED in text:
            self.refused = text, _NOT_KNOWN
