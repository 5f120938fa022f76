"""Sends proposals of a table to the log and waits for their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_maintenance.format import TableSurvey
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome

TIMEOUT_S = 60.0
"""How long the outcome of a proposal is awaited, if nothing else is set."""


class TableLog:
    """The log of a table.

    Raises `MissingTopicError`, `RetryError` if no broker answers, and `InvalidError` if the table is bound to
    another log.
    """

    def __init__(
        self,
        survey: TableSurvey,
        kafka: KafkaConfig,
        topics: Topics,
        *,
        timeout_s: float = TIMEOUT_S,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._options = storage_options
        self._partition = survey.partition
        self._proposer = Proposer(kafka, topics)
        try:
            self._proposer.check_binding(survey.bound, survey.table)
            self._waiter = OutcomeWaiter(kafka, topics, survey.table, partition=survey.partition)
        except BaseException:
            self._proposer.close()
            raise

    def ask(self, envelope: Envelope) -> Outcome:
        """Sends the envelope and returns its outcome.

        Raises `RetryError` if no committer has answered in time: then it may still be folded.
        """
        self._waiter.skip_to_end()
        position = self._proposer.send_wait(envelope, self._partition, storage_options=self._options)
        return self._waiter.wait(position, envelope, self._timeout_s)

    def close(self) -> None:
        """Closes the connections."""
        self._waiter.close()
        self._proposer.close()
