"""Sends one proposal to the log for a verb, and waits for its outcome if that is wanted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakefold.binding.bound_partition import bound_partition
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from lakefold_log.write.tracing import headers_from
from lakefold_table.versions.table_address import TableAddress

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_log.read.consumer import Headers
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position


@dataclass(frozen=True, slots=True)
class LoggedProposal:
    """A proposal that the log has: its position, and its outcome, or None if none was awaited."""

    position: Position
    outcome: Outcome | None


def send(
    settings: Settings, envelope: Envelope, wait_s: float | None, headers: Headers = ()
) -> LoggedProposal:
    """Sends a proposal to the partition of its table, and waits up to `wait_s` seconds for its outcome.

    With None it returns as soon as the log has the proposal. Raises `RetryError` if the brokers don't answer,
    or no outcome is reported in time: then the proposal may still be folded.
    """
    partition = bound_partition(TableAddress(envelope.table, settings.storage_options))
    config, topics = settings.kafka_config(), settings.topics()
    with Proposer(config, topics) as proposer:
        sent = partial(
            proposer.send_wait,
            envelope,
            partition,
            headers=(*headers_from(os.environ), *headers),
            storage_options=settings.storage_options,
        )
        if wait_s is None:
            return LoggedProposal(sent(), None)
        with OutcomeWaiter(config, topics, envelope.table, partition=partition) as waiter:
            position = sent()
            return LoggedProposal(position, waiter.wait(position, envelope, wait_s))


def send_and_wait(
    settings: Settings, envelope: Envelope, wait_s: float, message: str = "", headers: Headers = ()
) -> Outcome:
    """Sends a proposal and returns its outcome. `message`: why it is sent. Raises as `send` does."""
    if message:
        envelope.author.message = message
    outcome = send(settings, envelope, wait_s, headers).outcome
    assert outcome is not None  # noqa: S101 - it was awaited
    return outcome
