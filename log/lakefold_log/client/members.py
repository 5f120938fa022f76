"""Shares a topic's partitions among processes by a consumer group, which reads and commits nothing.

It is a group of its own beside the group with the committed offsets. A group with live members accepts
offsets from its members only, while the offset is written by a partition's own transactional producer and
must outlast the membership of that process. So the members' partitions are paused as soon as they are
assigned, and the partition's committer reads by itself.

The protocol is Kafka's classic one. In it a member sets how soon it counts as dead, which the newer protocol
leaves to the brokers (45 s at least). A member without partitions is also notified, while the newer protocol
does not distinguish it from a member that waits to join (tried: librdkafka 2.16, Kafka 4.3). Partitions move
one by one (cooperative); those that stay are folded meanwhile.

A member with `group.instance.id` among the kafka options continues the membership of an earlier process with
that name when it starts, without a rebalance. So a container that was killed and is started again in its pod
doesn't wait until the session of the killed process has timed out (decision 0084).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from lakefold_log.client.admin import INSTANCE, Admin, KafkaConfig, Option, client_set_up
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.failures import error_of
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.own_client import own_client
from lakefold_log.client.rights import on_group, on_topics
from lakefold_log.client.topic_identity import TopicGuard
from lakefold_table.closing import Closing
from lakefold_table.errors import InvalidError, LakefoldError, StopError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError

    from lakefold_table.position import LogId

SUFFIX: Final = ".members"
"""The suffix of the members' group; the name begins with that of the group with the offsets."""

_FIXED: Final[dict[str, Option]] = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "latest",
}
_TUNED: Final[dict[str, Option]] = {
    # A killed member counts as dead after this time; the group does not wait for one that leaves. It is the
    # least that brokers accept by their defaults. The client library sends heartbeats from a thread of its
    # own, so a process that collects garbage isn't taken for dead.
    "session.timeout.ms": 6000,
    # The delay until the others learn that a member joined or left. A partition that moves twice, because a
    # replacement joins while the survivors take over, waits for it several times. A heartbeat is a request of
    # some bytes, which the client sends without Python.
    "heartbeat.interval.ms": 100,
    # Giving a partition up may take half of this.
    "max.poll.interval.ms": 60_000,
    # The delay until new partitions of the topic are noticed.
    "topic.metadata.refresh.interval.ms": 30_000,
}
_MILLISECONDS: Final = 1000
_LEAVE_S: Final = 5.0
_LEAVE_STEP_S: Final = 0.01


def session_seconds(config: KafkaConfig) -> float:
    """Returns for how many seconds a member may be silent before the group excludes it."""
    return float(config.client(fixed=_FIXED, tuned=_TUNED)["session.timeout.ms"]) / _MILLISECONDS


class Holder(Protocol):
    """Works on the partitions that are assigned to this process. Called by `Membership.step` and `close`."""

    def assigned(self, partitions: Sequence[int], *, is_settled: bool = True) -> None:
        """Is called with the partitions that this process has from now on.

        If `is_settled`, all that were revoked before are assigned again, to this process or to others.
        """

    def revoked(self, partitions: Sequence[int], patience_s: float) -> None:
        """Is called before other processes get these partitions, which must be released now.

        That may take `patience_s` seconds.
        """

    def lost(self, partitions: Sequence[int]) -> None:
        """Is called if the group took this process for dead: another may have these already.

        Returns at once.
        """


class Membership(Closing):
    """A process's membership among those that share `topic`; for one thread, which calls `step` repeatedly.

    `joined` is true once the group has assigned partitions to it, even if it got none. `client_id`: by which
    others know what it does, unless the kafka options have one. Raises `InvalidError` if the kafka options
    are invalid.
    """

    def __init__(
        self, config: KafkaConfig, group: str, topic: str, log: LogId, holder: Holder, *, client_id: str
    ) -> None:
        self.group = group + SUFFIX
        self.joined = False
        self._is_revoking = False
        self._topic = topic
        self._holder = holder
        self._guard = TopicGuard(Admin(config), topic, log)
        self._failure: LakefoldError | None = None
        tuned = {**_TUNED, "client.id": client_id}
        options = config.client(fixed={**_FIXED, "group.id": self.group}, tuned=tuned, is_member=True)
        self._has_name = INSTANCE in options
        with client_set_up(config.bootstrap_servers):
            self._patience_s = float(options["max.poll.interval.ms"]) / _MILLISECONDS / 2
            made = Consumer({**options, "error_cb": self._note}, logger=LOGGER)
            self._consumer = own_client(made, "this member of a group", config.bootstrap_servers)
            self._consumer.subscribe(
                [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )

    @property
    def connected(self) -> bool:
        """Whether a broker answers, as far as is known."""
        return self._guard.answering

    def step(self, timeout_s: float) -> None:
        """Handles events of the group for at most `timeout_s` seconds, and calls the holder for each.

        Raises `GapError` if the topic was created again, `InvalidError` if the brokers refuse access, and
        `StopError` if another process has joined under this one's name.
        """
        self._guard.step()
        message = self._consumer.poll(timeout_s)
        if message is not None and (error := message.error()) is not None:
            self._note(error)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Leaves the group at once: the holder releases all it has before the other members are notified."""
        if self._has_name and self._failure is None:
            self._leave()
        self._consumer.close()

    def _leave(self) -> None:
        """Leaves the group before the client is closed.

        When a client with a name is closed, it doesn't leave, and its partitions wait for its session to end.
        It leaves when it unsubscribes; then it has no member id any more.
        """
        self._consumer.unsubscribe()
        deadline = time.monotonic() + _LEAVE_S
        while self._consumer.memberid() and time.monotonic() < deadline:
            self._consumer.poll(_LEAVE_STEP_S)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Accepts the partitions without reading them. The list is empty if others have all of them."""
        ends = [TopicPartition(self._topic, each.partition, OFFSET_END) for each in partitions]
        consumer.incremental_assign(ends)
        if ends:
            consumer.pause(ends)
        self.joined = True
        # After a revocation the client assigns what is new of the same rebalance, also if that is nothing,
        # and joins once more. What was revoked is assigned in the rebalance after that.
        is_settled, self._is_revoking = not self._is_revoking, False
        self._holder.assigned(_numbers(partitions), is_settled=is_settled)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Hands partitions back. The client releases them, and joins the group again, after this returns."""
        self._is_revoking = True
        self._holder.revoked(_numbers(partitions), self._patience_s)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = self._is_revoking = False
        self._holder.lost(_numbers(partitions))

    def _note(self, error: KafkaError) -> None:
        """Handles an error event of the client.

        Most errors pass by themselves, and the guard reports a topic that was deleted.
        """
        self._guard.check_soon()
        rights = (*on_group("Read", self.group), *on_topics("Describe", self._topic))
        fault = error_of(error, Request.SHARE, "share the partitions", self.group, rights=rights)
        if isinstance(fault, InvalidError):
            self._failure = fault
        elif meaning_of(error, Request.SHARE) is Meaning.ENDED:
            # The client is of no use any more. It does not call the holder.
            hint = (
                f"give each process a name of its own in the kafka option {INSTANCE}"
                if self._has_name
                else ""
            )
            self._failure = StopError(error.str(), where=self.group, hint=hint)


def _numbers(partitions: Sequence[TopicPartition]) -> list[int]:
    return sorted(each.partition for each in partitions)
