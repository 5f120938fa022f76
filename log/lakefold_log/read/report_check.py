"""What the group's offset tells of the report that it came with: enough to see whether that one is whole.

A broker that dies with a decided Kafka transaction, and comes back before it knows who leads which partition,
takes the partitions for deleted and never marks them (4.3, found by killing it). The offset may be committed
then while the outcomes beside it hang, and the next abort of the same producer takes them away: entries would
count as answered that nobody answered. So the offset's metadata names where the report's outcomes begin, how
many they are, and what the offset was before. Whoever takes over counts them.

The topic may also lose more than that: brokers don't sync their files, and an unclean election takes a
replica that is behind. Then outcomes of many reports are gone. So the metadata also names some earlier
reports, the fewer the longer ago they were: where the topic ended before each of them, and up to where all
entries had been answered by then. From the last one that is still whole the answers are given again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import watermarks
from lakefold_log.read.outcomes import read_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.trust import Trust
    from lakefold_table.position import LogId, Position

_SEPARATOR: Final = "/"
_NUMBERS: Final = 3
"""So many numbers tell a place, or an earlier report."""
_SPACING: Final = 2
"""Two places are so many times as far from each other, at most, as the newer one is from the end."""


@dataclass(frozen=True, slots=True)
class ReportPlace:
    """A group's offset without its proof: what a stamp said of it.

    `outcomes_offset` and `low_watermark` as in `OffsetMetadata`.
    """

    offset: int
    low_watermark: int
    outcomes_offset: int


Earlier = tuple[int, ReportPlace]
"""Where the outcomes partition ended before a report, and where the group stood then."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """A report as its offset's metadata tells it.

    `name` tells it from every other. Its outcomes, `count` of them, lie in the outcomes partition at or after
    `begin`, and none of another report does until there is a next offset. `before` is where the group stood
    without it, None where that was nowhere. `earlier`: the same of some reports before it, the newest first.
    """

    name: str
    begin: int
    count: int
    before: ReportPlace | None
    earlier: tuple[Earlier, ...] = ()

    @property
    def end(self) -> int:
        """The outcomes partition ended here at least when the report was there."""
        return self.begin + self.count

    @property
    def history(self) -> tuple[Earlier, ...]:
        """The places before this report and before the earlier ones, the newest first."""
        return self.earlier if self.before is None else ((self.begin, self.before), *self.earlier)

    def encode(self) -> str:
        """As text for the offset's metadata."""
        before = self.before
        place = () if before is None else (before.offset, before.low_watermark, before.outcomes_offset)
        earlier = [(begin, one.offset, one.outcomes_offset) for begin, one in self.earlier if place]
        numbers = (self.begin, self.count, *place, *chain.from_iterable(earlier))
        return _SEPARATOR.join(map(str, (self.name, *numbers)))

    @classmethod
    def decode(cls, text: str) -> LastReport | None:
        """What `encode` gave. Returns None if an older release wrote the text."""
        name, *numbers = text.split(_SEPARATOR)
        try:
            begin, count, *rest = map(int, numbers)
            place, *parts = [rest[at : at + _NUMBERS] for at in range(0, len(rest), _NUMBERS)] or [[]]
            earlier = tuple((ended, ReportPlace(low, low, since)) for ended, low, since in parts)
            return cls(name, begin, count, ReportPlace(*place) if place else None, earlier)
        except (TypeError, ValueError):
            return None


def thinned(history: Sequence[Earlier], end: int) -> tuple[Earlier, ...]:
    """Some places of a history, the newest first: the farther from `end`, the farther from each other.

    Whoever goes back to one of them goes back about three times as far as needed at most, and as many as fit
    well into an offset's metadata are left, however long the history is. The oldest is always among them.
    """
    kept: list[Earlier] = []
    for one in history:
        while len(kept) > 1 and kept[-2][0] - one[0] <= _SPACING * (end - kept[-2][0]):
            kept.pop()
        kept.append(one)
    return tuple(kept)


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


def last_whole(
    config: KafkaConfig, topics: Topics, log: LogId, report: LastReport, trust: Trust, end: int
) -> Earlier | None:
    """The newest place of the report's history whose outcomes are all there, if the topic ends at `end`.

    An outcome that counts and stands behind a place proves that. If none is proven, as in a topic that was
    made anew, returns the place before the last report: to answer a whole log again would hold up what is
    new. Returns None if there is no history. To be called as `answered_since`, and raises as it does.
    """
    for one in report.history:
        if one[0] < end and answered_since(config, topics, log, one[0], trust):
            return one
    return report.history[0] if report.history else None
