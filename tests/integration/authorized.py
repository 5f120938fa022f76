"""A broker that lets each user do only what ACLs allow; a user without a name sets it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold.local.broker import Broker
from lakefold.local.ports import free_port

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

HOST: Final = "127.0.0.1"
_LISTENER: Final = """
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port},SASL_PLAINTEXT://{host}:{named_port}
advertised.listeners=PLAINTEXT://{host}:{port},SASL_PLAINTEXT://{host}:{named_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class AuthorizedBroker(Broker):
    """As `Broker`, with another listener that asks for a name, and an authorizer.

    `users` are the names that are known there; the password of each is its name.
    """

    def __init__(self, directory: str | os.PathLike[str], users: Iterable[str]) -> None:
        super().__init__(directory)
        self._users = tuple(users)
        self._named_port = free_port()

    @property
    def named_servers(self) -> str:
        """The address of that listener."""
        return f"{HOST}:{self._named_port}"

    @staticmethod
    def options(user: str) -> dict[str, str]:
        """What a client of this user is given, in librdkafka's names."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": user,
        }

    def _write_properties(self) -> None:
        super()._write_properties()
        users = " ".join(f'user_{user}="{user}"' for user in self._users)
        filled = _LISTENER.format(host=HOST, users=users, named_port=self._named_port, **self._ports())
        with self._properties.open("a") as file:
            file.write(filled)
