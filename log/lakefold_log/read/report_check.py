"""What the group's offset tells of the report that it came with: enough to see whether that one is whole.

A broker that dies with a decided Kafka transaction, and comes back before it knows who leads which partition,
takes the partitions for deleted and never marks them (4.3, found by killing it). The offset may be committed
then while the outcomes beside it hang, and the next abort of the same producer takes them away: entries would
count as answered that nobody answered. So the offset's metadata names where the report's outcomes begin, how
many they are, and what the offset was before. Whoever takes over counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import watermarks
from lakefold_log.read.outcomes import read_outcomes

if TYPE_CHECKING:
    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.trust import Trust
    from lakefold_table.position import LogId, Position

_SEPARATOR: Final = "/"


@dataclass(frozen=True, slots=True)
class Place:
    """A group's offset without its proof: what a stamp said of it.

    `outcomes_offset` and `low_watermark` as in `Stamp`.
    """

    offset: int
    low_watermark: int
    outcomes_offset: int


@dataclass(frozen=True, slots=True)
class LastReport:
    """A report as its offset's metadata tells it.

    `name` tells it from every other. Its outcomes, `count` of them, lie in the outcomes partition at or after
    `begin`, and none of another report does until there is a next offset. `before` is where the group stood
    without it, None where that was nowhere.
    """

    name: str
    begin: int
    count: int
    before: Place | None

    def encode(self) -> str:
        """As text for the offset's metadata."""
        before = self.before
        place = () if before is None else (before.offset, before.low_watermark, before.outcomes_offset)
        return _SEPARATOR.join(map(str, (self.name, self.begin, self.count, *place)))

    @classmethod
    def decode(cls, text: str) -> LastReport | None:
        """What `encode` gave; None where an older release wrote the text."""
        name, *numbers = text.split(_SEPARATOR)
        try:
            begin, count, *place = map(int, numbers)
            return cls(name, begin, count, Place(*place) if place else None)
        except (TypeError, ValueError):
            return None


def answered_since(
    config: KafkaConfig, topics: Topics, log: LogId, begin: int, trust: Trust
) -> frozenset[Position]:
    """The entries of `log` whose outcomes stand at or after `begin`, can be seen by all, and count.

    To be called once no other committer reports any more and nothing hangs. Raises `RetryError` if no broker
    answers.
    """
    start, end = watermarks(Admin(config), topics.outcomes, log.partition)
    if max(start, begin) >= end:
        return frozenset()
    found = read_outcomes(config, topics, log.partition, max(start, begin), trust=trust, since=begin)
    return frozenset(outcome.position for _, outcome in found if outcome.position.log == log)


def is_whole(config: KafkaConfig, topics: Topics, log: LogId, report: LastReport, trust: Trust) -> bool:
    """Whether all outcomes of the last report can be seen, or the topic has forgotten since what it held.

    To be called as `answered_since`, and raises as it does.
    """
    if not report.count or watermarks(Admin(config), topics.outcomes, log.partition).start > report.begin:
        return True
    return len(answered_since(config, topics, log, report.begin, trust)) >= report.count
