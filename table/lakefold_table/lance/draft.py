"""The next version of a Lance table while entries are added to it: check, rebase, apply, encode.

Appends are rebased by giving their fragments the next free ids of the table as it is when they are folded.
Many Appends share one version; its transaction is one Append of all their fragments, built on the version
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.format import Accepted, Observed, Publication, Stamps
from lakefold_table.lance.codec import encode_file
from lakefold_table.lance.columns import columns_of
from lakefold_table.lance.conflicts import History, conflict_of
from lakefold_table.lance.creation import creation_fault, first_head, version_to_create
from lakefold_table.lance.features import Flag, has_stable_row_ids, set_flag
from lakefold_table.lance.fragments import Fragments
from lakefold_table.lance.identity import Meanings
from lakefold_table.lance.naming import Scheme
from lakefold_table.lance.numbering import Numbering
from lakefold_table.lance.operations import Kind, kind_of
from lakefold_table.lance.state import MICROS, LanceState
from lakefold_table.lance.validity import envelope_fault, file_fault, new_fragment_fault, read_version_fault
from lakefold_table.marks import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry
    from lakefold_table.lance.columns import Columns
    from lakefold_table.lance.data_files import FileVersion
    from lakefold_table.lance.fragments import Numbered

LIBRARY, LIBRARY_VERSION = "lakefold", "0.1.0"
OLDEST_READ_VERSION = 10_000
"""How many versions a proposal may lie behind (architecture, The log)."""


class LanceDraft:
    """Builds the version after `state` (None: the table's first one)."""

    def __init__(self, state: LanceState | None, observed: Observed) -> None:
        self._state = state
        self._observed = observed
        self._head = Manifest() if state is None else state.head
        self._file_version = None if state is None else state.file_version
        self._columns = columns_of((), None) if state is None else state.columns
        self._scheme = Scheme.V2 if state is None else state.scheme
        self._live = Fragments() if state is None else state.fragments
        self._numbering = self._numbering_of(self._head)
        self._meanings = None if state is None else Meanings(state, observed)
        self._transactions: list[Transaction] = []
        self._added: list[Numbered] = []
        self._as_proposed: list[bytes] = []
        self._new_file_versions: set[FileVersion] = set()
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
        return self._numbering.first_ids

    def finish(self, stamps: Stamps) -> tuple[LanceState, Publication]:
        """The next version, complete with its file."""
        head = self._next_head(stamps)
        fragments = self._live.added(sorted(self._added, key=lambda one: one.id))
        index_section = self._state.index_section if self._state else b""
        transaction = self._transaction(stamps)
        head.tag = transaction.tag
        buffers = encode_file(head, fragments, index_section, transaction)
        state = LanceState(
            head,
            fragments,
            index_section,
            transaction,
            self._next_history(),
            self._columns,
            self._scheme,
            self._file_version,
        )
        return state, Publication(head.version, self._scheme.path(head.version), buffers)

    def _next_history(self) -> History:
        history = self._state.history if self._state else History(0, {})
        return history.extended(self._version + 1, self._kind)

    def _numbering_of(self, head: Manifest) -> Numbering:
        highest = head.max_fragment_id if head.HasField("max_fragment_id") else None
        return Numbering(self._live, highest, head.next_row_id, stable=has_stable_row_ids(head))

    def _refusal(self, entry: Entry, kind: Kind) -> Rejected | Invalid | None:
        envelope = entry.envelope
        if self._state is None:
            return self._creation_refusal(envelope)
        if envelope.HasField("create"):
            return Rejected(_exists_already(self._state))
        if kind is Kind.OVERWRITE:
            return Invalid(
                "an overwrite is folded only to create a table", "this release can't replace its rows"
            )
        return self._rebase_refusal(envelope.lance, kind, self._state)

    def _creation_refusal(self, envelope: Envelope) -> Invalid | None:
        if not envelope.HasField("create"):
            return Invalid(
                f"there is no table at {envelope.table}",
                "create it first: an empty overwrite whose envelope has `create`",
            )
        overwrite = envelope.lance.overwrite
        fault = creation_fault(envelope)
        if fault is not None:
            return fault
        columns = columns_of(overwrite.schema, version_to_create(envelope))
        return self._fragments_fault(
            _overwriting(envelope.lance), columns, {base.id for base in overwrite.initial_bases}
        )

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
            return self._numbering.reserve_fault(transaction.reserve_fragments.num_fragments)
        changed = self._meanings.fault(transaction) if self._meanings else None
        return changed or self._fragments_fault(transaction.append.fragments, self._columns, state.base_ids)

    def _fragments_fault(
        self, fragments: Sequence[DataFragment], columns: Columns, bases: Collection[int]
    ) -> Invalid | None:
        for fragment in fragments:
            fault = new_fragment_fault(fragment, columns, bases) or file_fault(fragment, self._observed.sizes)
            if fault is not None:
                return fault
        return self._numbering.fault(fragments)

    def _create(self, entry: Entry) -> None:
        envelope = entry.envelope
        self._head = first_head(envelope)
        self._file_version = version_to_create(envelope)
        self._columns = columns_of(self._head.fields, self._file_version)
        self._scheme = Scheme.V1 if envelope.create.v1_manifest_paths else Scheme.V2
        self._numbering = self._numbering_of(self._head)

    def _apply(self, transaction: Transaction, kind: Kind) -> Accepted:
        rebased = transaction.read_version < self._version
        if kind is Kind.RESERVE_FRAGMENTS:
            count = transaction.reserve_fragments.num_fragments
            return Accepted(rebased, 0, 0, self._numbering.reserve(count), count)
        fragments = transaction.append.fragments if kind is Kind.APPEND else _overwriting(transaction)
        plain = [fragment.SerializeToString(deterministic=True) for fragment in fragments]
        numbered = self._numbering.number(fragments, plain, self._version + 1)
        self._as_proposed += plain
        self._added += numbered
        self._new_file_versions.update(
            (file.file_major_version, file.file_minor_version) for one in fragments for file in one.files
        )
        rows = sum(one.physical_rows for one in numbered)
        return Accepted(rebased, rows, 0, numbered[0].id if numbered else 0, len(numbered))

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
        if self._numbering.max_id is not None:
            head.max_fragment_id = self._numbering.max_id
        head.next_row_id = self._numbering.next_row_id
        self._note_file_versions(head)
        return head

    def _note_file_versions(self, head: Manifest) -> None:
        """Says so where a new file has another version than the table's own (format facts, section 4.4)."""
        if self._columns.legacy or not self._new_file_versions:
            return
        if self._file_version is None:
            self._file_version = min(self._new_file_versions)
        if not head.data_format.version:
            head.data_format.file_format = "lance"
            head.data_format.version = "{}.{}".format(*self._file_version)
        if self._new_file_versions != {self._file_version}:
            set_flag(head, Flag.MIXED_FILE_VERSIONS)

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


def _overwriting(transaction: Transaction) -> list[DataFragment]:
    """The fragments of an Overwrite, which get new ids whatever they bring (format facts, section 5.6)."""
    fragments = []
    for proposed in transaction.overwrite.fragments:
        fragment = DataFragment()
        fragment.CopyFrom(proposed)
        fragment.ClearField("id")
        fragments.append(fragment)
    return fragments


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
