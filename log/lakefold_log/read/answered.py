"""Which entries above the stamped offset were answered already: read back, never derived again.

Tables go on at their own pace, so the offset below which all is answered may lie far behind what was answered
last. Only the outcomes topic knows what lies between.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import watermarks
from lakefold_log.read.outcomes import read_outcomes
from lakefold_log.read.trust import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.trust import Trust
    from lakefold_table.position import LogId


def answered_offsets(
    config: KafkaConfig,
    topics: Topics,
    log: LogId,
    low_watermark: int,
    from_offset: int,
    trust: Trust = EVERYBODY,
) -> Sequence[int]:
    """The offsets of `log` from `low_watermark` on that have an outcome, ascending, eight bytes each.

    `from_offset` is the stamp's: what the topic has forgotten since can't be read back, and is answered again
    from the tables. Outcomes count that `trust` lets count. To be called once no other committer reports any
    more. Raises `RetryError` if no broker answers.
    """
    start, end = watermarks(Admin(config), topics.outcomes, log.partition)
    found = array("q")
    if max(start, from_offset) < end:
        first = max(start, from_offset)
        for _, outcome in read_outcomes(config, topics, log.partition, first, trust=trust):
            if outcome.position.log == log and outcome.position.offset >= low_watermark:
                found.append(outcome.position.offset)
    return array("q", sorted(found))
