"""Tables that tests read: written by our own fold, a version a call, without Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Entry
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.position import LogId, Position
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.proposals import SCHEMA, append, creation, rows
from tests.storage_wrapper import StorageWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Outcome
    from lakefold_table.storage.base import Listed, Storage

START_US = 1_700_000_000_000_000
LOG = LogId("cluster", "00000000-0000-0000-0000-00000000002a", 0)
TOPIC = "lakefold.transactions"


class Folded:
    """A table that our own committer writes, from a log whose offsets begin at `first`."""

    def __init__(
        self,
        storage: Storage,
        *,
        schema: pa.Schema = SCHEMA,
        stable_row_ids: bool = False,
        first: int = 0,
    ) -> None:
        lance = LanceFormat()
        self.uri = storage.uri
        self.offset = first
        self.versions = Versions(storage, lance.folder, lance.detect)
        self.take_over()
        self.fold(creation(self.uri, schema, stable_row_ids=stable_row_ids))

    def take_over(self) -> None:
        """Continues as another committer, under the next epoch."""
        self.owned = TableWriter(StoredTable(LanceFormat(), self.versions), check_sizes=False)

    def fold(self, *envelopes: Envelope) -> tuple[Outcome, ...]:
        """Fold these as a group, in a single version, a millisecond of log time apart."""
        group = [self.entry(envelope) for envelope in envelopes]
        outcomes = self.owned.fold(group).outcomes
        assert all(outcome.kind == "committed" for outcome in outcomes), outcomes
        return outcomes

    def append(self, *tables: pa.Table, app_id: str = "") -> int:
        """Append each of these as a proposal of its own, all in one version; its number."""
        read = self.versions.latest()
        made = [
            append(self.uri, table, read, app_id, self.offset + number) for number, table in enumerate(tables)
        ]
        self.fold(*made)
        return self.owned.table.version

    def append_ids(self, ids: Sequence[int]) -> int:
        """Append rows with these ids."""
        return self.append(rows(ids))

    def entry(self, envelope: Envelope) -> Entry:
        """The envelope at the log's next offset."""
        position = Position(LOG, self.offset, TOPIC)
        entry = Entry(
            position,
            START_US + self.offset * 1000,
            envelope,
            envelope.ByteSize(),
            BUILT_IN.proposal(envelope),
        )
        self.offset += 1
        return entry


def fragments_only(uri: str, count: int, read_version: int = 1) -> Envelope:
    """An append of fragments whose files don't exist, with a single row each: for tables in memory."""
    envelope = creation(uri)
    envelope.ClearField("create")
    envelope.lance.ClearField("overwrite")
    envelope.lance.read_version = read_version
    for number in range(count):
        fragment = envelope.lance.append.fragments.add(physical_rows=1)
        fragment.files.add(
            path=f"{envelope.lance.uuid}-{number}.lance",
            fields=[0, 1],
            column_indices=[0, 1],
            file_major_version=2,
            file_minor_version=2,
            file_size_bytes=1000,
        )
    return envelope


class Recording(StorageWrapper):
    """A store that writes down which calls it was asked for, and hands them on."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.calls: list[str] = []

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`."""
        self.calls.append("list")
        return self._storage.list(prefix)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`; a listing as any other."""
        self.calls.append("list")
        return self._storage.names(prefix)

    def _handed_on(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def recorded(*given: object, **named: object) -> object:
            self.calls.append(name)
            return call(*given, **named)

        return recorded
