"""Sends refused proposals again: which of them, where to, and what became of them this time.

A proposal keeps its key, so one that got into the table meanwhile is answered as Duplicate. For proposals
without app id that holds for the newest few only, so the topics are asked whether they were sent again.
Several letters of one proposal mean that it was refused several times; it is sent once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lakefold.binding.bound_partition import bound_partition
from lakefold.errors import SettingError
from lakefold_table.entry import Entry, Invalid, Rejected
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.dead_letters import Letter
    from lakefold_log.write.producer import Proposer
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.position import Position

AT_ONCE: Final = 1_000
"""So many are sent before their outcomes are waited for; a waiter keeps ten times as many."""


@dataclass(frozen=True, slots=True)
class SentAgain:
    """A letter and where it was sent to; `outcome` where that was waited for.

    `position` is None where it was not sent: `obstacle` says why.
    """

    letter: Letter
    position: Position | None = None
    outcome: Outcome | None = None
    obstacle: str = ""

    @property
    def same_cause(self) -> bool | None:
        """Whether it was refused in the same words as before; None where it was not refused."""
        if self.outcome is None:
            return None
        result = self.outcome.result
        if isinstance(result, Invalid):
            return result.message == self.letter.reason
        return result.conflict.message == self.letter.reason if isinstance(result, Rejected) else None


def pick(letters: Iterable[Letter], chosen: Sequence[str]) -> list[Letter]:
    """The letters at the chosen positions (`1047`, or `0/1047` with the partition); none chosen: all.

    In their order; of several of one proposal the newest. Raises `SettingError` where a position is none, or
    isn't that of exactly one letter.
    """
    wanted = [_chooser(text) for text in chosen]
    found: dict[object, Letter] = {}
    hits = [0] * len(wanted)
    for letter in letters:
        meant = [number for number, is_it in enumerate(wanted) if is_it(letter.position)]
        for number in meant:
            hits[number] += 1
        if meant or not wanted:
            name = letter.key or letter.place
            found.pop(name, None)
            found[name] = letter
    for text, count in zip(chosen, hits, strict=True):
        if count != 1:
            message = "no dead letter stood there" if not count else f"{count} dead letters stood there"
            hint = "`lakefold redrive` lists them; name the partition too, as in 0/1047, and --table"
            if count > 1:
                hint += "; where the topic was made again, --table and --all send what stood there before too"
            raise SettingError(message, where=f"--offset {text}", hint=hint)
    return list(found.values())


def checked(
    letters: Sequence[Letter],
    config: KafkaConfig,
    topics: Topics,
    storage_options: Mapping[str, str],
    *,
    group: str,
    timeout_s: float,
) -> list[Letter]:
    """The letters, in their order; those that must not be sent, as another copy was, have an obstacle.

    `group`: the committers', whose outcomes count. Raises `RetryError` if the brokers give nothing for
    `timeout_s` seconds.
    """
    from lakefold_log.read.resent import sent_since

    since: dict[Position, str] = {}
    for table in dict.fromkeys(letter.table for letter in letters if not letter.obstacle):
        mine = [letter for letter in letters if letter.table == table and not letter.obstacle]
        try:
            partition = bound_partition(table, storage_options)
        except InvalidError:
            # Nothing is sent for a table that can't be opened: `send_again` says why.
            continue
        since |= sent_since(config, topics, mine, partition, group=group, timeout_s=timeout_s)
    return [replace(letter, sent_since=since.get(letter.place, "")) for letter in letters]


def send_again(
    letters: Sequence[Letter],
    config: KafkaConfig,
    topics: Topics,
    storage_options: Mapping[str, str],
    *,
    wait_s: float,
) -> Iterator[SentAgain]:
    """Send them table by table, in their order, each to the partition that its table is bound to.

    Waits up to `wait_s` seconds for each outcome; 0 waits for none. Raises `RetryError` where a broker or an
    outcome doesn't come in time: the same call again is safe.
    """
    from lakefold_log.read.outcomes import OutcomeWaiter
    from lakefold_log.write.producer import Proposer

    yield from (SentAgain(letter, obstacle=letter.obstacle) for letter in letters if letter.obstacle)
    able = [letter for letter in letters if not letter.obstacle]
    if not able:
        return
    with Proposer(config, topics) as proposer:
        for table in dict.fromkeys(letter.table for letter in able):
            mine = [letter for letter in able if letter.table == table]
            try:
                partition = bound_partition(table, storage_options)
            except InvalidError as error:
                yield from (SentAgain(letter, obstacle=str(error)) for letter in mine)
                continue
            for some in (mine[start : start + AT_ONCE] for start in range(0, len(mine), AT_ONCE)):
                if wait_s:
                    with OutcomeWaiter(config, topics, table, partition=partition) as waiter:
                        for letter, envelope, sent in _sent(proposer, some, partition, storage_options):
                            position = proposer.position_of(sent)
                            outcome = waiter.wait(position, envelope, wait_s)
                            yield SentAgain(letter, position, outcome)
                else:
                    for letter, _, sent in _sent(proposer, some, partition, storage_options):
                        yield SentAgain(letter, proposer.position_of(sent))


def _sent(
    proposer: Proposer,
    letters: Sequence[Letter],
    partition: int | None,
    storage_options: Mapping[str, str],
) -> list[tuple[Letter, Envelope, Future[Position]]]:
    """Hand all of them over before the first one is waited for."""
    return [
        (
            letter,
            letter.proposal.envelope,
            proposer.send(
                letter.proposal.envelope, partition, headers=letter.headers, storage_options=storage_options
            ),
        )
        for letter in letters
        if isinstance(letter.proposal, Entry)
    ]


def _chooser(text: str) -> Callable[[Position], bool]:
    partition, _, offset = text.rpartition("/")
    if not offset.isdecimal() or (partition and not partition.isdecimal()):
        message = "this is no position of the log"
        raise SettingError(message, where=f"--offset {text}", hint="write 1047, or 0/1047 with the partition")

    def is_it(position: Position) -> bool:
        same = not partition or position.log.partition == int(partition)
        return same and position.offset == int(offset)

    return is_it
