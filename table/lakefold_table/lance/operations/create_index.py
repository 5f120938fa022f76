"""CreateIndex: adds, replaces and removes indices (Lance facts 6.6 and 10.9).

The uuid identifies an entry of the index section. A new entry replaces the entry with its uuid, not an entry
with its name; several entries with the same name are segments of an index. Two indices describe the table
itself. This operation creates the index of the write-ahead log (`__lance_mem_wal`). The fragment-reuse index
is created by a compaction, and this operation trims it; pylance has no Python function for that, so this
follows its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.indexing import complete_entries, reuse
from lakefold_table.lance.indexing.index_entries import entry_fault, overlap_fault, paths_of, time_fault
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL, coverage, covering
from lakefold_table.lance.operations.mem_wal import details_of, with_generations
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A new entry as it is stored in the version, and the existing entry that it replaces."""

    entry: IndexMetadata
    replaces: IndexMetadata | None = None


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: sizes of new indices' files, and fragment-reuse details that are files."""
    if state is None:
        return Requirements()
    create = envelope.lance.create_index
    sizes = frozenset(path for index in create.new_indices for path in paths_of(index))
    reuse_entries = [
        entry for entry in (*create.new_indices, *create.removed_indices) if entry.name == FRAGMENT_REUSE
    ]
    omitted = (complete_entries.needs_of(state.schema, index) for index in create.new_indices)
    return Requirements.all_of(
        [Requirements(sizes=sizes), *omitted, *(reuse.needs_of(state.head, entry) for entry in reuse_entries)]
    )


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Rejected | Invalid:
    """Returns a change with the remaining indices first and the new indices last.

    Raises `DamagedError` if the table's own index section can't be read.
    """
    _ = table.indices
    fitted: list[_Fitted] = []
    try:
        for proposed in proposal.transaction.create_index.new_indices:
            index = complete_entries.completed(table.head.fields, proposed, table.fetched)
            if isinstance(index, Invalid):
                return index
            result = (
                entry_fault(table, index, proposal.transaction.read_version)
                or _fields_fault(table, proposal, index)
                or _fit(table, proposal, index)
            )
            if not isinstance(result, _Fitted):
                return result
            fitted.append(result)
        return _removed_fault(table, proposal, fitted) or _made(table, proposal, fitted)
    except DamagedError as error:
        return Invalid(
            f"a fragment-reuse index can't be read: {error.reason}",
            "write its details before you send the transaction",
        )


def _made(table: VersionBuilder, proposal: Proposal, fitted: list[_Fitted]) -> TableChange | Invalid:
    create = proposal.transaction.create_index
    dropped = {entry.uuid.uuid for entry in (*create.removed_indices, *create.new_indices)}
    dropped.update(new.replaces.uuid.uuid for new in fitted if new.replaces is not None)
    remaining = [index for index in table.indices if index.uuid.uuid not in dropped]
    indices = (*remaining, *(new.entry for new in fitted))
    remapped = reuse.remapped(table.head, indices, table.content)
    fault = overlap_fault(remapped) or reuse.dropped_fault(table.head, table.indices, remapped, table.content)
    return fault or TableChange(_rebased(proposal.transaction, fitted), indices=indices)


def _fields_fault(
    table: VersionBuilder, proposal: Proposal, index: IndexMetadata
) -> Rejected | Invalid | None:
    """Returns a refusal if the index is on fields that the table doesn't have, or no longer has."""
    missing = sorted(set(index.fields) - {field.id for field in table.head.fields})
    if not missing:
        return None
    message = f"index {index.name!r} is on field ids {some(missing)}, which the table doesn't have"
    if _is_stale(table, proposal):
        return Rejected(_conflict(message, field_ids=tuple(missing)))
    return Invalid(message, "open the table and use its field ids")


def _fit(table: VersionBuilder, proposal: Proposal, index: IndexMetadata) -> _Fitted | Invalid:
    """Returns the entry adapted to the versions after the proposal's read version."""
    if index.name == FRAGMENT_REUSE:
        return _trimmed(table, proposal, index)
    if index.name == MEM_WAL:
        return _initialized(table, proposal, index)
    stale = Bitmap(proposal.rebase.uncovers.get(index.uuid.uuid.hex(), ()))
    covered = coverage(index)
    if covered is None or not stale:
        return _Fitted(index)
    before = covering(index, covered - stale)
    (remapped_entry, *_) = reuse.remapped(table.head, (before, *table.indices), table.content)
    return _Fitted(covering(index, (coverage(remapped_entry) or Bitmap()) - stale))


def _trimmed(table: VersionBuilder, proposal: Proposal, index: IndexMetadata) -> _Fitted | Invalid:
    """Returns the table's fragment-reuse index without the versions that the proposal drops.

    Versions that were added since the read version stay.
    """
    current = reuse.reuse_index(table.indices)
    before = reuse.reuse_index(proposal.transaction.create_index.removed_indices)
    if current is None or before is None:
        return Invalid(f"{FRAGMENT_REUSE} can't be added by itself", "send it with a compaction (Rewrite)")
    stored, read, proposed = (
        reuse.versions_of(table.head, version, table.content) for version in (current, before, index)
    )
    numbers = {version.dataset_version for version in read}
    proposed_numbers = {version.dataset_version for version in proposed}
    if not proposed_numbers <= numbers:
        return Invalid(
            f"{FRAGMENT_REUSE} has versions that the index it replaces does not have", "only drop versions"
        )
    remaining = [
        version
        for version in stored
        if version.dataset_version in proposed_numbers or version.dataset_version not in numbers
    ]
    entry = index if remaining == list(proposed) else reuse.rewritten_by(index, remaining)
    return _Fitted(entry, current)


def _initialized(table: VersionBuilder, proposal: Proposal, index: IndexMetadata) -> _Fitted | Invalid:
    """Returns the index of the write-ahead log, with the generations merged since the read version."""
    details = details_of(index)
    if isinstance(details, Invalid):
        return details
    removed = proposal.transaction.create_index.removed_indices
    current = next((entry for entry in table.indices if entry.name == MEM_WAL), None)
    if current is None or any(entry.uuid == current.uuid for entry in removed):
        return _Fitted(index)
    if not proposal.rebase.mem_wal or all(entry.name != MEM_WAL for entry in removed):
        return Invalid(
            "the table's write-ahead log is initialized already", f"drop its index {MEM_WAL} first"
        )
    merged = details_of(current)
    if isinstance(merged, Invalid):
        return merged
    return _Fitted(with_generations(index, details, merged.compacted_sstables), current)


def _removed_fault(
    table: VersionBuilder, proposal: Proposal, fitted: list[_Fitted]
) -> Rejected | Invalid | None:
    """Returns a refusal if an index that is to be removed doesn't exist.

    If another writer dropped it since the read version, a proposal that only drops indices still succeeds.
    A CreateIndex that also adds indices is refused, since it was built on the missing index.
    """
    create = proposal.transaction.create_index
    fault = next(filter(None, map(time_fault, create.removed_indices)), None)
    if fault is not None:
        return fault
    existing = {index.uuid.uuid for index in table.indices}
    replaced = {new.entry.name for new in fitted if new.replaces is not None}
    missing = {
        entry.name
        for entry in create.removed_indices
        if entry.uuid.uuid not in existing and entry.name not in replaced
    }
    if not missing:
        return None
    message = f"indices {some(missing)} are to be removed but don't exist"
    if not _is_stale(table, proposal):
        return Invalid(message, "name the uuids of the version that was read")
    if not create.new_indices:
        return None
    return Rejected(_conflict(message, keys=tuple(sorted(missing))))


def _rebased(transaction: Transaction, fitted: list[_Fitted]) -> Transaction:
    """Returns the transaction as it is stored in the version; the same object if nothing was adapted."""
    proposed = transaction.create_index.new_indices
    if all(new.entry is index for new, index in zip(fitted, proposed, strict=True)):
        return transaction
    rebased = Transaction()
    rebased.CopyFrom(transaction)
    replaced = {new.replaces.name: new.replaces for new in fitted if new.replaces is not None}
    for index in rebased.create_index.removed_indices:
        if index.name in replaced:
            index.CopyFrom(replaced[index.name])
    del rebased.create_index.new_indices[:]
    rebased.create_index.new_indices.extend(new.entry for new in fitted)
    return rebased


def _conflict(message: str, field_ids: tuple[int, ...] = (), keys: tuple[str, ...] = ()) -> Conflict:
    return Conflict(
        retryable=True,
        message=f"{message} any more; build it again on the newest version",
        field_ids=field_ids,
        keys=keys,
    )


def _is_stale(table: VersionBuilder, proposal: Proposal) -> bool:
    return proposal.transaction.read_version < table.version - 1
