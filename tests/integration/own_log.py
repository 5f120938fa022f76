"""A commit log of a test's own on a real broker: its topics, and what writes to and reads from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_log.admin import Admin, KafkaConfig
from lakefold_log.consumer import PartitionReader
from lakefold_log.outcomes import OutcomeWaiter
from lakefold_log.producer import Proposer, transaction_uuid
from lakefold_log.reporter import Reporter
from lakefold_log.topics import Topics, ensure_topics
from lakefold_protos.lakefold import log_pb2

if TYPE_CHECKING:
    from lakefold_log.topics import TopicDescription
    from lakefold_table.entry import LogId
    from tests.integration.conftest import TopicNames

TABLE = "s3://lake/flights"
PATIENCE_S = 60.0


def envelope(batch: int, table: str = TABLE) -> log_pb2.Envelope:
    """A proposal that appends one fragment of no real file."""
    made = log_pb2.Envelope(table=table, app_id="app", batch_id=batch)
    made.lance.uuid = transaction_uuid("app", batch, table)
    made.lance.append.fragments.add(physical_rows=batch + 1)
    return made


@dataclass(frozen=True, slots=True)
class OwnLog:
    """The topics of one test, made as a committer makes them."""

    config: KafkaConfig
    admin: Admin
    topics: Topics
    group: str
    described: TopicDescription

    @classmethod
    def make(cls, bootstrap: str, names: TopicNames, *, partitions: int = 1) -> OwnLog:
        config = KafkaConfig(bootstrap)
        admin = Admin(config)
        topics = Topics(names.transactions, names.outcomes, names.dead_letters)
        return cls(config, admin, topics, names.group, ensure_topics(admin, topics, partitions=partitions))

    @property
    def log(self) -> LogId:
        return self.described.log_id(0)

    def proposer(self, timeout_s: float = PATIENCE_S) -> Proposer:
        return Proposer(self.config, self.topics, timeout_s=timeout_s)

    def reader(self, start: int = 0, *, topic: str = "", **options: float | str) -> PartitionReader:
        return PartitionReader(self.config, topic or self.topics.transactions, self.log, start)

    def reporter(self) -> Reporter:
        return Reporter(self.config, self.group, self.log, self.topics)

    def waiter(self) -> OutcomeWaiter:
        return OutcomeWaiter(self.config, self.topics, TABLE)
