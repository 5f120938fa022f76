"""Hears which versions of a table committers report, as they do: for who follows the table.

What is heard is a reason to look at once and never a proof: versions of foreign clients have no outcome, and
a table may be bound to another partition by now. So whoever listens also asks the table from time to time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read.consumer import PartitionReader
from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError
from lakefold_table.marks.outcome_messages import outcome_value

if TYPE_CHECKING:
    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.consumer import Message

_BATCH: Final = 1000


class VersionNews:
    """The versions of one line of a table that are reported from now on; for one thread.

    `table`: the URI of its main line; `branch` empty for that line itself. `partition` is that of the table's
    marks; without it the one that the table is hashed to. Raises `MissingTopicError` where there are no
    topics yet, `RetryError` where no broker answers.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topics: Topics,
        table: str,
        *,
        branch: str = "",
        partition: int | None = None,
    ) -> None:
        admin = Admin(config)
        partition = home_of(table, partition, describe(admin, topics.transactions).partitions)
        log = describe(admin, topics.outcomes).log_id(partition)
        end = watermarks(admin, topics.outcomes, partition).end
        self._key, self._branch = table.encode(), branch
        self._reader = PartitionReader(config, topics.outcomes, log, end)

    @property
    def connected(self) -> bool:
        """Whether a broker answers, as far as is known; it keeps trying."""
        return self._reader.connected

    @property
    def last_error(self) -> str:
        """What the client said last of why it isn't connected."""
        return self._reader.last_error

    def wait(self, seconds: float) -> int:
        """The newest version that was reported within so many seconds, 0 where none was.

        It comes back as soon as anything is there. Raises `StopError` where the outcomes topic is another one
        now, or can't be read on.
        """
        return max(map(self._version, self._reader.poll(_BATCH, seconds)), default=0)

    def close(self) -> None:
        """Stop listening."""
        self._reader.close()

    def _version(self, message: Message) -> int:
        """The version that a message reports of this line, else 0."""
        if message.key != self._key:
            return 0
        try:
            outcome = outcome_value(log_pb2.Outcome.FromString(message.value))
        except (DecodeError, DamagedError):
            # Something else writes there: that wakes nobody.
            return 0
        result = outcome.result if outcome.branch == self._branch else None
        return result.version if isinstance(result, Committed) else 0
