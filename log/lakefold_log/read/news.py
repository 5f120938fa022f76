"""Reports new versions of a table as soon as committers report them, for readers that follow the table.

Such news is a reason to read the table at once, but no evidence: versions of foreign clients have no outcome,
and a table may be bound to another partition meanwhile. So readers also check the table from time to time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read.consumer import Message, PartitionReader
from lakefold_protos.lakefold import log_pb2
from lakefold_table.branch_names import names_of, root_of
from lakefold_table.entry import Committed
from lakefold_table.errors import DamagedError
from lakefold_table.marks.outcome_messages import outcome_value

if TYPE_CHECKING:
    from lakefold_log.client.topic_names import Topics

_BATCH: Final = 1000


class VersionNews:
    """The versions of a branch of a table that are reported from now on; for one thread.

    `table` is the URI of its main branch; `branch` is empty for that branch itself. `partition` is that of
    the table's marks; without it that to which the table is hashed. Raises `MissingTopicError` if the
    topics do not exist yet, `RetryError` if no broker answers.
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
        self._root = root_of(table, branch)
        self._keys = frozenset(name.encode() for name in names_of(table, branch))
        # What is reported counts once the table is read, so the report need not be committed.
        self._reader = PartitionReader(admin, topics.outcomes, log, end, isolation="read_uncommitted")

    @property
    def connected(self) -> bool:
        """Whether a broker answers, as far as is known; the client keeps trying."""
        return self._reader.connected

    @property
    def last_error(self) -> str:
        """The client's last error while it isn't connected."""
        return self._reader.last_error

    def wait(self, seconds: float) -> int:
        """Returns the newest version that was reported within `seconds`, or 0 if none was.

        It returns as soon as any message comes. Raises `StopError` if the outcomes topic was created
        again, or can't be read any more.
        """
        return max(map(self._version, self._reader.poll(_BATCH, seconds)), default=0)

    def close(self) -> None:
        """Stops listening."""
        self._reader.close()

    def _version(self, message: Message) -> int:
        """Returns the version of this branch that a message reports, else 0."""
        if message.key not in self._keys:
            return 0
        try:
            outcome = outcome_value(log_pb2.Outcome.FromString(message.value))
        except (DecodeError, DamagedError):
            # A message of another program in this topic: it wakes no reader.
            return 0
        result = outcome.result if root_of(outcome.table, outcome.branch) == self._root else None
        return result.version if isinstance(result, Committed) else 0
