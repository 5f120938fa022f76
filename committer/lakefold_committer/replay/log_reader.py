"""Entries of the log by their offsets, once more: for who folds again what was folded long ago.

A version's record names the offsets. What stands there is read from Kafka, or from a file; where it is gone,
that is an answer (`EntriesGoneError`), as logs may be deleted and files may not be at hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lakefold_log.codec.envelope import decode
from lakefold_table.entry import Entry, Invalid
from lakefold_table.errors import GapError, InvalidError, StopError
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lakefold_committer.claims.claim_check import Claims
    from lakefold_log.codec.envelope import Decoded
    from lakefold_log.read.consumer import Message
    from lakefold_log.read.file_log import FileLog
    from lakefold_table.entry import Outcome
    from lakefold_table.formats import Formats
    from lakefold_table.marks.record import Record
    from lakefold_table.position import LogId

AT_ONCE = 1000
POLL_SECONDS = 1.0

ELSEWHERE = "name the brokers that hold that log, where it still is; else `--from` a version behind it"
"""What to do where a log doesn't answer for its entries; a committer's hints are of no use here."""


class EntriesGoneError(InvalidError):
    """Entries that a version was folded from can't be read any more, or not from here."""


class Entries(Protocol):
    """A log, or several."""

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """The entries of `log` at these offsets. Raises `EntriesGoneError` where one of them isn't there."""
        ...


class Reader(Protocol):
    """What is asked of a reader of one partition (`lakefold_log.read.consumer.PartitionReader`)."""

    position: int

    def seek(self, offset: int) -> None:
        """Go on from there. Raises `StopError` where the log doesn't reach to it."""
        ...

    def poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        """The messages that follow."""
        ...

    def end_offset(self) -> int:
        """Where the log ends."""
        ...


class FileEntries:
    """Entries of logs that are files."""

    def __init__(self, logs: Iterable[FileLog]) -> None:
        self._logs = {one.log: one for one in logs}
        self._read: dict[LogId, list[Decoded]] = {}

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `Entries`."""
        del topic
        if log not in self._logs:
            raise EntriesGoneError(
                f"they stand in the file log {log.topic_id}",
                hint="give that file with --file, and with --log-id where it was folded under one",
            )
        if log not in self._read:
            self._read[log] = list(self._logs[log])
        read = self._read[log]
        return {offset: _entry(log, offset, read[offset : offset + 1]) for offset in offsets}


class KafkaEntries:
    """Entries of partitions of Kafka. `opened`: makes a reader of a log's topic from an offset on.

    `formats`: those whose proposals are known.
    """

    def __init__(self, opened: Callable[[str, LogId, int], Reader], formats: Formats = BUILT_IN) -> None:
        self._opened = opened
        self._formats = formats
        self._readers: dict[LogId, Reader] = {}

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `Entries`."""
        try:
            reader = self._reader(log, topic, min(offsets))
            found = _messages(reader, frozenset(offsets))
        except StopError as error:
            hint = ELSEWHERE if isinstance(error, GapError) else error.hint
            raise EntriesGoneError(error.message, where=error.where, hint=hint) from error
        entries: dict[int, Entry] = {}
        for offset in offsets:
            position = Position(log, offset, topic)
            one = found.get(offset)
            read = [] if one is None else [decode(one.value, one.key, position, one.time_us, self._formats)]
            entries[offset] = _entry(log, offset, read)
        return entries

    def _reader(self, log: LogId, topic: str, first: int) -> Reader:
        reader = self._readers.get(log)
        if reader is None:
            reader = self._readers[log] = self._opened(topic, log, first)
        elif reader.position != first:
            reader.seek(first)
        return reader


class AnyEntries:
    """Entries of files and of Kafka, each where it stands."""

    def __init__(self, files: Entries, kafka: Entries) -> None:
        self._files, self._kafka = files, kafka

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `Entries`."""
        return (self._files if log.is_file else self._kafka).at(log, topic, offsets)


def _messages(reader: Reader, offsets: frozenset[int]) -> dict[int, Message]:
    """The messages at these offsets, as far as they are there."""
    found: dict[int, Message] = {}
    last = max(offsets)
    while reader.position <= last:
        messages = reader.poll(min(AT_ONCE, last - reader.position + 1), POLL_SECONDS)
        found.update((one.offset, one) for one in messages if one.offset in offsets)
        if not messages and reader.end_offset() <= reader.position:
            break
    return found


def _entry(log: LogId, offset: int, read: list[Decoded]) -> Entry:
    """The entry among what was read at its offset."""
    if not read:
        raise EntriesGoneError(f"nothing stands at {Position(log, offset)} any more")
    if not isinstance(read[0], Entry):
        raise EntriesGoneError(f"what stands at {Position(log, offset)} is no entry: {read[0].message}")
    return read[0]


def proven(record: Record, entries: Mapping[int, Entry]) -> Mapping[int, Entry]:
    """The entries of a version, once it is known that the last one is the one that was folded.

    A log that loses its end and grows again holds others at the same offsets. A version of an older release
    doesn't tell its entries from others, and its marks don't name the last one: then the bytes are left out.
    Raises `EntriesGoneError` if another entry stands there now.
    """
    if not record.last_digest:
        return {offset: replace(entry, data=b"") for offset, entry in entries.items()}
    last = entries.get(record.last_offset)
    now = None if last is None else last.fingerprint
    if now is not None and now.digest != record.last_digest:
        raise EntriesGoneError(
            f"another entry stands there now ({now}); the folded one had digest {record.last_digest}",
            where=str(Position(record.log, record.last_offset, record.topic)),
        )
    return entries


def redeemed(
    entries: Mapping[int, Entry], refused: Mapping[int, Outcome], claims: Claims
) -> tuple[Mapping[int, Entry], frozenset[int]]:
    """The entries with the envelopes that claims stand for, and at which offsets a claim's fault is as told.

    A claim's file goes once its entry is answered. What was refused without it bears no uuid, and is refused
    again as `refused` tells, whatever lies there now. Raises `EntriesGoneError` where a file that was brought
    then is gone.
    """
    found = dict(entries)
    told: set[int] = set()
    for offset, entry in entries.items():
        if not entry.is_claim:
            continue
        (brought,) = claims.bring([entry])
        outcome = refused.get(offset)
        if outcome is not None and not outcome.uuid:
            fault = outcome.result if isinstance(outcome.result, Invalid) else brought.fault
            found[offset] = replace(entry, fault=fault)
            if fault != brought.fault:
                told.add(offset)
        elif brought.fault is not None:
            where = str(entry.position)
            raise EntriesGoneError(
                f"what it claims can't be had any more: {brought.fault.message}", where=where
            )
        else:
            found[offset] = brought
    return found, frozenset(told)
