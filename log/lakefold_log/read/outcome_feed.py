"""The outcomes of all tables as committers report them, for a display of what happens.

It is not evidence: who wrote an outcome is not checked, and messages that can't be read are left out. Whoever
needs the outcome of a proposal waits for it (`outcomes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition
from google.protobuf.message import DecodeError

from lakefold_log.client.admin import NO_GROUP, Admin, KafkaConfig, Option, client_set_up
from lakefold_log.client.client_log import LOGGER
from lakefold_log.client.failures import kafka_errors
from lakefold_log.client.meanings import Request
from lakefold_log.client.own_client import own_client
from lakefold_log.client.requests import offset_ranges
from lakefold_log.client.topics import describe
from lakefold_protos.lakefold import log_pb2
from lakefold_table.closing import Closing
from lakefold_table.errors import DamagedError
from lakefold_table.marks.outcome_messages import outcome_value

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

    from lakefold_table.entry import Outcome

_BATCH: Final = 1000
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReportedOutcome:
    """An outcome, and when it was reported, in microseconds since 1970."""

    outcome: Outcome
    time_us: int


class OutcomeFeed(Closing):
    """Reads all partitions of the outcomes topic, from `back` messages before each end; for one thread.

    A partition that is added to the topic later is not read. Raises `MissingTopicError` if the topic does not
    exist, `RetryError` if no broker answers.
    """

    def __init__(self, config: KafkaConfig, topic: str, *, back: int) -> None:
        admin = Admin(config, timeout_s=_TIMEOUT_S)
        keys = [(topic, number) for number in range(describe(admin, topic).partitions)]
        with kafka_errors(Request.LIST_OFFSETS, "ask for offsets", config.bootstrap_servers):
            ranges = offset_ranges(admin, keys, read_committed=True)
        fixed: dict[str, Option] = {
            "group.id": NO_GROUP,
            "enable.auto.commit": False,
            # Outcomes that were removed before they were read are left out of the display.
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        with client_set_up(config.bootstrap_servers):
            made = Consumer(config.client(fixed=fixed), logger=LOGGER)
        self._consumer = own_client(made, "this reader of outcomes", config.bootstrap_servers)
        starts = [TopicPartition(*key, max(low, end - back)) for key, (low, end) in ranges.items()]
        self._consumer.assign(starts)

    def poll(self, timeout_s: float) -> list[ReportedOutcome]:
        """Returns the next outcomes: an empty list if none comes within `timeout_s`, or no broker answers."""
        with kafka_errors(Request.READ, "read outcomes"):
            first = self._consumer.poll(timeout_s)
            if first is None:
                return []
            more = self._consumer.consume(_BATCH - 1, 0)
        reported = (_reported(raw) for raw in [first, *more])
        return [each for each in reported if each is not None]

    def close(self) -> None:
        """Disconnects from the brokers."""
        self._consumer.close()


def _reported(raw: RawMessage) -> ReportedOutcome | None:
    """Returns the outcome in a message. Returns None for an event of the client or another message."""
    if raw.error() is not None:
        return None
    try:
        outcome = outcome_value(log_pb2.Outcome.FromString(raw.value() or b""))
    except (DecodeError, DamagedError):
        return None
    return ReportedOutcome(outcome, raw.timestamp()[1] * 1000)
