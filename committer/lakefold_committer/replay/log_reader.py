"""Reads entries of the log again by their offsets, for a replay of versions that were folded long ago.

A version's record names the offsets. Their entries are read from Kafka or from a file. `EntriesGoneError` is
raised if they can't be read any more, as logs may be deleted and files may not be available.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lakefold_log.codec.envelope import Decoded, decode
from lakefold_table.entry import Entry, Invalid, Outcome
from lakefold_table.errors import GapError, InvalidError, StopError
from lakefold_table.formats import BUILT_IN
from lakefold_table.position import LogId, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from lakefold_committer.claims.claim_check import Claims
    from lakefold_log.read.consumer import Message
    from lakefold_log.read.file_log import FileLog
    from lakefold_table.marks.record import Record

AT_ONCE = 1000
POLL_SECONDS = 1.0

ELSEWHERE = "name the brokers that hold that log; if it no longer exists, begin `--from` a later version"
"""The hint if a log no longer has its entries. A committer's hints do not help here."""


class EntriesGoneError(InvalidError):
    """Entries that a version was folded from can't be read any more, or not from here."""


class Entries(Protocol):
    """Logs from which entries can be read."""

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """Returns the entries of `log` at these offsets. Raises `EntriesGoneError` if any of them is gone."""


class Reader(Protocol):
    """The methods used of a reader of a partition (`lakefold_log.read.consumer.PartitionReader`)."""

    position: int

    def seek(self, offset: int) -> None:
        """Continues reading at `offset`. Raises `StopError` if the log does not reach it."""

    def poll(self, max_messages: int, timeout_s: float) -> list[Message]:
        """Returns the next messages; empty if none arrive within `timeout_s`."""

    def end_offset(self) -> int:
        """Returns the offset after the log's last message."""


class FileEntries:
    """Entries of logs that are files."""

    def __init__(self, logs: Iterable[FileLog]) -> None:
        self._logs = {file_log.log: file_log for file_log in logs}
        self._read: dict[LogId, list[Decoded]] = {}

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `Entries`."""
        del topic
        if log not in self._logs:
            raise EntriesGoneError(
                f"they are in the file log {log.topic_id}",
                hint="give that file with --file, and its --log-id if it was folded with one",
            )
        if log not in self._read:
            self._read[log] = list(self._logs[log])
        read = self._read[log]
        return {offset: _entry(log, offset, read[offset : offset + 1]) for offset in offsets}


class KafkaEntries:
    """Entries of partitions of Kafka. `open_reader` returns a reader of a log's topic from an offset on."""

    def __init__(self, open_reader: Callable[[str, LogId, int], Reader]) -> None:
        self._open_reader = open_reader
        self._readers: dict[LogId, Reader] = {}

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `Entries`."""
        try:
            reader = self._reader(log, topic, min(offsets))
            messages = _messages(reader, frozenset(offsets))
        except StopError as error:
            hint = ELSEWHERE if isinstance(error, GapError) else error.hint
            raise EntriesGoneError(error.message, where=error.where, hint=hint) from error
        entries: dict[int, Entry] = {}
        for offset in offsets:
            position = Position(log, offset, topic)
            message = messages.get(offset)
            read: list[Decoded] = []
            if message is not None:
                read.append(decode(message.value, message.key, position, message.time_us, BUILT_IN))
            entries[offset] = _entry(log, offset, read)
        return entries

    def _reader(self, log: LogId, topic: str, first: int) -> Reader:
        reader = self._readers.get(log)
        if reader is None:
            reader = self._readers[log] = self._open_reader(topic, log, first)
        elif reader.position != first:
            reader.seek(first)
        return reader


class AnyEntries:
    """Entries of files and of Kafka, as the log's id says."""

    def __init__(self, files: Entries, kafka: Entries) -> None:
        self._files, self._kafka = files, kafka

    def at(self, log: LogId, topic: str, offsets: Collection[int]) -> Mapping[int, Entry]:
        """See `Entries`."""
        return (self._files if log.is_file else self._kafka).at(log, topic, offsets)


def _messages(reader: Reader, offsets: frozenset[int]) -> dict[int, Message]:
    """Returns the messages at these offsets by offset, without those that the log does not hold."""
    found_messages: dict[int, Message] = {}
    last = max(offsets)
    while reader.position <= last:
        messages = reader.poll(min(AT_ONCE, last - reader.position + 1), POLL_SECONDS)
        found_messages.update((message.offset, message) for message in messages if message.offset in offsets)
        if not messages and reader.end_offset() <= reader.position:
            break
    return found_messages


def _entry(log: LogId, offset: int, read: list[Decoded]) -> Entry:
    """Returns the entry that was read at `offset`. Raises `EntriesGoneError` if there is none."""
    if not read:
        raise EntriesGoneError(f"no message is at {Position(log, offset)} any more")
    if not isinstance(read[0], Entry):
        raise EntriesGoneError(f"the message at {Position(log, offset)} is not an entry: {read[0].message}")
    return read[0]


def checked(record: Record, entries: Mapping[int, Entry]) -> Mapping[int, Entry]:
    """Returns the entries of a version after checking that the last of them is the entry that was folded.

    A log that lost its end and got new entries holds other entries at the same offsets. A version that folded
    no entry has no digest of its last one: then the entries are returned without their bytes. Raises
    `EntriesGoneError` if another entry is at the offset now.
    """
    if not record.last_digest:
        return {offset: replace(entry, data=b"") for offset, entry in entries.items()}
    last = entries.get(record.last_offset)
    now = None if last is None else last.fingerprint
    if now is not None and now.digest != record.last_digest:
        raise EntriesGoneError(
            f"another entry is at this offset now ({now}); the folded one had digest {record.last_digest}",
            where=str(Position(record.log, record.last_offset, record.topic)),
        )
    return entries


def with_claims(
    entries: Mapping[int, Entry], refused: Mapping[int, Outcome], claims: Claims
) -> tuple[Mapping[int, Entry], frozenset[int]]:
    """Returns the entries with their claims fetched, and the offsets whose fault was taken from the record.

    A claim's file is deleted after its entry is answered. An entry that was refused because its claim could
    not be fetched has no uuid; it is refused again as `refused` says, even if the file exists now. Raises
    `EntriesGoneError` if a file that was fetched at that time is gone.
    """
    fetched_entries = dict(entries)
    recorded_faults: set[int] = set()
    for offset, entry in entries.items():
        if not entry.is_claim:
            continue
        (fetched,) = claims.fetch([entry])
        outcome = refused.get(offset)
        if outcome is not None and not outcome.uuid:
            fault = outcome.result if isinstance(outcome.result, Invalid) else fetched.fault
            fetched_entries[offset] = replace(entry, fault=fault)
            if fault != fetched.fault:
                recorded_faults.add(offset)
        elif fetched.fault is not None:
            where = str(entry.position)
            raise EntriesGoneError(
                f"the claimed envelope can't be read any more: {fetched.fault.message}", where=where
            )
        else:
            fetched_entries[offset] = fetched
    return fetched_entries, frozenset(recorded_faults)
