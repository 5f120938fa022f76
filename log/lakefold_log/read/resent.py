"""Finds out whether proposals without app id were sent again since they were refused, and not refused then.

The committer remembers few of their names, so one that is sent twice may be folded twice once its data files
have left the table. The topics remember more: what stands in the log, and what was answered.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from lakefold_log.client.admin import Admin
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.envelope import decode
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.lookup import Lookup
from lakefold_log.read.trust import ForeignOutcomes
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Rejected
from lakefold_table.errors import RetryError
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.consumer import Message
    from lakefold_log.read.dead_letters import Letter
    from lakefold_log.read.trust import Trust
    from lakefold_table.entry import Outcome
    from lakefold_table.position import LogId

_BATCH: Final = 1_000
# Past the last message a poll waits for all of its time, even where only a marker was left to read.
_POLL_S: Final = 0.05


def sent_since(
    config: KafkaConfig,
    topics: Topics,
    letters: Sequence[Letter],
    bound: int | None,
    *,
    group: str,
    timeout_s: float,
) -> Mapping[Position, str]:
    """Why some of one table's letters must not be sent again, by the place of each letter.

    Those are the ones without app id of which another copy was committed, or stands in the log and no refusal
    of it is known. `bound`: the partition that the table's marks name (None: none); `group`: the committers',
    whose outcomes count. Looks at what the topics
    hold of the partitions that the letters stood in and of the table's own. Raises `RetryError` if the
    brokers give nothing for `timeout_s` seconds.
    """
    keyless = {name: one for one in letters if (name := _name_of(one.proposal)) is not None}
    return _Search(config, topics, keyless, timeout_s).run(bound, group) if keyless else {}


_Name = tuple[str, bytes]
"""What tells a proposal without app id from others: its branch; its uuid, or the hash of what it claims."""


def _name_of(read: Decoded) -> _Name | None:
    if not isinstance(read, Entry) or read.app_id:
        return None
    mark = read.uuid.encode() or read.envelope.claim.sha256
    return (read.envelope.branch, mark) if mark else None


class _Search:
    """Looks for copies of one table's letters. `letters`: by the names that tell a proposal from others."""

    def __init__(
        self, config: KafkaConfig, topics: Topics, letters: Mapping[_Name, Letter], timeout_s: float
    ) -> None:
        self._config = config
        self._topics = topics
        self._letters = letters
        self._timeout_s = timeout_s
        self._admin = Admin(config, timeout_s=min(10.0, timeout_s))
        self._any = re.compile(b"|".join(re.escape(mark) for _, mark in letters))
        self._table = next(iter(letters.values())).table.encode()
        self._copies: dict[Position, _Name] = {}
        self._committed: dict[_Name, Outcome] = {}
        self._refused: set[Position] = set()

    def run(self, bound: int | None, group: str) -> Mapping[Position, str]:
        """Why some must not be sent again, by the place of each letter."""
        sent = describe(self._admin, self._topics.transactions)
        answered = describe(self._admin, self._topics.outcomes)
        numbers = {one.position.log.partition for one in self._letters.values()}
        table = self._table.decode()
        numbers.add(home_of(table, bound, sent.partitions))
        for number in sorted(numbers):
            if number < min(sent.partitions, answered.partitions):
                lookup = Lookup(self._config, self._topics, table, number, timeout_s=self._timeout_s)
                self._look_at_log(lookup.log)
                self._look_at_outcomes(answered.log_id(number), lookup.standing(group).trust)
        return {letter.place: why for name, letter in self._letters.items() if (why := self._obstacle(name))}

    def _obstacle(self, name: _Name) -> str:
        committed = self._committed.get(name)
        if committed is not None and isinstance(committed.result, Committed | Duplicate):
            version = committed.result.version
            return f"it was committed in version {version}: {committed.position}"
        waits = [place for place, copied in self._copies.items() if copied == name]
        waits = [place for place in waits if place not in self._refused]
        return f"it was sent again and no refusal of that is known: {waits[0]}" if waits else ""

    def _look_at_log(self, log: LogId) -> None:
        """Notes what stands in the log behind the first letter that stood in it."""
        topic = self._topics.transactions
        places = [one.position for one in self._letters.values()]
        first = min((one.offset + 1 for one in places if one.log == log), default=0)
        if any(one.log != log for one in places):
            first = 0
        for message in self._messages(topic, log, first):
            if message.key != self._table or not self._any.search(message.value):
                continue
            position = Position(log, message.offset, topic)
            read = decode(message.value, message.key, position, message.time_us)
            name = _name_of(read)
            letter = None if name is None else self._letters.get(name)
            if name is None or letter is None or (letter.position.log == log and position <= letter.position):
                continue
            self._copies[position] = name

    def _look_at_outcomes(self, log: LogId, trust: Trust) -> None:
        strangers = ForeignOutcomes(f"{self._topics.outcomes}/{log.partition}", trust)
        for message in self._messages(self._topics.outcomes, log, 0):
            outcome = strangers.parse(message) if message.key == self._table else None
            if outcome is None:
                continue
            if isinstance(outcome.result, Invalid | Rejected):
                self._refused.add(outcome.position)
                continue
            name = self._copies.get(outcome.position, (outcome.branch, outcome.uuid.encode()))
            if name in self._letters and not outcome.app_id:
                self._committed[name] = outcome
        strangers.tell()

    def _messages(self, topic: str, log: LogId, first: int) -> Iterator[Message]:
        """The messages of a partition from offset `first` on, up to where it ends now."""
        start, end = watermarks(self._admin, topic, log.partition)
        start = max(start, first)
        if start >= end:
            return
        deadline = time.monotonic() + self._timeout_s
        with PartitionReader(self._config, topic, log, start) as reader:
            while reader.position < end:
                before = reader.position
                yield from (one for one in reader.poll(_BATCH, _POLL_S) if one.offset < end)
                if reader.position > before:
                    deadline = time.monotonic() + self._timeout_s
                elif time.monotonic() >= deadline:
                    where = f"{topic}/{log.partition}@{before}"
                    text = f"nothing came for {self._timeout_s:g} s {reader.last_error}".rstrip()
                    raise RetryError(text, where=where)
