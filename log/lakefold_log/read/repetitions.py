"""Finds out whether refused proposals without app id were sent again later, and not refused then.

The committer remembers few of their names, so a proposal that is sent twice may be folded twice once its data
files are no longer in the table. The topics remember more: the entries of the log, and their outcomes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.codec.envelope import Decoded, decode
from lakefold_log.codec.partitioner import home_of
from lakefold_log.read.accepted_signers import AcceptedSigners, ForeignOutcomes
from lakefold_log.read.consumer import Message, PartitionReader
from lakefold_log.read.lookup import Lookup
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Outcome, Rejected, Tagged, tagged_text
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.dead_letters import DeadLetter


def sent_since(
    config: KafkaConfig,
    topics: Topics,
    dead_letters: Sequence[DeadLetter],
    bound: int | None,
    *,
    group: str,
    timeout_s: float,
) -> Mapping[Position, str]:
    """Returns, by position, why some of a table's dead letters must not be sent again.

    These are proposals without app id of which another copy was committed, or is in the log without a known
    refusal. `bound` is the partition that the table's marks name (None: none); only outcomes of the
    committers' `group` count. Reads the topics' partitions from which the dead letters came and the table's
    own. Raises `RetryError` if the brokers send nothing for `timeout_s` seconds.
    """
    keyless = {name: letter for letter in dead_letters if (name := _name_of(letter.proposal)) is not None}
    return _Search(config, topics, keyless, timeout_s).run(bound, group) if keyless else {}


_Name = tuple[str, bytes]
"""Identifies a proposal without app id: its branch, and its uuid or the hash of its claim."""


def _name_of(read: Decoded) -> _Name | None:
    if not isinstance(read, Entry) or read.app_id:
        return None
    mark = read.uuid.encode() or read.envelope.claim.sha256
    return (read.envelope.branch, mark) if mark else None


class _Search:
    """Searches for copies of a table's dead letters. `dead_letters`: by the names of their proposals."""

    def __init__(
        self, config: KafkaConfig, topics: Topics, dead_letters: Mapping[_Name, DeadLetter], timeout_s: float
    ) -> None:
        self._config = config
        self._topics = topics
        self._dead_letters = dead_letters
        self._timeout_s = timeout_s
        self._admin = Admin(config, timeout_s=min(10.0, timeout_s))
        self._any = re.compile(b"|".join(re.escape(mark) for _, mark in dead_letters))
        self._table = next(iter(dead_letters.values())).table.encode()
        self._copies: dict[Position, _Name] = {}
        self._committed: dict[_Name, Outcome] = {}
        self._refused: set[Position] = set()

    def run(self, bound: int | None, group: str) -> Mapping[Position, str]:
        """Returns, by position, why some dead letters must not be sent again."""
        sent = describe(self._admin, self._topics.transactions)
        answered = describe(self._admin, self._topics.outcomes)
        numbers = {letter.position.log.partition for letter in self._dead_letters.values()}
        table = self._table.decode()
        numbers.add(home_of(table, bound, sent.partitions))
        for number in sorted(numbers):
            if number < min(sent.partitions, answered.partitions):
                lookup = Lookup(self._config, self._topics, table, number, timeout_s=self._timeout_s)
                self._read_log(lookup.log)
                self._read_outcomes(answered.log_id(number), lookup.status(group).signers)
        return {
            letter.stored_at: why
            for name, letter in self._dead_letters.items()
            if (why := self._obstacle(name))
        }

    def _obstacle(self, name: _Name) -> str:
        committed = self._committed.get(name)
        if committed is not None and isinstance(committed.result, Committed | Tagged | Duplicate):
            if isinstance(committed.result, Tagged):
                return f"it was committed, {tagged_text(committed.result)}: {committed.position}"
            version = committed.result.version
            return f"it was committed in version {version}: {committed.position}"
        copies = [position for position, copied in self._copies.items() if copied == name]
        waits = [position for position in copies if position not in self._refused]
        return f"it was sent again and no refusal of that is known: {waits[0]}" if waits else ""

    def _read_log(self, log: LogId) -> None:
        """Notes the copies in the log after the first letter's position."""
        topic = self._topics.transactions
        positions = [letter.position for letter in self._dead_letters.values()]
        first = min((each.offset + 1 for each in positions if each.log == log), default=0)
        if any(each.log != log for each in positions):
            first = 0
        for message in self._messages(topic, log, first):
            if message.key != self._table or not self._any.search(message.value):
                continue
            position = Position(log, message.offset, topic)
            read = decode(message.value, message.key, position, message.time_us)
            name = _name_of(read)
            letter = None if name is None else self._dead_letters.get(name)
            if name is None or letter is None or (letter.position.log == log and position <= letter.position):
                continue
            self._copies[position] = name

    def _read_outcomes(self, log: LogId, signers: AcceptedSigners) -> None:
        foreign = ForeignOutcomes(f"{self._topics.outcomes}/{log.partition}", signers)
        for message in self._messages(self._topics.outcomes, log, 0):
            outcome = foreign.parse(message) if message.key == self._table else None
            if outcome is None:
                continue
            if isinstance(outcome.result, Invalid | Rejected):
                self._refused.add(outcome.position)
                continue
            name = self._copies.get(outcome.position, (outcome.branch, outcome.uuid.encode()))
            if name in self._dead_letters and not outcome.app_id:
                self._committed[name] = outcome
        foreign.log()

    def _messages(self, topic: str, log: LogId, first: int) -> Iterator[Message]:
        """Returns the messages of a partition from offset `first` to its current end."""
        start, end = watermarks(self._admin, topic, log.partition)
        start = max(start, first)
        if start >= end:
            return
        with PartitionReader(self._admin, topic, log, start) as reader:
            yield from reader.up_to(end, self._timeout_s)
