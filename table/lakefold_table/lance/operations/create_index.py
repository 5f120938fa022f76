"""CreateIndex: indices that are added, replaced and dropped (Lance facts 6.6 and 10.9).

An entry is known by its uuid: one that is added again under its uuid is replaced, one of the same name is
not; several entries of one name are segments of one index. Two indices speak of the table itself. The one of
the write-ahead log (`__lance_mem_wal`) is made by this operation. The fragment-reuse index comes with a
compaction; this operation trims it, which pylance can't be asked for from Python (source).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.indexing import left_out, reuse
from lakefold_table.lance.indexing.index_entries import entry_fault, overlap_fault, paths_of, time_fault
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL, coverage, covering
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.operations.mem_wal import details_of, with_generations
from lakefold_table.lance.rows.bitmaps import Bitmap
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

OWN = frozenset({FRAGMENT_REUSE, MEM_WAL})


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A new entry as it stands in the version, and the one of the table's own that it takes the place of."""

    entry: IndexMetadata
    replaces: IndexMetadata | None = None


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """The sizes of the new indices' files, and the details of fragment-reuse indices that lie in files."""
    if state is None:
        return Requirements()
    create = envelope.lance.create_index
    sizes = frozenset(path for index in create.new_indices for path in paths_of(index))
    told = [one for one in (*create.new_indices, *create.removed_indices) if one.name == FRAGMENT_REUSE]
    unsaid = (left_out.needs_of(state.schema, index) for index in create.new_indices)
    return Requirements.all_of(
        [Requirements(sizes=sizes), *unsaid, *(reuse.needs_of(state.head, one) for one in told)]
    )


def change(table: VersionBuilder, proposal: Proposal) -> Change | Rejected | Invalid:
    """The indices without those removed, and with the new ones last.

    Raises `DamagedError` where the table's own can't be read.
    """
    _ = table.indices
    fitted: list[_Fitted] = []
    try:
        for proposed in proposal.transaction.create_index.new_indices:
            index = left_out.completed(table.head.fields, proposed, table.observed)
            if isinstance(index, Invalid):
                return index
            found = (
                entry_fault(table, index, proposal.transaction.read_version)
                or _fields_fault(table, proposal, index)
                or _fit(table, proposal, index)
            )
            if not isinstance(found, _Fitted):
                return found
            fitted.append(found)
        return _removed_fault(table, proposal, fitted) or _made(table, proposal, fitted)
    except DamagedError as error:
        return Invalid(
            f"a fragment-reuse index can't be read: {error.reason}", "write its details before it is sent"
        )


def _made(table: VersionBuilder, proposal: Proposal, fitted: list[_Fitted]) -> Change | Invalid:
    create = proposal.transaction.create_index
    gone = {one.uuid.uuid for one in (*create.removed_indices, *create.new_indices)}
    gone.update(one.replaces.uuid.uuid for one in fitted if one.replaces is not None)
    kept = [index for index in table.indices if index.uuid.uuid not in gone]
    indices = (*kept, *(one.entry for one in fitted))
    read = reuse.remapped(table.head, indices, table.content)
    fault = overlap_fault(read) or reuse.dropped_fault(table.head, table.indices, read, table.content)
    return fault or Change(_rebased(proposal.transaction, fitted), indices=indices)


def _fields_fault(
    table: VersionBuilder, proposal: Proposal, index: IndexMetadata
) -> Rejected | Invalid | None:
    """Where the index is on fields that the table doesn't have, or not any more."""
    missing = sorted(set(index.fields) - {field.id for field in table.head.fields})
    if not missing:
        return None
    message = f"index {index.name!r} is on field ids {some(missing)}, which the table doesn't have"
    if _is_stale(table, proposal):
        return Rejected(_again(message, field_ids=tuple(missing)))
    return Invalid(message, "open the table and take its field ids")


def _fit(table: VersionBuilder, proposal: Proposal, index: IndexMetadata) -> _Fitted | Invalid:
    """The entry fitted to what came after its read version."""
    if index.name == FRAGMENT_REUSE:
        return _trimmed(table, proposal, index)
    if index.name == MEM_WAL:
        return _initialized(table, proposal, index)
    stale = Bitmap(proposal.rebase.uncovers.get(index.uuid.uuid.hex(), ()))
    covered = coverage(index)
    if covered is None or not stale:
        return _Fitted(index)
    before = covering(index, covered - stale)
    (followed, *_) = reuse.remapped(table.head, (before, *table.indices), table.content)
    return _Fitted(covering(index, (coverage(followed) or Bitmap()) - stale))


def _trimmed(table: VersionBuilder, proposal: Proposal, index: IndexMetadata) -> _Fitted | Invalid:
    """The table's fragment-reuse index without what the proposal drops of it; what was added since stays."""
    current = reuse.reuse_index(table.indices)
    before = reuse.reuse_index(proposal.transaction.create_index.removed_indices)
    if current is None or before is None:
        return Invalid(f"{FRAGMENT_REUSE} can't be added by itself", "it comes with a compaction (Rewrite)")
    there, was, now = (reuse.versions_of(table.head, one, table.content) for one in (current, before, index))
    numbers = {one.dataset_version for one in was}
    left = {one.dataset_version for one in now}
    if not left <= numbers:
        return Invalid(f"{FRAGMENT_REUSE} tells of more than the one it replaces", "only drop versions of it")
    kept = [one for one in there if one.dataset_version in left or one.dataset_version not in numbers]
    entry = index if kept == list(now) else reuse.rewritten_by(index, kept)
    return _Fitted(entry, current)


def _initialized(table: VersionBuilder, proposal: Proposal, index: IndexMetadata) -> _Fitted | Invalid:
    """The index of the write-ahead log; what was merged since its read version is taken in."""
    details = details_of(index)
    if isinstance(details, Invalid):
        return details
    removed = proposal.transaction.create_index.removed_indices
    current = next((one for one in table.indices if one.name == MEM_WAL), None)
    if current is None or any(one.uuid == current.uuid for one in removed):
        return _Fitted(index)
    if not proposal.rebase.mem_wal or all(one.name != MEM_WAL for one in removed):
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
    """Where an index that is to go isn't there.

    Somebody else may have dropped it since, which is as good for a proposal that does nothing but drop; one
    that replaces it was built on what isn't there any more.
    """
    create = proposal.transaction.create_index
    late = next(filter(None, map(time_fault, create.removed_indices)), None)
    if late is not None:
        return late
    there = {index.uuid.uuid for index in table.indices}
    replaced = {one.entry.name for one in fitted if one.replaces is not None}
    missing = {
        one.name for one in create.removed_indices if one.uuid.uuid not in there and one.name not in replaced
    }
    if not missing:
        return None
    message = f"indices {some(missing)} are to be removed and aren't there"
    if not _is_stale(table, proposal):
        return Invalid(message, "name the uuids of the version that was read")
    if not create.new_indices:
        return None
    return Rejected(_again(message, keys=tuple(sorted(missing))))


def _rebased(transaction: Transaction, fitted: list[_Fitted]) -> Transaction:
    """The transaction as it stands in the version; the same where nothing had to be fitted."""
    proposed = transaction.create_index.new_indices
    if all(one.entry is index for one, index in zip(fitted, proposed, strict=True)):
        return transaction
    rebased = Transaction()
    rebased.CopyFrom(transaction)
    replaced = {one.replaces.name: one.replaces for one in fitted if one.replaces is not None}
    for index in rebased.create_index.removed_indices:
        if index.name in replaced:
            index.CopyFrom(replaced[index.name])
    del rebased.create_index.new_indices[:]
    rebased.create_index.new_indices.extend(one.entry for one in fitted)
    return rebased


def _again(message: str, field_ids: tuple[int, ...] = (), keys: tuple[str, ...] = ()) -> Conflict:
    return Conflict(
        retryable=True,
        message=f"{message} any more; build it again on the newest version",
        field_ids=field_ids,
        keys=keys,
    )


def _is_stale(table: VersionBuilder, proposal: Proposal) -> bool:
    return proposal.transaction.read_version < table.version - 1
