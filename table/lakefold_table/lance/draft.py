"""The next version of a Lance table while entries are added to it: check, rebase, apply, encode.

Entries are folded in order onto the table. Those that may share a version become a single
transaction, built on the version before.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Conflict, Entry, Invalid, Rejected
from lakefold_table.format import ALONE, Accepted, CommitMetadata, CopyFile, Fetched, Publication
from lakefold_table.lance.change import NOTHING, Proposal, TableChange
from lakefold_table.lance.combine_transactions import APPEND, combined, did, grouping_rule_after
from lakefold_table.lance.conflicts import OLDEST_READ_VERSION, History, Rebase
from lakefold_table.lance.conflicts.footprint import RowsTouched, name_of_file
from lakefold_table.lance.conflicts.rules import DETAILED
from lakefold_table.lance.conflicts.transaction_footprint import PLAIN, footprint_of
from lakefold_table.lance.creation import creation_fault, first_head, version_to_create
from lakefold_table.lance.identity import NONE, Meanings
from lakefold_table.lance.invariants import check
from lakefold_table.lance.kinds import Kind, kind_of
from lakefold_table.lance.manifests.codec import assemble_file, encode_transaction
from lakefold_table.lance.manifests.features import Flag, flags_of, set_flag
from lakefold_table.lance.manifests.naming import Scheme, transaction_name, transaction_path
from lakefold_table.lance.new_files import may_be_known_by_files, new_file_keys, read_of
from lakefold_table.lance.old_releases import note_data_format
from lakefold_table.lance.operations import carried_rows, clone, overwrite, read_rows
from lakefold_table.lance.operations.carried_rows import CarriedRows
from lakefold_table.lance.operations.rules import RULES
from lakefold_table.lance.proposal import LanceProposal, changes_nothing, proposal_of
from lakefold_table.lance.proposal_footprint import (
    affected_rows,
    known_version,
    proposed_footprint,
    published_footprint,
)
from lakefold_table.lance.state import MICROS, LanceState
from lakefold_table.lance.validity import envelope_fault, named_fragments_fault, read_version_fault
from lakefold_table.lance.verdicts import COMPATIBLE
from lakefold_table.lance.version_builder import VersionBuilder
from lakefold_table.lance.version_links import restored_by
from lakefold_table.marks.marks import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.conflicts import Footprint
    from lakefold_table.lance.manifests.packed_append import Packed
    from lakefold_table.lance.manifests.plain_append import Plain

LIBRARY, LIBRARY_VERSION = "lakefold", "0.1.0"


class LanceDraft:
    """Builds the version after `state` (None: the table's first version).

    `transaction_file`: the version's transaction is also written to a file of its own, which the manifest
    names. Lance clients before 14 find it only there.
    """

    def __init__(
        self,
        state: LanceState | None,
        fetched: Fetched,
        entries: Sequence[Entry] = (),
        *,
        transaction_file: bool = True,
    ) -> None:
        self._transaction_file = transaction_file
        self._state = state
        self._scheme = Scheme.V2 if state is None else state.scheme
        self._table = VersionBuilder(state, fetched)
        self._table.look_up([key for entry in entries for key in new_file_keys(entry)])
        self._meanings = None if state is None else Meanings(state, fetched)
        self._transactions: list[Transaction] = []
        self._history = History(0, {}, 0) if state is None else state.history
        self._done: dict[Kind, RowsTouched] = {}
        self._followed: dict[int, bool] = {}
        self._grouping_rule = grouping_rule_after(state)
        self._shares: str | None = None
        self._ours: Footprint | None = None
        self._begins_clone = False
        self._as_sent: Transaction | None = None
        self._merged: Transaction | None = None
        self._following: History | None = None

    @property
    def _base(self) -> int:
        """The version that this version is built on, 0 if the table doesn't exist.

        A clone is built on the source's version, whose number it keeps.
        """
        return self._table.version if self._begins_clone else self._table.version - 1

    def add(self, entry: Entry) -> Accepted | Rejected | Invalid | None:
        """Checks the entry and adds it. A refused entry changes nothing.

        Returns None if it can't share a version with those that were added before.
        """
        proposal = proposal_of(entry)
        if proposal.plain is not None:
            accepted = self._add_plain(entry, proposal.plain)
            if accepted is not None:
                return accepted
        self._table.sizes = self._table.fetched.sizes
        if proposal.packed is not None and self._transactions:
            self._table.sizes = _with_listed(self._table.fetched, entry, proposal.packed)
            proposal = proposal.whole()
        envelope = proposal.envelope
        kind = kind_of(envelope.lance)
        fault = envelope_fault(envelope, kind)
        if fault is not None:
            return fault
        if self._state is not None:
            change = self._next(entry, proposal, kind, self._state)
        else:
            change = self._clone(envelope) if kind is Kind.CLONE else self._creation(envelope)
        if not isinstance(change, TableChange):
            return change
        fault = self._table.files_fault(change) or self._rewritten_fault(entry, change)
        if fault is not None:
            return fault
        if not self._may_join(entry):
            return None
        rebased = 0 < envelope.lance.read_version < self._base
        rows, first, count = self._table.take(change)
        self._join(change.transaction)
        self._as_sent = proposal.as_sent
        ours = self._ours if change.transaction is envelope.lance else None
        if not changes_nothing(change.transaction):
            self._remember(ours or footprint_of(change.transaction))
        added = rows if change.rows_added is None else change.rows_added
        return Accepted(rebased, added, change.rows_deleted or 0, first, count, did(change.transaction))

    def forget(self, app_id: str) -> bool:
        """See `lakefold_table.format.Draft.forget`. A Lance table records batches in the marks only."""
        del app_id
        return False

    def _add_plain(self, entry: Entry, plain: Plain) -> Accepted | None:
        """Adds a usual Append, as `add` does. Returns None if it needs the full check."""
        read = plain.read_version
        if not (self._follows(read) and self._table.takes(plain) and self._may_join(entry)):
            return None
        if self._history.rewritten_since(read) and self._rewritten(entry, read, [plain.key]) is not None:
            return None
        number = self._table.take_plain(plain)
        self._append(proposal_of(entry).transaction)
        if Kind.APPEND not in self._done:
            self._remember(PLAIN[Kind.APPEND])
        return Accepted(read < self._base, plain.rows, 0, number, 1, APPEND)

    def _rewritten_fault(self, entry: Entry, change: TableChange) -> Invalid | None:
        """Refuses an entry without app id whose files a Rewrite has replaced: it was folded before."""
        read = read_of(entry) or self._base
        if not self._history.rewritten_since(read):
            return None
        if change.packed is None:
            names: Iterable[str] = (
                name_of_file(file) for fragment in change.added for file in fragment.files
            )
        else:
            names = change.packed.names()
        replaced = self._rewritten(entry, read, names)
        if replaced is None:
            return None
        return Invalid(
            f"data file {replaced[0]} was in the table until the Rewrite of version {replaced[1]} "
            "replaced it, so its rows would be in the table twice",
            "if this was sent before, it was folded then: do nothing; else write its rows into new files",
        )

    def _rewritten(self, entry: Entry, read: int, names: Iterable[str]) -> tuple[str, int] | None:
        """Returns the first of an entry's files that a later Rewrite replaced, and its version, or None."""
        if not may_be_known_by_files(entry):
            return None
        return self._history.rewritten(names, read)

    def _follows(self, read: int) -> bool:
        """Returns whether nothing conflicts with an Append that was built on this version.

        The answer doesn't change while entries are added that share this version.
        """
        follows = self._followed.get(read)
        if follows is None:
            state = self._state
            follows = self._followed[read] = (
                state is not None
                and 0 < read <= state.version
                and self._history.verdict(PLAIN[Kind.APPEND], read) is COMPATIBLE
                and _too_old(read, state) is None
                and read >= state.history.schema_since
            )
        return follows

    def _may_join(self, entry: Entry) -> bool:
        """Returns whether the entry shares the version with those that were added before."""
        name = self._grouping_rule(entry)
        if self._shares is None:
            self._shares = name
        return not self._transactions or name == self._shares != ALONE

    def _join(self, transaction: Transaction) -> None:
        """Adds the transaction of an entry. One that changes nothing is left out if there is any other."""
        if not self._transactions or not changes_nothing(transaction):
            self._append(transaction)

    def _append(self, transaction: Transaction) -> None:
        if len(self._transactions) == 1 and changes_nothing(self._transactions[0]):
            self._transactions.clear()
        self._transactions.append(transaction)
        self._merged = self._following = None

    @property
    def version(self) -> int:
        """The number of the next version, as far as known: a clone keeps the source's."""
        return self._table.version

    @property
    def restored(self) -> int | None:
        """The version that the entry added last restores, None if it is not a Restore."""
        return restored_by(self._transactions[-1]) if self._transactions else None

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata as the entries leave it, before any mark is written."""
        return self._table.head.table_metadata

    @property
    def operations(self) -> tuple[int, Mapping[str, int]]:
        """For each kind of operation the newest version of that kind, including this next version."""
        history = self._next_history()
        return history.since, {kind.value: version for kind, version in history.latest.items()}

    @property
    def first_ids(self) -> tuple[int, int]:
        """The first fragment id and the first row id that this version may give."""
        return self._table.numbering.first_ids

    def finish(self, commit: CommitMetadata) -> tuple[LanceState, Publication]:
        """Returns the next version, complete with its files.

        Raises `StopError` or `DamagedError` if it would break an invariant (see `invariants`).
        """
        table = self._table
        if table.settle_indices():
            self._following = None
        head = self._next_head(commit)
        transaction = self._transaction(commit)
        head.tag = transaction.tag
        fragments = table.fragments()
        head.reader_feature_flags, head.writer_feature_flags = flags_of(
            head, deletions=fragments.has_deletions
        )
        packed = table.packed if len(self._transactions) == 1 else None
        encoded = encode_transaction(transaction, packed)
        as_sent = [] if self._as_sent is None else encode_transaction(self._as_sent)
        copy = None
        if self._transaction_file:
            shown = as_sent or encoded
            head.transaction_file = transaction_name(transaction.read_version, shown)
            copy = CopyFile(transaction_path(head.transaction_file), shown)
        buffers = assemble_file(head, fragments, table.index_section, encoded, b"".join(as_sent))
        state = LanceState(
            head,
            fragments,
            table.index_section,
            _remembered(transaction),
            self._next_history(),
            table.columns,
            self._scheme,
            table.file_version,
            table.live_files(fragments),
        )
        check(self._state, state)
        path = self._scheme.path(head.version)
        return state, Publication(head.version, path, buffers, tuple(table.before.values()), copy)

    def _remember(self, footprint: Footprint) -> None:
        """Remembers what this entry did, for the entries after it in the same version.

        The Deletes are remembered as a single one, and so are the Updates of rows: the next entry is compared
        with two operations, however many there are.
        """
        if self._state is None or footprint.kind not in {Kind.APPEND, Kind.DELETE, Kind.UPDATE}:
            self._history = self._history.extended(self._table.version, footprint)
            self._followed.clear()
            return
        before = self._done.get(footprint.kind)
        if before is not None and footprint.kind not in DETAILED:
            return
        if before is None:
            self._done[footprint.kind] = RowsTouched(footprint)
        else:
            before.add(footprint)
        self._history = self._state.history
        for touched in self._done.values():
            self._history = self._history.extended(self._table.version, touched.footprint)

    def _next_history(self) -> History:
        """Returns what is known of past versions after this version, with the entries added so far."""
        if self._following is None:
            version = self._table.version
            if self._begins_clone:
                return History(version, {}, version)
            history = self._state.history if self._state else History(0, {}, 0)
            did = published_footprint(self._together(), self._table.index_section)
            self._following = history.extended(version, did)
        return self._following

    def _creation(self, envelope: Envelope) -> TableChange | Rejected | Invalid:
        """Returns the first version of a table that doesn't exist."""
        if not envelope.HasField("create") and not _may_create(envelope):
            if envelope.branch:
                return Invalid(
                    f"the table at {envelope.table} has no branch {envelope.branch}",
                    "create it with a Clone that names it, or send this to an existing branch",
                )
            return Invalid(
                f"there is no table at {envelope.table}",
                "create it first: an empty overwrite whose envelope has `create`",
            )
        fault = creation_fault(envelope, self._table.fetched)
        if fault is not None:
            return fault
        empty = VersionBuilder(None, self._table.fetched)
        empty.create(first_head(envelope), version_to_create(envelope))
        change = overwrite.create(empty, Proposal(envelope))
        if isinstance(change, TableChange):
            self._table = empty
            self._scheme = Scheme.V1 if envelope.create.v1_manifest_paths else Scheme.V2
        return change

    def _clone(self, envelope: Envelope) -> TableChange | Invalid:
        """Returns the first version of a table that begins as another table's version."""
        cloned = clone.begin(envelope, self._table.fetched)
        if isinstance(cloned, Invalid):
            return cloned
        self._table = VersionBuilder(cloned, self._table.fetched)
        self._table.version = cloned.version
        self._begins_clone = True
        return TableChange(envelope.lance, rows_added=cloned.rows)

    def _next(
        self, entry: Entry, proposed: LanceProposal, kind: Kind, state: LanceState
    ) -> TableChange | Rejected | Invalid:
        """Returns what a proposal built on an older version changes in this version."""
        envelope, packed = proposed.envelope, proposed.packed
        if envelope.HasField("create"):
            return Rejected(_exists_already(state))
        if kind is Kind.CLONE:
            return RULES[kind].change(self._table, Proposal(envelope))
        transaction = envelope.lance
        fault = read_version_fault(transaction, kind, state.version) or named_fragments_fault(
            transaction, self._table.numbering.first_ids[0]
        )
        if fault is not None:
            return fault
        rows = affected_rows(envelope)
        if isinstance(rows, Invalid):
            return rows
        ours = self._ours = proposed_footprint(envelope, rows, state.head)
        read = known_version(transaction) or state.version
        plain = Proposal(envelope, rows, packed=packed, sizes=self._table.fetched.listed.get(entry.position))
        moved = self._followed_rows(plain, ours, read)
        landed = moved.landed if isinstance(moved, CarriedRows) else None
        verdict = self._history.verdict(ours, read, landed)
        if isinstance(verdict, Conflict):
            return Rejected(verdict)
        late = _too_old(read, state)
        if late is not None:
            return Rejected(late)
        if envelope.reads.rows:
            changed = read_rows.fault(self._table, envelope, self._history.rewrites(read))
            if changed is not None:
                return changed
        rebase = verdict if isinstance(verdict, Rebase) else NOTHING
        change = self._change(kind, replace(plain, rebase=rebase), moved, read)
        if isinstance(change, Rejected) and (rebase.merges or rebase.carries):
            return Rejected(self._history.named(change.conflict, ours, read))
        return change

    def _followed_rows(
        self, proposal: Proposal, ours: Footprint, read: int
    ) -> CarriedRows | Rejected | Invalid | None:
        """Returns where Rewrites since the read version moved the rows of a proposal; None if none did."""
        rewrites = self._history.carried(ours, read)
        return carried_rows.followed(self._table, proposal, rewrites) if rewrites else None

    def _change(
        self, kind: Kind, proposal: Proposal, moved: CarriedRows | Rejected | Invalid | None, read: int
    ) -> TableChange | Rejected | Invalid:
        """Returns what a proposal changes that doesn't conflict with the versions since it was built."""
        if isinstance(moved, Rejected | Invalid):
            return moved
        transaction, packed = proposal.transaction, proposal.packed
        sample = transaction if packed is None else packed.sample_of(transaction)
        is_packed = packed is not None
        dropped = self._meanings.dropped(sample, read, packed=is_packed) if self._meanings else NONE
        if isinstance(dropped, Rejected):
            return dropped
        if self._meanings and proposal.envelope.reads.columns:
            changed = self._meanings.changed(read)
            if changed is not None:
                return changed
        complete: Proposal | Rejected | Invalid = replace(proposal, dropped=dropped)
        if moved is not None:
            complete = carried_rows.carried(self._table, replace(proposal, dropped=dropped), moved)
        return RULES[kind].change(self._table, complete) if isinstance(complete, Proposal) else complete

    def _next_head(self, commit: CommitMetadata) -> Manifest:
        head = Manifest()
        head.CopyFrom(self._table.head)
        head.version = self._table.version
        head.timestamp.seconds, head.timestamp.nanos = (
            commit.time_us // MICROS,
            commit.time_us % MICROS * 1000,
        )
        for key in [key for key in head.table_metadata if key.startswith(PREFIX)]:
            del head.table_metadata[key]
        head.table_metadata.update(commit.metadata)
        head.writer_version.Clear()
        head.writer_version.library, head.writer_version.version = LIBRARY, LIBRARY_VERSION
        head.ClearField("transaction_file")
        head.ClearField("transaction_section_before_14")
        numbering = self._table.numbering
        if numbering.max_id is not None:
            head.max_fragment_id = numbering.max_id
        head.next_row_id = numbering.next_row_id
        self._note_file_versions(head)
        note_data_format(head, legacy=self._table.columns.legacy)
        return head

    def _note_file_versions(self, head: Manifest) -> None:
        """Sets flag 256 if a new file has another version than the table's own (Lance facts 4.5 and 9.4)."""
        table = self._table
        if table.columns.legacy or not table.new_file_versions:
            return
        if table.file_version is None:
            table.file_version = min(table.new_file_versions)
        if not head.data_format.version:
            head.data_format.file_format = "lance"
            head.data_format.version = "{}.{}".format(*table.file_version)
        if table.new_file_versions != {table.file_version}:
            set_flag(head, Flag.MIXED_FILE_VERSIONS)

    def _transaction(self, commit: CommitMetadata) -> Transaction:
        """Returns the version's own transaction."""
        transaction = self._together()
        transaction.uuid = transaction.uuid or commit.uuid
        transaction.read_version = self._base
        transaction.transaction_properties.update(commit.properties)
        return transaction

    def _together(self) -> Transaction:
        """Returns a transaction for all entries added so far."""
        if self._merged is None:
            parts, proposed, packed = self._transactions, self._table.proposed, self._table.packed
            if packed is not None and len(parts) > 1:
                parts = [packed.whole(parts[0]), *parts[1:]]
                proposed = [*chain.from_iterable(packed.records()), *proposed]
            self._merged = combined(parts, proposed, self._table.replaced)
        return self._merged


def _may_create(envelope: Envelope) -> bool:
    """Returns whether a proposal without `create` may create a table.

    Only an Overwrite of any version may.

    pylance's own transactions contain no more if they create a table (Lance fact 5.7).
    """
    transaction = envelope.lance
    return transaction.HasField("overwrite") and not transaction.read_version and not envelope.branch


def _remembered(transaction: Transaction) -> Transaction:
    """Returns a version's transaction as its state keeps it: an Append without its fragments."""
    if not transaction.HasField("append"):
        return transaction
    transaction.append.ClearField("fragments")
    # Anew, since what is cleared keeps its memory.
    return Transaction.FromString(transaction.SerializeToString(deterministic=True))


def _exists_already(state: LanceState) -> Conflict:
    return Conflict(
        retryable=True,
        message=f"the table exists already, at version {state.version}: open it and append",
        other_version=state.version,
        other_operation=kind_of(state.transaction).value,
    )


def _too_old(read: int, state: LanceState) -> Conflict | None:
    """Returns a conflict if what came after this read version is no longer known, or None."""
    if state.version - read > OLDEST_READ_VERSION:
        reason = f"more than {OLDEST_READ_VERSION} versions behind"
    elif read < state.history.since:
        reason = f"versions up to {state.history.since} are gone, so what they changed is not known"
    else:
        return None
    return Conflict(
        retryable=True,
        message=f"built on version {read}, but the table is at {state.version}: {reason}; "
        "build it again on the newest",
        other_version=state.version,
    )


def _with_listed(fetched: Fetched, entry: Entry, packed: Packed) -> Mapping[str, int | None]:
    """Returns the sizes that were fetched, with those of the entry's files, which were listed in portions."""
    listed = fetched.listed.get(entry.position)
    if listed is None:
        return fetched.sizes
    sizes = zip(chain.from_iterable(packed.paths()), listed, strict=True)
    return {**fetched.sizes, **{path: None if size < 0 else size for path, size in sizes}}
