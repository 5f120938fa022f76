"""The next version of a Lance table while entries are added to it: check, rebase, apply, encode.

Appends are rebased by giving their fragments the next free ids of the table as it is when they are folded.
Many Appends share one version; its transaction is one Append of all their fragments, built on the version
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.format import Accepted, Observed, Publication, Stamps
from lakefold_table.lance.codec import encode_file
from lakefold_table.lance.columns import Columns, columns_of
from lakefold_table.lance.conflicts import History, conflict_of
from lakefold_table.lance.creation import columns_to_create, creation_fault, first_head
from lakefold_table.lance.features import Flag, has_stable_row_ids, set_flag
from lakefold_table.lance.fragments import Fragments, Numbered
from lakefold_table.lance.identity import identity_fault
from lakefold_table.lance.naming import Scheme
from lakefold_table.lance.operations import Kind, kind_of
from lakefold_table.lance.rowids import lineage
from lakefold_table.lance.state import MICROS, LanceState
from lakefold_table.lance.validity import envelope_fault, file_fault, new_fragment_fault, read_version_fault
from lakefold_table.marks import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Entry

LIBRARY, LIBRARY_VERSION = "lakefold", "0.1.0"
MAX_FRAGMENT_ID = 2**32 - 1
OLDEST_READ_VERSION = 10_000
"""How many versions a proposal may lie behind (architecture, The log)."""


class LanceDraft:
    """Builds the version after `state` (None: the table's first one)."""

    def __init__(self, state: LanceState | None, observed: Observed) -> None:
        self._state = state
        self._observed = observed
        self._head = Manifest() if state is None else state.head
        self._columns = Columns({}, (), legacy=False) if state is None else state.columns
        self._bases = frozenset[int]() if state is None else state.base_ids
        self._scheme = Scheme.V2 if state is None else state.scheme
        self._next_fragment_id = (
            self._head.max_fragment_id + 1 if self._head.HasField("max_fragment_id") else 0
        )
        self._next_row_id = self._head.next_row_id
        self._gives_row_ids = has_stable_row_ids(self._head)
        self._first_ids = (self._next_fragment_id, self._next_row_id)
        self._transactions: list[Transaction] = []
        self._added: list[Numbered] = []
        self._as_proposed: list[bytes] = []
        self._kind = Kind.APPEND

    @property
    def _version(self) -> int:
        return 0 if self._state is None else self._state.version

    def add(self, entry: Entry) -> Accepted | Rejected | Invalid:
        """Checks the entry and adds it; a refused one changes nothing."""
        kind = kind_of(entry.envelope.lance)
        refusal = envelope_fault(entry.envelope, kind) or self._refusal(entry, kind)
        if refusal is not None:
            return refusal
        if self._state is None:
            self._create(entry)
        accepted = self._apply(entry.envelope.lance, kind)
        self._transactions.append(entry.envelope.lance)
        self._kind = kind
        return accepted

    @property
    def operations(self) -> tuple[int, Mapping[str, int]]:
        """For each kind of operation the newest version that was one, this next version included."""
        history = self._next_history()
        return history.since, {kind.value: version for kind, version in history.latest.items()}

    @property
    def first_ids(self) -> tuple[int, int]:
        """The first fragment id and the first row id that this version may give."""
        return self._first_ids

    def finish(self, stamps: Stamps) -> tuple[LanceState, Publication]:
        """The next version, complete with its file."""
        head = self._next_head(stamps)
        fragments = (self._state.fragments if self._state else Fragments()).added(self._sorted_added())
        index_section = self._state.index_section if self._state else b""
        transaction = self._transaction(stamps)
        head.tag = transaction.tag
        buffers = encode_file(head, fragments, index_section, transaction)
        history = self._next_history()
        state = LanceState(head, fragments, index_section, transaction, history, self._columns, self._scheme)
        return state, Publication(head.version, self._scheme.path(head.version), buffers)

    def _next_history(self) -> History:
        history = self._state.history if self._state else History(0, {})
        return history.extended(self._version + 1, self._kind)

    def _refusal(self, entry: Entry, kind: Kind) -> Rejected | Invalid | None:
        envelope = entry.envelope
        if self._state is None:
            if not envelope.HasField("create"):
                return Invalid(
                    f"there is no table at {envelope.table}",
                    "create it first: an empty overwrite whose envelope has `create`",
                )
            fault = creation_fault(envelope)
            return fault or self._fragments_fault(
                envelope.lance.overwrite.fragments, columns_to_create(envelope)
            )
        if envelope.HasField("create"):
            return Rejected(_exists_already(self._state))
        if kind is Kind.OVERWRITE:
            return Invalid(
                "an overwrite is folded only to create a table", "this release can't replace its rows"
            )
        return self._rebase_refusal(envelope.lance, kind, self._state)

    def _rebase_refusal(
        self, transaction: Transaction, kind: Kind, state: LanceState
    ) -> Rejected | Invalid | None:
        """Why a proposal built on an older version can't be folded on this one."""
        fault = read_version_fault(transaction, state.version)
        if fault is not None:
            return fault
        conflict = conflict_of(kind, transaction.read_version, state.history) or _too_old(transaction, state)
        if conflict is not None:
            return Rejected(conflict)
        if kind is Kind.RESERVE_FRAGMENTS:
            return self._reserve_fault(transaction.reserve_fragments.num_fragments)
        fragments = transaction.append.fragments
        changed = identity_fault(transaction, state, self._observed)
        return changed or self._fragments_fault(fragments, self._columns)

    def _reserve_fault(self, count: int) -> Invalid | None:
        if 0 < count <= MAX_FRAGMENT_ID - self._next_fragment_id:
            return None
        return Invalid(
            f"{count} fragment ids can't be reserved", "ids are from 0 to 2^32 - 1; reserve at least one"
        )

    def _fragments_fault(self, fragments: Iterable[DataFragment], columns: Columns) -> Invalid | None:
        bases = self._bases
        given: set[int] = set()
        count = 0
        for fragment in fragments:
            count += 1
            fault = new_fragment_fault(fragment, columns, bases) or file_fault(fragment, self._observed.sizes)
            if fault is None and fragment.id:
                fault = self._given_id_fault(fragment.id, given)
            if fault is not None:
                return fault
        if self._next_fragment_id + count > MAX_FRAGMENT_ID:
            return Invalid("the table has no fragment ids left", "compact it into a new table")
        return None

    def _given_id_fault(self, fragment_id: int, given: set[int]) -> Invalid | None:
        """An id that the proposal brings is kept where it is free (format facts, section 5.6)."""
        taken = fragment_id in given or any(fragment_id == one.id for one in self._added)
        taken = taken or (self._state is not None and self._state.fragments.has(fragment_id))
        given.add(fragment_id)
        if fragment_id > MAX_FRAGMENT_ID or taken:
            return Invalid(
                f"fragment id {fragment_id} is taken or too high", "leave ids 0: they are given when folded"
            )
        return None

    def _create(self, entry: Entry) -> None:
        envelope = entry.envelope
        self._head = first_head(envelope)
        self._gives_row_ids = has_stable_row_ids(self._head)
        self._columns = columns_of(self._head.fields, self._head.data_format.version)
        self._scheme = Scheme.V1 if envelope.create.v1_manifest_paths else Scheme.V2

    def _apply(self, transaction: Transaction, kind: Kind) -> Accepted:
        rebased = transaction.read_version < self._version
        first = self._next_fragment_id
        if kind is Kind.RESERVE_FRAGMENTS:
            count = transaction.reserve_fragments.num_fragments
            self._next_fragment_id += count
            return Accepted(rebased, 0, 0, first, count)
        fragments = transaction.append.fragments if kind is Kind.APPEND else transaction.overwrite.fragments
        numbered = [self._number(fragment) for fragment in fragments]
        self._added += numbered
        rows = sum(one.physical_rows for one in numbered)
        return Accepted(rebased, rows, 0, numbered[0].id if numbered else 0, len(numbered))

    def _number(self, fragment: DataFragment) -> Numbered:
        """Gives a new fragment its id and, where the table keeps them, its row ids; encodes it once."""
        plain = fragment.SerializeToString(deterministic=True)
        self._as_proposed.append(plain)
        number = fragment.id or self._next_fragment_id
        self._next_fragment_id = max(self._next_fragment_id, number + 1)
        rows = fragment.physical_rows
        encoded = plain if fragment.id or not number else b"\x08" + _varint(number) + plain
        if self._gives_row_ids:
            encoded += lineage(self._next_row_id, rows, self._version + 1)
            self._next_row_id += rows
        return Numbered(number, encoded, rows)

    def _sorted_added(self) -> list[Numbered]:
        return sorted(self._added, key=lambda one: one.id)

    def _next_head(self, stamps: Stamps) -> Manifest:
        head = Manifest()
        head.CopyFrom(self._head)
        head.version = self._version + 1
        head.timestamp.seconds, head.timestamp.nanos = (
            stamps.time_us // MICROS,
            stamps.time_us % MICROS * 1000,
        )
        for key in [key for key in head.table_metadata if key.startswith(PREFIX)]:
            del head.table_metadata[key]
        head.table_metadata.update(stamps.metadata)
        head.writer_version.Clear()
        head.writer_version.library, head.writer_version.version = LIBRARY, LIBRARY_VERSION
        head.ClearField("transaction_file")
        head.ClearField("transaction_section_before_14")
        if self._next_fragment_id:
            head.max_fragment_id = self._next_fragment_id - 1
        head.next_row_id = self._next_row_id
        if self._mixes_file_versions():
            set_flag(head, Flag.MIXED_FILE_VERSIONS)
        return head

    def _mixes_file_versions(self) -> bool:
        """Whether a new file has another version than the table's own (format facts, section 4.4)."""
        versions = {
            f"{file.file_major_version}.{file.file_minor_version}"
            for transaction in self._transactions
            for fragment in (*transaction.append.fragments, *transaction.overwrite.fragments)
            for file in fragment.files
        }
        return not self._columns.legacy and bool(versions - {self._head.data_format.version})

    def _transaction(self, stamps: Stamps) -> Transaction:
        """The version's own transaction: the entry's where it is alone, else one Append of all."""
        transaction = Transaction()
        if len(self._transactions) == 1:
            transaction.CopyFrom(self._transactions[0])
        else:
            transaction.append.MergeFromString(AppendView(fragments=self._as_proposed).SerializeToString())
            transaction.append.SetInParent()
        transaction.uuid = transaction.uuid or stamps.uuid
        transaction.read_version = self._version
        transaction.transaction_properties.update(stamps.properties)
        return transaction


def _exists_already(state: LanceState) -> Conflict:
    return Conflict(
        retryable=True,
        message=f"the table exists already, at version {state.version}: open it and append",
        other_version=state.version,
        other_operation=kind_of(state.transaction).value,
    )


def _too_old(transaction: Transaction, state: LanceState) -> Conflict | None:
    """A read version so old that what came after it is not kept or can't be told."""
    read = transaction.read_version
    if state.version - read > OLDEST_READ_VERSION:
        reason = f"more than {OLDEST_READ_VERSION} versions behind"
    elif read < state.history.since:
        reason = f"versions up to {state.history.since} are gone, what they did can't be told"
    else:
        return None
    return Conflict(
        retryable=True,
        message=f"built on version {read}, but the table is at {state.version}: {reason}; "
        "build it again on the newest",
        other_version=state.version,
    )


def _varint(number: int) -> bytes:
    """An unsigned number as protobuf writes it."""
    out = bytearray()
    while number >> 7:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
