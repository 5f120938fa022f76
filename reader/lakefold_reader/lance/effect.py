"""What a transaction did to the rows of its table, as far as its own text says.

It finds the inserted rows. For other changes it says precisely what is not known, so that no caller takes a
part for the whole. If entries of several kinds share a version, its record says which of them added which of
the new fragments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_reader.lance.versions import kind_in, transaction_of
from lakefold_table.errors import DamagedError
from lakefold_table.lance.combine_transactions import APPEND, INSERT
from lakefold_table.lance.kinds import Kind
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import VersionSummary

NO_ROWS = frozenset(
    {
        Kind.CREATE_INDEX,
        Kind.RESERVE_FRAGMENTS,
        Kind.REWRITE,
        Kind.UPDATE_BASES,
        Kind.UPDATE_CONFIG,
        Kind.UPDATE_MEM_WAL_STATE,
    }
)
"""Operations that leave every row and every value unchanged (a Rewrite only moves rows)."""

NO_INSERTS = frozenset(
    {
        Kind.DATA_OVERLAY,
        Kind.DATA_REPLACEMENT,
        Kind.PROJECT,
        Kind.PROJECT_KEEPING_NULLABILITY,
    }
)
"""Operations that change or remove rows or columns, but insert none."""

COMPARED = frozenset({Kind.MERGE, Kind.MERGE_KEEPING_NULLABILITY})
"""Operations that list all fragments: which are new is known only by comparison with the version
before."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The rows that a version inserted.

    `fragments` hold such rows and nothing else; None: these are not known. `only_inserts`: the version did
    nothing else to rows, values and columns. `compared`: the fragments are those that the version before
    doesn't have. `mixed`: more fragments, which also hold old rows; the new rows are those whose recorded
    version of creation is this version, if the table records that.
    """

    fragments: Sequence[DataFragment] | None
    only_inserts: bool
    compared: bool = False
    mixed: Sequence[DataFragment] = ()

    @property
    def rows(self) -> int | None:
        """How many rows were inserted. Returns None if that is not known without reading data."""
        if self.fragments is None or self.compared or self.mixed:
            return None
        counts = [fragment.physical_rows for fragment in self.fragments]
        deletions = any(fragment.HasField("deletion_file") for fragment in self.fragments)
        return None if deletions or 0 in counts else sum(counts)


def effect_of(summary: VersionSummary) -> Effect:
    """Returns what a version's transaction did to rows.

    Raises `DamagedError` if its record doesn't fit it.
    """
    transaction, kind = transaction_of(summary), kind_in(summary)
    if transaction is None or kind is Kind.UNKNOWN:
        return Effect(None, only_inserts=False)
    if kind is Kind.APPEND:
        return Effect(transaction.append.fragments, only_inserts=True)
    if kind is Kind.OVERWRITE:
        return Effect(transaction.overwrite.fragments, only_inserts=summary.version == 1)
    if kind is Kind.UPDATE:
        return _of_update(summary, transaction.update)
    if kind is Kind.DELETE:
        delete = transaction.delete
        return Effect((), only_inserts=not (delete.updated_fragments or delete.deleted_fragment_ids))
    if kind in NO_ROWS:
        return Effect((), only_inserts=True)
    if kind in NO_INSERTS:
        return Effect((), only_inserts=False)
    return (
        Effect((), only_inserts=False, compared=True)
        if kind in COMPARED
        else Effect(None, only_inserts=False)
    )


def _of_update(summary: VersionSummary, update: Transaction.Update) -> Effect:
    """Returns the effect of an Update on rows.

    The new fragments of an Update that matched no row have only new rows. Those of other Updates mix new rows
    and old ones.

    It may also contain entries of other kinds: the rows of their fragments are new.
    """
    touched = bool(update.removed_fragment_ids or update.updated_fragments)
    if not touched:
        return Effect(update.new_fragments, only_inserts=True)
    record = decode_record(summary.properties) if summary.own else None
    if record is None or not record.operation_of:
        return Effect((), only_inserts=False, mixed=update.new_fragments)
    inserted: list[DataFragment] = []
    mixed: list[DataFragment] = []
    start = 0
    for offset, answer in record.committed.items():
        added = update.new_fragments[start : start + answer.num_fragment_ids]
        (inserted if record.operation_of[offset] in {APPEND, INSERT} else mixed).extend(added)
        start += answer.num_fragment_ids
    if start != len(update.new_fragments):
        count = len(update.new_fragments)
        raise DamagedError(f"version {summary.version} adds {count} fragments, its record lists {start}")
    return Effect(inserted, only_inserts=False, mixed=mixed)
