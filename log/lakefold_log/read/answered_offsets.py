"""Finds the entries above the committed offset that were already answered, by reading their outcomes.

Tables proceed at their own pace, so the offset below which all is answered may be far below the last answered
entry. Only the outcomes topic records what was answered in between.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from lakefold_log.client.topics import watermarks
from lakefold_log.read.accepted_signers import EVERYBODY, AcceptedSigners
from lakefold_log.read.outcomes import read_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics
    from lakefold_table.position import LogId


def answered_offsets(
    admin: Admin,
    topics: Topics,
    log: LogId,
    low_watermark: int,
    from_offset: int,
    signers: AcceptedSigners = EVERYBODY,
) -> Sequence[int]:
    """Returns the offsets of `log` from `low_watermark` on that have an outcome, ascending, 8 bytes each.

    `from_offset` is that of the offset's metadata: outcomes that the topic has removed since can't be
    read, and are answered again from the tables. Only outcomes of these `signers` count. Call this when no
    other committer reports any more. Raises `RetryError` if no broker answers.
    """
    start, end = watermarks(admin, topics.outcomes, log.partition)
    offsets = array("q")
    if max(start, from_offset) < end:
        first = max(start, from_offset)
        for _, outcome in read_outcomes(admin, topics, log.partition, first, signers=signers):
            if outcome.position.log == log and outcome.position.offset >= low_watermark:
                offsets.append(outcome.position.offset)
    return array("q", sorted(offsets))
