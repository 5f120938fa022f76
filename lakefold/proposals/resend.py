"""Sends refused proposals again, each to the partition of its table, and waits for the new outcomes.

A proposal keeps its key, so a proposal that was committed meanwhile is answered as Duplicate. For proposals
without an app id that holds only for the newest few, so the topics are searched for copies that were sent
again. A proposal that was refused several times has several dead letters; it is sent once.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lakefold.binding.bound_partition import bound_partition
from lakefold.errors import SettingError
from lakefold_table.entry import Entry, Invalid, Outcome, Rejected
from lakefold_table.errors import InvalidError
from lakefold_table.versions.table_address import TableAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_log.read.dead_letters import DeadLetter
    from lakefold_log.write.producer import Proposer
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import Position

AT_ONCE: Final = 1_000
"""This many are sent before their outcomes are awaited. A waiter keeps ten times as many."""


@dataclass(frozen=True, slots=True)
class SentAgain:
    """A dead letter that was sent again, its new position, and its outcome if that was awaited.

    `position` is None if it was not sent; `obstacle` says why.
    """

    letter: DeadLetter
    position: Position | None = None
    outcome: Outcome | None = None
    obstacle: str = ""

    @property
    def same_cause(self) -> bool | None:
        """Whether it was refused with the same message as before. None if it was not refused."""
        if self.outcome is None:
            return None
        result = self.outcome.result
        if isinstance(result, Invalid):
            return result.message == self.letter.reason
        return result.conflict.message == self.letter.reason if isinstance(result, Rejected) else None


def pick(dead_letters: Iterable[DeadLetter], chosen: Sequence[str]) -> list[DeadLetter]:
    """Returns the dead letters at the chosen positions (`1047`, or `0/1047` with the partition), or all.

    They keep their order; if a proposal has several, the newest is returned. Raises `SettingError` if a
    position can't be read, or if not exactly one dead letter has it.
    """
    choosers = [_chooser(text) for text in chosen]
    picked: dict[object, DeadLetter] = {}
    hits = [0] * len(choosers)
    for letter in dead_letters:
        matches = [number for number, is_it in enumerate(choosers) if is_it(letter.position)]
        for number in matches:
            hits[number] += 1
        if matches or not choosers:
            name = letter.key or letter.stored_at
            picked.pop(name, None)
            picked[name] = letter
    for text, count in zip(chosen, hits, strict=True):
        if count != 1:
            have = f"{count} dead letters have" if count else "no dead letter has"
            hint = "`lakefold redrive` lists them; name the partition too, as in 0/1047, and --table"
            if count > 1:
                hint += "; if the topic was created again, send them by --table and --all"
            raise SettingError(f"{have} this position", where=f"--offset {text}", hint=hint)
    return list(picked.values())


def checked(
    dead_letters: Sequence[DeadLetter],
    config: KafkaConfig,
    topics: Topics,
    storage_options: Mapping[str, str],
    *,
    group: str,
    timeout_s: float,
) -> list[DeadLetter]:
    """Returns the dead letters in their order, with an obstacle for those that must not be sent again.

    Those are proposals of which another copy was sent, and those whose files maintenance is about to remove.

    `group` is the consumer group of the committers whose outcomes count. Raises `RetryError` if the brokers
    are silent for `timeout_s` seconds.
    """
    from lakefold_log.read.repetitions import sent_since

    since: dict[Position, str] = {}
    for table in dict.fromkeys(letter.table for letter in dead_letters if not letter.obstacle):
        mine = [letter for letter in dead_letters if letter.table == table and not letter.obstacle]
        try:
            partition = bound_partition(TableAddress(table, storage_options))
        except InvalidError:
            # If a table can't be opened, nothing is sent for it; `send_again` reports that.
            continue
        since |= sent_since(config, topics, mine, partition, group=group, timeout_s=timeout_s)
        since |= _without_files(table, mine, storage_options)
    return [replace(letter, sent_since=since.get(letter.stored_at, "")) for letter in dead_letters]


def _without_files(
    table: str, dead_letters: Sequence[DeadLetter], storage_options: Mapping[str, str]
) -> dict[Position, str]:
    """Returns the dead letters of a table whose files maintenance removes, with this as the reason."""
    from lakefold_maintenance.files.removal_note import read_note
    from lakefold_maintenance.formats import files_of
    from lakefold_table.storage import open_storage

    removing = read_note(open_storage(table, storage_options)).removing.keys()
    return {
        letter.stored_at: "maintenance removes its files; build the proposal again with new files"
        for letter in dead_letters
        if isinstance(letter.proposal, Entry)
        and not letter.proposal.envelope.branch
        and not removing.isdisjoint(files_of(letter.proposal.envelope))
    }


def send_again(
    dead_letters: Sequence[DeadLetter],
    config: KafkaConfig,
    topics: Topics,
    storage_options: Mapping[str, str],
    *,
    wait_s: float,
) -> Iterator[SentAgain]:
    """Sends dead letters table by table, in their order, each to the partition that its table is bound to.

    Waits up to `wait_s` seconds for each outcome, or not at all if it is 0. Raises `RetryError` if a broker
    doesn't answer or an outcome is late; repeating the call is safe.
    """
    from lakefold_log.read.outcomes import OutcomeWaiter
    from lakefold_log.write.producer import Proposer

    yield from (SentAgain(letter, obstacle=letter.obstacle) for letter in dead_letters if letter.obstacle)
    able = [letter for letter in dead_letters if not letter.obstacle]
    if not able:
        return
    with Proposer(config, topics) as proposer:
        for table in dict.fromkeys(letter.table for letter in able):
            mine = [letter for letter in able if letter.table == table]
            try:
                partition = bound_partition(TableAddress(table, storage_options))
            except InvalidError as error:
                yield from (SentAgain(letter, obstacle=str(error)) for letter in mine)
                continue
            for chunk in (mine[start : start + AT_ONCE] for start in range(0, len(mine), AT_ONCE)):
                awaited = (
                    OutcomeWaiter(config, topics, table, partition=partition) if wait_s else nullcontext()
                )
                with awaited as waiter:
                    for letter, envelope, sent in _sent(proposer, chunk, partition, storage_options):
                        position = proposer.position_of(sent)
                        outcome = waiter.wait(position, envelope, wait_s) if waiter else None
                        yield SentAgain(letter, position, outcome)


def _sent(
    proposer: Proposer,
    dead_letters: Sequence[DeadLetter],
    partition: int | None,
    storage_options: Mapping[str, str],
) -> list[tuple[DeadLetter, Envelope, Future[Position]]]:
    """Hands all dead letters to the producer. Returns each with its envelope and its future position."""
    return [
        (
            letter,
            letter.proposal.envelope,
            proposer.send(
                letter.proposal.envelope, partition, headers=letter.headers, storage_options=storage_options
            ),
        )
        for letter in dead_letters
        if isinstance(letter.proposal, Entry)
    ]


def _chooser(text: str) -> Callable[[Position], bool]:
    partition, _, offset = text.rpartition("/")
    if not offset.isdecimal() or (partition and not partition.isdecimal()):
        message = "this is not a position in the log"
        raise SettingError(message, where=f"--offset {text}", hint="write 1047, or 0/1047 with the partition")

    def is_it(position: Position) -> bool:
        same = not partition or position.log.partition == int(partition)
        return same and position.offset == int(offset)

    return is_it
