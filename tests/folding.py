"""Entries written down by hand, and a table that is folded in memory: the basis of the core's tests.

Nothing here needs pylance, a disk or a broker. Data files are only named; `Fetched` says what is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import Folded, FoldedTable, FoldInputs, fold
from lakefold_committer.fold.grouping import first_group
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import parse_large, parsed
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.file_pb2 import Field
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Entry
from lakefold_table.format import Fetched
from lakefold_table.formats import BUILT_IN, Formats
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.codec import LENGTH, decode_file
from lakefold_table.lance.proposal import LanceProposal, proposal_of
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import own_marks
from lakefold_table.position import LogId, Position
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakefold_committer.fold.grouping import Grouping, Limits
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Outcome, Result
    from lakefold_table.format import State
    from lakefold_table.lance.kinds import Kind
    from lakefold_table.lance.manifests.packed_append import Packed

URI = "memory://tests/t"
LOG = LogId("cluster", "topic-id", 0)
FILE = LogId(LogId.FILE_CLUSTER, "f11e", 0)
FORMAT = LanceFormat()
FORMATS = Formats(FORMAT)
START_US = 1_700_000_000_000_000
SECOND = 1_000_000
DAY = 24 * 3600 * SECOND
INPUTS = FoldInputs(epoch=1)


def column(name: str, number: int, kind: str = "int64", *, parent: int = -1, nullable: bool = True) -> Field:
    """A field of a schema."""
    return Field(name=name, id=number, parent_id=parent, logical_type=kind, nullable=nullable)


SCHEMA = (column("a", 0, nullable=False), column("s", 1, "string"))


def creation(schema: Sequence[Field] = SCHEMA, uuid: str = "creation", **options: object) -> Envelope:
    """An empty Overwrite that creates the table. `options`: those of CreateOptions."""
    envelope = Envelope(table=URI)
    envelope.create.SetInParent()
    for name, value in options.items():
        setattr(envelope.create, name, value)
    envelope.lance.uuid = uuid
    envelope.lance.overwrite.schema.extend(schema)
    return envelope


def add_fragment(fragment: DataFragment, name: str, rows: int = 3, version: tuple[int, int] = (2, 2)) -> None:
    """Makes an empty fragment one of `rows` rows in one file that holds both columns of `SCHEMA`."""
    fragment.physical_rows = rows
    fragment.files.add(
        path=f"{name}.lance",
        fields=[0, 1],
        column_indices=[0, 1],
        file_major_version=version[0],
        file_minor_version=version[1],
        file_size_bytes=1000,
    )


def append(
    name: str = "f", *, read: int = 1, app: str = "", batch: int | None = None, fragments: int = 1
) -> Envelope:
    """An Append of fragments whose files are called after `name`, which is the transaction's uuid too."""
    envelope = Envelope(table=URI, app_id=app, batch_id=batch)
    envelope.lance.uuid = name
    envelope.lance.read_version = read
    envelope.lance.append.SetInParent()
    for number in range(fragments):
        add_fragment(envelope.lance.append.fragments.add(), f"{name}-{number}")
    return envelope


def reserve(count: int, read: int = 1) -> Envelope:
    """A reservation of fragment ids."""
    envelope = Envelope(table=URI)
    envelope.lance.uuid = f"reserve-{count}"
    envelope.lance.read_version = read
    envelope.lance.reserve_fragments.num_fragments = count
    return envelope


def changed(envelope: Envelope, change: Callable[[Envelope], object]) -> Envelope:
    """A copy of the envelope with a change made to it."""
    copy = Envelope()
    copy.CopyFrom(envelope)
    change(copy)
    return copy


def as_version(envelope: Envelope, number: int) -> Envelope:
    """A copy of the envelope that is to become exactly this version."""
    return changed(envelope, lambda copy: setattr(copy, "as_version", number))


def entry(envelope: Envelope, offset: int, log: LogId = LOG, time_us: int | None = None) -> Entry:
    """The envelope at an offset; its time is one second an offset unless given."""
    at = START_US + offset * SECOND if time_us is None else time_us
    position = Position(log, offset, "transactions")
    return Entry(position, at, envelope, envelope.ByteSize(), BUILT_IN.proposal(envelope))


def by_message(item: Entry) -> Entry:
    """The same entry, its proposal to be read from the message alone."""
    return replace(item, proposal=LanceProposal(item.envelope))


def parsed_packed(
    data: bytes, allow: Callable[[int], None] = lambda _bytes: None
) -> tuple[Envelope, Packed | None]:
    """The envelope in these bytes, and the fragments of a plain Append, which it then has none of."""
    large = parse_large(data, allow)
    if large is None:
        return parsed(data), None
    assert isinstance(large.proposal, LanceProposal)
    return large.envelope, large.proposal.packed


def with_packed(item: Entry, envelope: Envelope, packed: Packed | None) -> Entry:
    """The entry of an envelope whose fragments stay encoded."""
    return replace(item, envelope=envelope, proposal=LanceProposal(envelope, packed))


def packed_of(item: Entry) -> Packed | None:
    """The encoded fragments of an entry."""
    return proposal_of(item).packed


def entries(envelopes: Sequence[Envelope], first: int, log: LogId = LOG) -> list[Entry]:
    """The envelopes at consecutive offsets."""
    return [entry(envelope, first + number, log) for number, envelope in enumerate(envelopes)]


def seen_by_clients(file: bytes) -> Transaction:
    """The transaction of a manifest file as other Lance clients read it: that at the offset in field 23."""
    offset = decode_file(file).head.transaction_section
    (length,) = LENGTH.unpack_from(file, offset)
    return Transaction.FromString(file[offset + LENGTH.size :][:length])


@dataclass
class MemoryTable:
    """A table folded group by group, without a store. `files` holds the bytes of each version by path."""

    table: FoldedTable = field(default_factory=lambda: FoldedTable(URI))
    files: dict[str, bytes] = field(default_factory=dict)
    offset: int = 0

    @property
    def state(self) -> LanceState:
        """The newest version."""
        assert isinstance(self.table.state, LanceState)
        return self.table.state

    @property
    def made(self) -> Transaction:
        """The newest version's own transaction, whole, as its file holds it."""
        transaction = decode_file(self.files[self.state.scheme.path(self.state.version)]).transaction
        assert transaction is not None
        return transaction

    def fold(
        self, *envelopes: Envelope, inputs: FoldInputs = INPUTS, sizes: Mapping[str, int | None] | None = None
    ) -> Folded:
        """Folds the envelopes at the next offsets as a group."""
        group = entries(envelopes, self.offset)
        self.offset += len(group)
        return self.fold_group(group, inputs, Fetched(sizes or {}))

    def fold_group(
        self, group: Sequence[Entry], inputs: FoldInputs = INPUTS, fetched: Fetched | None = None
    ) -> Folded:
        """Folds entries as a group."""
        folded = fold(FORMAT, self.table, group, fetched or Fetched(), inputs)
        self.table = folded.table
        if folded.publication is not None:
            self.files[folded.publication.path] = b"".join(folded.publication.buffers)
        return folded

    def result(self, envelope: Envelope, **options: object) -> Result:
        """What becomes of an envelope, folded alone."""
        folded = self.fold(envelope, **options)  # type: ignore[arg-type]
        return folded.outcomes[0].result

    def reopened(self) -> MemoryTable:
        """The same table, its newest version and its marks read back from its bytes."""
        path = self.state.scheme.path(self.state.version)
        state = FORMAT.decode(path, self.files[path])
        table = FoldedTable(URI, state, own_marks(state, URI), self.table.pending)
        return MemoryTable(table, dict(self.files), self.offset)


def created(**options: object) -> MemoryTable:
    """A table with its first version, empty."""
    table = MemoryTable()
    table.fold(creation(**options))  # type: ignore[arg-type]
    return table


def results(folded: Folded) -> list[Result]:
    """The results of a group, in order."""
    return [outcome.result for outcome in folded.outcomes]


def versions_at(uri: str) -> Versions:
    """The versions of a table in memory."""
    return Versions(MemoryStorage(uri), FORMAT.folder, FORMAT.detect)


def opened(uri: str, *, check_sizes: bool = False, roots: Sequence[str] | None = None) -> TableWriter:
    """A committer's table in memory. Sizes are not checked, because no data files exist."""
    return TableWriter(StoredTable(FORMAT, versions_at(uri)), check_sizes=check_sizes, roots=roots)


def fold_at(table: TableWriter, envelopes: Sequence[Envelope], first: int, log: LogId = LOG) -> list[Outcome]:
    """Folds envelopes at consecutive offsets as a group, for a table of any name."""
    return list(table.fold(entries(envelopes, first, log)).outcomes)


def groups_of(
    entries: Sequence[Entry], table_format: Grouping, limits: Limits, state: State | None = None
) -> Iterator[Sequence[Entry]]:
    """Yields all entries of a table in groups, as if what the format says of `state` held for all."""
    start = 0
    while start < len(entries):
        waiting = entries[start : start + limits.max_entries]
        group = first_group(waiting, table_format, limits, state)
        yield group
        start += len(group)


def known_history(state: LanceState) -> tuple[int, Mapping[Kind, int]]:
    """What is known of the versions before: since which version, and of each kind the newest."""
    return state.history.since, state.history.latest
