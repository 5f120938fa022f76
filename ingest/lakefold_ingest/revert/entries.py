"""The entries of the log that are undone, as values: in which version each is, and what its key is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lakefold_protos.lakefold.log_pb2 import BatchKey, UndoneEntries
from lakefold_table.marks.record import decode_record, position_at
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.entry import Entry
    from lakefold_table.marks.record import Record
    from lakefold_table.position import Position

EVERY_ENTRY: Final = None
"""Instead of offsets: all that a version did, also if no committer made it."""

Offsets = frozenset[int] | None
"""Offsets of entries in the log, or `EVERY_ENTRY`."""


class LoggedEntries(Protocol):
    """Reads entries of the log."""

    def entries(self, positions: Sequence[Position]) -> Mapping[int, Entry]:
        """Returns the entries at these positions of one log by their offsets, as far as it has them.

        Raises `RetryError` if no broker answers, `InvalidError` if none is known.
        """


@value()
class NamedVersion:
    """The entries of a version that are undone: their `offsets`, and their `keys` as far as known."""

    version: int
    offsets: Offsets = EVERY_ENTRY
    keys: tuple[EntryKey, ...] = ()

    def has(self, offset: int) -> bool:
        """Returns whether the entry at this offset of the log is one of them."""
        return self.offsets is None or offset in self.offsets

    def message(self) -> UndoneEntries:
        """Returns them as an envelope names them."""
        return UndoneEntries(version=self.version, offsets=sorted(self.offsets or ()))


@value()
class EntryKey:
    """The key of an entry: app and batch id, or the uuid of its proposal.

    `last_batch_id`: the entries of all batches from `batch_id` to this one are meant; 0: of the one.
    """

    app_id: str = ""
    batch_id: int | None = None
    uuid: str = ""
    last_batch_id: int = 0

    def __str__(self) -> str:
        last = f"-{self.last_batch_id}" if self.last_batch_id else ""
        return f"{self.app_id}:{self.batch_id}{last}" if self.app_id else self.uuid

    @classmethod
    def named(cls, key: BatchKey) -> EntryKey:
        """Returns the key of batches that a message names."""
        return cls(key.app_id, key.batch_id, last_batch_id=key.last_batch_id)

    @classmethod
    def of(cls, entry: Entry) -> EntryKey:
        """Returns the key of an entry."""
        if entry.app_id and entry.batch_id is not None:
            return cls(entry.app_id, entry.batch_id)
        return cls(uuid=entry.uuid)

    def message(self) -> BatchKey:
        """Returns the key as an envelope names it."""
        last = self.last_batch_id or None
        return BatchKey(app_id=self.app_id, batch_id=self.batch_id, uuid=self.uuid, last_batch_id=last)


def record_at(source: Source, version: int) -> Record | None:
    """Returns what a version records of its entries.

    Returns None if no committer made it, or it is gone.
    """
    summary = source.summary(version)
    return decode_record(summary.properties, source.uri) if summary is not None and summary.own else None


def removers(record: Record) -> list[int]:
    """Returns the offsets of the entries of a version that removed or changed rows."""
    return [offset for offset, answer in record.committed.items() if answer.rows_deleted]


def entry_text(record: Record | None, offset: int | None, key: EntryKey | None = None) -> str:
    """Returns what a person calls an entry: its key, or its position; empty if neither is known."""
    if key is not None and str(key):
        return str(key)
    if record is None or offset is None:
        return ""
    if len(record.committed) == 1 and len(record.apps) == 1:
        return f"{record.apps[0].app_id}:{record.apps[0].first}"
    return str(position_at(record, offset))
