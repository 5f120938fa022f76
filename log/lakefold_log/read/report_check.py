"""The record of the last report in the group's offset, which shows whether the report is complete.

A broker that dies with a decided Kafka transaction, and restarts before it knows who leads which partition,
takes the partitions for deleted and never marks them (4.3, found by killing it). The offset may be committed
then while the outcomes beside it hang, and the next abort of the same producer removes them: entries would
count as answered that were not. So the offset's metadata contains the offset where the report's outcomes
begin, their number, and the offset before the report. The next committer counts them.

The topic may also lose more than that: brokers don't sync their files, and an unclean election chooses a
replica that is behind. Then outcomes of many reports are lost. So the metadata also names some earlier
reports, the fewer the older they are: where the topic ended before each of them, and the offset below which
all entries had been answered by then. From the last report that is still complete the answers are given
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.outcomes import read_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_log.client.admin import Admin
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.accepted_signers import AcceptedSigners
    from lakefold_table.position import LogId, Position

_SEPARATOR: Final = "/"
_NUMBERS: Final = 3
"""The count of numbers that encode a checkpoint, or an earlier report."""
_READ_S: Final = 60.0
"""How long the brokers may send nothing while the topic is read."""
_SPACING: Final = 2
"""Two checkpoints are at most this many times as far from each other as the newer one is from the end."""
_COMMITTER: Final = "@"
_MOST_COMMITTER: Final = 80
"""A committer's name is cut after so many characters, since the metadata has room for 4,096 bytes."""


@dataclass(frozen=True, slots=True)
class ReportCheckpoint:
    """A group's offset with the numbers of its metadata.

    `outcomes_offset` and `low_watermark` as in `OffsetMetadata`.
    """

    offset: int
    low_watermark: int
    outcomes_offset: int


Earlier = tuple[int, ReportCheckpoint]
"""Where the outcomes partition ended before a report, and the group's position then."""


@dataclass(frozen=True, slots=True)
class LastReport:
    """A report as it is recorded in its offset's metadata.

    `name` is unique (`report_name`). Its outcomes, `count` of them, are in the outcomes partition at or after
    `begin`, and none of another report is until there is a next offset. `before` is the group's position
    before it, None if the group had none. `earlier`: the same of some reports before it, the newest first.
    """

    name: str
    begin: int
    count: int
    before: ReportCheckpoint | None
    earlier: tuple[Earlier, ...] = ()

    @property
    def committer(self) -> str:
        """The name of the committer that reported; empty if it has none."""
        return self.name.partition(_COMMITTER)[2]

    @property
    def end(self) -> int:
        """The outcomes partition ended at least here when the report was written."""
        return self.begin + self.count

    @property
    def history(self) -> tuple[Earlier, ...]:
        """The checkpoints before this report and before earlier reports, the newest first."""
        return self.earlier if self.before is None else ((self.begin, self.before), *self.earlier)

    def encode(self) -> str:
        """Returns the report as text for the offset's metadata."""
        before = self.before
        numbers_before = (
            () if before is None else (before.offset, before.low_watermark, before.outcomes_offset)
        )
        earlier = [
            (begin, each.offset, each.outcomes_offset) for begin, each in self.earlier if numbers_before
        ]
        numbers = (self.begin, self.count, *numbers_before, *chain.from_iterable(earlier))
        return _SEPARATOR.join(map(str, (self.name, *numbers)))

    @classmethod
    def decode(cls, text: str) -> LastReport | None:
        """Returns what `encode` encoded, or None if an older release wrote the text."""
        name, *numbers = text.split(_SEPARATOR)
        try:
            begin, count, *rest = map(int, numbers)
            numbers_before, *parts = [rest[at : at + _NUMBERS] for at in range(0, len(rest), _NUMBERS)] or [
                []
            ]
            earlier = tuple((ended, ReportCheckpoint(low, low, since)) for ended, low, since in parts)
            return cls(
                name, begin, count, ReportCheckpoint(*numbers_before) if numbers_before else None, earlier
            )
        except (TypeError, ValueError):
            return None


def report_name(reporter: str, number: int, committer: str) -> str:
    """Returns the name of the report with this number: unique, and with the name of the committer, if any."""
    unique = f"{reporter}-{number}"
    shown = committer.replace(_SEPARATOR, "-")[:_MOST_COMMITTER]
    return f"{unique}{_COMMITTER}{shown}" if shown else unique


def thinned(history: Sequence[Earlier], end: int) -> tuple[Earlier, ...]:
    """Returns some checkpoints of a history, the newest first: the farther from `end`, the farther apart.

    A committer that goes back to one of them goes back at most about three times as far as needed. However
    long the history is, those that are left fit into an offset's metadata. The oldest is always among them.
    """
    thin: list[Earlier] = []
    for earlier in history:
        while len(thin) > 1 and thin[-2][0] - earlier[0] <= _SPACING * (end - thin[-2][0]):
            thin.pop()
        thin.append(earlier)
    return tuple(thin)


def answered_since(
    admin: Admin, topics: Topics, log: LogId, begin: int, signers: AcceptedSigners
) -> frozenset[Position]:
    """Returns the entries of `log` with an outcome at or after `begin` that is visible and counts.

    Call this when no other committer reports any more and no transaction hangs. Raises `RetryError` if no
    broker answers.
    """
    start, end = watermarks(admin, topics.outcomes, log.partition)
    if max(start, begin) >= end:
        return frozenset()
    outcomes = read_outcomes(admin, topics, log.partition, max(start, begin), signers=signers, since=begin)
    return frozenset(outcome.position for _, outcome in outcomes if outcome.position.log == log)


def is_whole(admin: Admin, topics: Topics, log: LogId, report: LastReport, signers: AcceptedSigners) -> bool:
    """Returns whether all outcomes of the last report are visible, or retention has removed some.

    Call this as `answered_since`; raises as it does.
    """
    if not report.count or watermarks(admin, topics.outcomes, log.partition).start > report.begin:
        return True
    return len(answered_since(admin, topics, log, report.begin, signers)) >= report.count


def last_whole(
    admin: Admin, topics: Topics, log: LogId, report: LastReport, signers: AcceptedSigners, end: int
) -> Earlier | None:
    """Returns the report's newest checkpoint after which no outcome is lost, if the topic ends at `end`.

    A signed outcome after a checkpoint is evidence for that, even if the marker that commits it is lost. If
    there is none, as in a topic that was created again, returns the checkpoint before the last report: to
    answer a whole log again would delay new entries. Returns None if there is no history. Call this as
    `answered_since`; raises as it does.
    """
    for earlier in report.history:
        if earlier[0] < end and has_signed(admin, topics, log, earlier[0], signers):
            return earlier
    return report.history[0] if report.history else None


def has_signed(admin: Admin, topics: Topics, log: LogId, begin: int, signers: AcceptedSigners) -> bool:
    """Returns whether the topic has an outcome of a report that began at or after `begin`, visible or not.

    The outcome may be of a transaction whose end is lost. Call this as `answered_since`; raises as it does.
    """
    outcomes = describe(admin, topics.outcomes).log_id(log.partition)
    with PartitionReader(admin, topics.outcomes, outcomes, begin, isolation="read_uncommitted") as reader:
        return any(
            # A message without a value only ends a transaction that hangs.
            message.value
            and (
                signers.key is None
                or signers.key.proves(message.offset, message.value, message.headers, since=begin)
            )
            for message in reader.up_to(reader.end_offset(), _READ_S)
        )
