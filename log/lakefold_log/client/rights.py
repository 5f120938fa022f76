"""Names the right that a client lacks if the brokers' authorizer refuses a request.

The brokers answer with a code that says whether a topic, the group or the transactional id was refused, but
neither which right is missing nor for what. The caller knows both, and passes the rights that its request
needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_KINDS: Final[Mapping[int, str]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}


@dataclass(frozen=True, slots=True)
class Right:
    """A right in Kafka's own names: an operation, the kind of its resource, and the resource's name."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"

    @property
    def grant(self) -> str:
        """The options of Kafka's own tool with which an administrator grants it."""
        option = self.kind.replace(" ", "-")
        return f"--operation {self.operation} --{option} {self.name}"


def on_topics(operation: str, *topics: str) -> tuple[Right, ...]:
    """Returns the right to do this to each of the topics."""
    return tuple(Right(operation, "topic", topic) for topic in topics)


def on_group(operation: str, group: str) -> tuple[Right, ...]:
    """Returns the right to do this to a consumer group."""
    return (Right(operation, "group", group),)


def on_transactional_id(name: str) -> tuple[Right, ...]:
    """Returns the right to use Kafka transactions under this name."""
    return (Right("Write", "transactional id", name),)


def lacking(code: int, rights: Iterable[Right]) -> Sequence[Right]:
    """Returns the rights whose lack may cause an error with this code; none if the error is not a refusal."""
    return [right for right in rights if right.kind == _KINDS.get(code)]


def hint(rights: Sequence[Right]) -> str:
    """Returns how to grant the missing rights."""
    grants = "` and `".join(f"kafka-acls.sh --add --allow-principal User:… {right.grant}" for right in rights)
    return (
        f"give it to this client's user: `{grants}`; docs/operations/install.md lists the rights of each role"
    )
