"""Who shares a topic's partitions: a consumer group that hands them out, and reads and commits nothing.

It is a group of its own beside the one that holds the stamped offsets. A group with live members takes
offsets from its members only, while the stamp is put by a partition's own transactional producer and must
outlast the membership of whoever put it. So the members' partitions are paused as soon as they are given, and
the partition's committer reads by itself.

The protocol is Kafka's classic one. In it a member says itself how soon it is taken for dead, which the newer
one leaves to the brokers (45 s at least); and one that is given nothing is told so, where the newer one makes
no difference between it and one that waits to join (tried: librdkafka 2.16, Kafka 4.3). Partitions move one
by one (cooperative): those that stay are folded on meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from lakefold_log.client.admin import Admin, client_set_up, error_of
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.rights import on_group, on_topics
from lakefold_log.client.topic_identity import TopicGuard
from lakefold_log.client.topics import NOT_YET
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from confluent_kafka import KafkaError

    from lakefold_log.client.admin import KafkaConfig, Option
    from lakefold_table.errors import LakefoldError
    from lakefold_table.position import LogId

SUFFIX: Final = ".members"
"""What the name of the members' group ends in; it begins with the name of the stamped group."""

_FIXED: Final[dict[str, Option]] = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "latest",
}
_TUNED: Final[dict[str, Option]] = {
    # A member that is killed is taken for dead after this; one that leaves is not waited for at all.
    "session.timeout.ms": 10_000,
    # How late the others hear that one came or left.
    "heartbeat.interval.ms": 1000,
    # Giving a partition up may take half of this.
    "max.poll.interval.ms": 60_000,
    # How late a topic is seen to have more partitions than before.
    "topic.metadata.refresh.interval.ms": 30_000,
}
_MILLISECONDS: Final = 1000


def session_seconds(config: KafkaConfig) -> float:
    """How long a member may be silent before the group does without it."""
    return float(config.client(fixed=_FIXED, tuned=_TUNED)["session.timeout.ms"]) / _MILLISECONDS


class Holder(Protocol):
    """Works on the partitions that this process is given. Called within `Membership.step` and `close`."""

    def given(self, partitions: Sequence[int]) -> None:
        """These are this process's from now on. Whoever had them before has let go, or is taken for dead."""
        ...

    def taken(self, partitions: Sequence[int], patience_s: float) -> None:
        """Another process may get these once this call returns, which may take `patience_s` seconds."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """The group took this process for dead: another may have these already. Returns at once."""
        ...


class Membership:
    """A process's place among those that share `topic`; for one thread, which calls `step` again and again.

    `joined` says whether the group has told it its partitions, be it none. Raises `InvalidError` where the
    kafka options can't be.
    """

    def __init__(self, config: KafkaConfig, group: str, topic: str, log: LogId, holder: Holder) -> None:
        self.group = group + SUFFIX
        self.joined = False
        self._topic = topic
        self._holder = holder
        self._guard = TopicGuard(Admin(config), topic, log)
        self._failure: LakefoldError | None = None
        options = config.client(fixed={**_FIXED, "group.id": self.group}, tuned=_TUNED)
        with client_set_up(config.bootstrap_servers):
            self._patience_s = float(options["max.poll.interval.ms"]) / _MILLISECONDS / 2
            self._consumer = Consumer({**options, "error_cb": self._note}, logger=LOGGER)
            self._consumer.subscribe(
                [topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._lost
            )

    @property
    def connected(self) -> bool:
        """Whether a broker answers, as far as is known."""
        return self._guard.answering

    def step(self, timeout_s: float) -> None:
        """Hear from the group, for `timeout_s` seconds at most, and pass it on to the holder.

        Raises `GapError` where the topic is another one now, `InvalidError` where the brokers refuse it.
        """
        self._guard.step()
        message = self._consumer.poll(timeout_s)
        if message is not None and (error := message.error()) is not None:
            self._note(error)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Leave the group at once: the holder is told to let go of all it has, then the others are told."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _given(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Takes the places without reading them. Called with none too, where others have all of them."""
        ends = [TopicPartition(self._topic, place.partition, OFFSET_END) for place in places]
        consumer.incremental_assign(ends)
        if ends:
            consumer.pause(ends)
        self.joined = True
        self._holder.given(_numbers(places))

    def _taken(self, _: Consumer, places: list[TopicPartition]) -> None:
        """The client lets go of them, and tells the group so, when this returns."""
        self._holder.taken(_numbers(places), self._patience_s)

    def _lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.joined = False
        self._holder.lost(_numbers(places))

    def _note(self, error: KafkaError) -> None:
        """An event of the client: most pass by themselves, and the guard tells of a topic that is gone."""
        self._guard.hurry()
        rights = (*on_group("Read", self.group), *on_topics("Describe", self._topic))
        known = error_of(error, "share the partitions", self.group, rights=rights)
        if isinstance(known, InvalidError) and error.code() not in NOT_YET:
            self._failure = known


def _numbers(places: Sequence[TopicPartition]) -> list[int]:
    return sorted(place.partition for place in places)
