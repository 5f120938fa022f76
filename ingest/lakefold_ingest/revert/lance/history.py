"""The versions of a Lance table as a reader of them knows them: rows that they changed, and where rows are.

Nothing but manifests, transactions and deletion files is read, except for the values of rows that are asked
for. A Rewrite of which it isn't known whether it kept the order of its rows is followed by the ids of rows,
or by their values: equal rows are interchangeable.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from lakefold_ingest.revert.lance.proposal import revert_proposal
from lakefold_ingest.revert.row_history import (
    LOST,
    NO_ADDRESSES,
    UNKNOWN_ENTRY,
    Addresses,
    Mask,
    RemovedAndAdded,
    ReplacedContent,
    ReturningRows,
    RowHistory,
    addresses_in,
    by_number,
    indices_in,
    joined,
)
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_reader.format.changes import ChangeType
from lakefold_reader.format.source import BranchVersion
from lakefold_reader.format.value_numbers import equal_rows
from lakefold_reader.lance.feed.columns import FeedVersions, FieldHistory, last_of
from lakefold_reader.lance.feed.parts import FragmentPart
from lakefold_reader.lance.feed.plan import plan_version
from lakefold_reader.lance.feed.rows import FragmentPartReader, feed_schema
from lakefold_reader.lance.feed.sides import deleted_rows
from lakefold_reader.lance.feed.two_versions import difference_of
from lakefold_reader.lance.read_errors import explained
from lakefold_reader.lance.scan.columns import schema_of
from lakefold_reader.lance.versions import kind_in, read_state, transaction_of
from lakefold_reader.versions.ranges import expired
from lakefold_table.bitmaps import Bitmap, bitmap_of, decode_bitmap, encode_bitmap, numbers_of
from lakefold_table.errors import InvalidError
from lakefold_table.lance.combine_transactions import UPDATE
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.proposal_footprint import carries_reuse
from lakefold_table.lance.rows.rewritten_columns import changed_offsets
from lakefold_table.lance.rows.row_moves import TracedRows, moved_rows
from lakefold_table.lance.rows.row_order import committed_in_order, groups_of, written_groups
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.schemas.fragment_files import field_locations
from lakefold_table.lance.schemas.schema import TOP
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_reader.lance.feed.columns import LastVersion
    from lakefold_table.lance.state import LanceState

_REMOVED: Final = frozenset({ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE})
_COLUMNS: Final = frozenset(
    {Kind.MERGE, Kind.MERGE_KEEPING_NULLABILITY, Kind.PROJECT, Kind.PROJECT_KEEPING_NULLABILITY}
)
"""Operations that add, drop or convert columns and leave each row where it is."""
_MERGED_BY: Final = "merged by "
"""How the predicate of a Delete begins that deleted rows by their keys."""


class LanceRowHistory(RowHistory):
    """See `RowHistory`. A fragment's number is its id."""

    def __init__(self, source: Source, newest: int) -> None:
        self.source = source
        self.newest = newest
        self._fragments: dict[tuple[int, int], DataFragment | None] = {}
        self._deleted: dict[bytes, Bitmap] = {}
        self._regained: dict[int, tuple[Addresses, Addresses]] = {}

    def version_rows(self, version: int) -> RemovedAndAdded:
        """See `RowHistory.version_rows`."""
        added: list[Addresses] = []
        added_by: list[NDArray[np.int64]] = []
        removed: list[Addresses] = []
        if kind_in(self._summary(version)) not in _COLUMNS:
            for part in plan_version(self.source, version):
                addresses = self._addresses_of(part)
                if part.change_type in _REMOVED:
                    removed.append(addresses)
                else:
                    added.append(addresses)
                    offset = UNKNOWN_ENTRY if part.log_offset is None else part.log_offset
                    added_by.append(np.full(addresses.size, offset, np.int64))
        offsets = np.concatenate([np.empty(0, np.int64), *added_by])
        rows = np.concatenate([NO_ADDRESSES, *added])
        order = np.argsort(rows)
        return RemovedAndAdded(rows[order], offsets[order], joined(removed))

    def differing(self, before: int, after: int) -> tuple[Addresses, Addresses]:
        """Returns the rows of two versions that are not in the same place of the same file in both."""
        versions = BranchVersion(self.source, before), BranchVersion(self.source, after)
        difference = difference_of(*versions)
        removed = [self._addresses_of(part) for part in cast("list[FragmentPart]", difference.removed)]
        added = [self._addresses_of(part) for part in cast("list[FragmentPart]", difference.added)]
        return joined(removed), joined(added)

    def _addresses_of(self, part: FragmentPart) -> Addresses:
        fragment = DataFragment.FromString(part.fragment)
        number = self._id_of(part, fragment)
        if part.offsets is not None:
            return addresses_in(number, numbers_of(decode_bitmap(part.offsets, "rows of a change")))
        return addresses_in(number, self._live_offsets(fragment, number, part.at))

    def _id_of(self, part: FragmentPart, fragment: DataFragment) -> int:
        if part.fragment_id is not None:
            return part.fragment_id
        paths = {file.path for file in fragment.files}
        held = (each for each in read_state(self.source, part.at).fragments)
        return next(each.id for each in held if paths & {file.path for file in each.files})

    def _live_offsets(self, fragment: DataFragment, number: int, version: int) -> NDArray[np.uint32]:
        every = np.arange(fragment.physical_rows, dtype=np.uint32)
        deleted = self._deleted_rows(fragment, number, version)
        return np.delete(every, numbers_of(deleted)) if deleted else every

    def pair_columns(self, version: int) -> tuple[str, ...] | None:
        """See `RowHistory.pair_columns`: those of which an Update doesn't say that it changes them."""
        summary = self._summary(version)
        transaction = transaction_of(summary)
        if transaction is None or kind_in(summary) is not Kind.UPDATE:
            return ()
        record = decode_record(summary.properties, self.source.uri) if summary.own else None
        updates = 1
        if record is not None and len(record.committed) > 1:
            operations = record.operation_of or dict.fromkeys(record.committed, UPDATE)
            updates = list(operations.values()).count(UPDATE)
        if not updates:
            return ()
        changed = set(transaction.update.fields_for_preserving_frag_bitmap)
        fields = read_state(self.source, version).head.fields
        if not changed:
            return None
        kept = tuple(field.name for field in fields if field.parent_id == TOP and field.id not in changed)
        # pylance lists the keys of a merge as well, and a replacement of rows all columns.
        return kept or None

    def key_columns(self, version: int) -> tuple[str, ...]:
        """See `RowHistory.key_columns`."""
        fields = read_state(self.source, self.newest).head.fields
        names = {field.id: field.name for field in fields if field.parent_id == TOP}
        declared = tuple(
            field.name for field in fields if field.unenforced_primary_key and field.parent_id == TOP
        )
        transaction = transaction_of(self._summary(version))
        if declared or transaction is None:
            return declared
        inserted = [names.get(number, "") for number in transaction.update.inserted_rows.field_ids]
        if inserted and all(inserted):
            return tuple(inserted)
        predicate = transaction.delete.predicate
        merged = tuple(predicate.removeprefix(_MERGED_BY).split(", ")) if _MERGED_BY in predicate else ()
        return merged if merged and set(merged) <= set(names.values()) else ()

    def row_ids(self, addresses: Addresses, version: int) -> Addresses | None:
        """See `RowHistory.row_ids`."""
        if not has_stable_row_ids(read_state(self.source, version).head):
            return None
        ids = np.zeros(addresses.size, np.uint64)
        for number, offsets, part in by_number(addresses):
            fragment = self._fragment(version, number)
            if fragment is None or not fragment.HasField("inline_row_ids"):
                return None
            rows = fragment.physical_rows
            ids[part] = decode_row_ids(fragment.inline_row_ids, rows, self.location(number << 32))[offsets]
        return ids

    def is_live(self, addresses: Addresses, since: int, version: int) -> Mask:
        """See `RowHistory.is_live`."""
        live = np.ones(addresses.size, np.bool_)
        for number, offsets, part in by_number(addresses):
            then, now = self._fragment(since, number), self._fragment(version, number)
            if then is None or now is None or not _has_same_values(then, now):
                live[part] = False
            elif now.HasField("deletion_file") and now.deletion_file != then.deletion_file:
                deleted = self._deleted_rows(now, number, version)
                live[part] = ~np.isin(offsets, numbers_of(deleted), assume_unique=True)
        return live

    def moved(self, addresses: Addresses, version: int) -> Addresses:
        """See `RowHistory.moved`."""
        state = read_state(self.source, version)
        if state.transaction is not None and state.transaction.HasField("rewrite"):
            return self._rewritten(addresses, state, state.transaction)
        moved = np.full(addresses.size, LOST)
        changed = self._changed_in_place(state.transaction)
        for number, offsets, part in by_number(addresses):
            now = self._fragment(version, number)
            if now is None or changed is None:
                continue
            gone = self._deleted_rows(now, number, version) | changed.get(number, Bitmap())
            kept = ~np.isin(offsets, numbers_of(gone), assume_unique=True)
            moved[part] = np.where(kept, addresses[part], LOST)
        return moved

    @staticmethod
    def _changed_in_place(transaction: Transaction | None) -> dict[int, Bitmap] | None:
        """Returns the rows of which an operation writes values again, by fragment; None if it may be all."""
        if transaction is None:
            return None
        name = transaction.WhichOneof("operation")
        if name in {"merge", "project"}:
            return {}
        if name != "update" or transaction.update.update_mode != Transaction.REWRITE_COLUMNS:
            return None
        update = transaction.update
        updated = {fragment.id: fragment for fragment in update.updated_fragments}
        offsets = changed_offsets(update, updated)
        return dict(offsets) if isinstance(offsets, dict) and offsets.keys() >= updated.keys() else None

    def _rewritten(self, addresses: Addresses, state: LanceState, rewrite: Transaction) -> Addresses:
        """Returns where a Rewrite has put rows."""
        version = state.version
        head = None if self._summary(version).own else state.head
        reuse = carries_reuse(rewrite, state.index_section)
        groups = written_groups(rewrite, state.head.max_fragment_id)
        if groups is None or not committed_in_order(rewrite, head, carries_reuse=reuse):
            return self._found_again(addresses, state, rewrite)
        rows = {
            number: TracedRows(offsets, np.arange(part.start, part.stop, dtype=np.uint64))
            for number, offsets, part in by_number(addresses)
        }
        for group in groups:
            rows, _ = moved_rows(rows, group, lambda old: self._deleted_rows(old, old.id, version - 1))
        moved = np.full(addresses.size, LOST)
        for number, traced in rows.items():
            moved[traced.origins.astype(np.int64)] = addresses_in(number, traced.offsets)
        moved[moved == addresses] = LOST
        return moved

    def _found_again(self, addresses: Addresses, state: LanceState, rewrite: Transaction) -> Addresses:
        """Returns where rows are among those that a Rewrite wrote in any order: by ids, or by values."""
        version, moved = state.version, np.full(addresses.size, LOST)
        if version not in self._regained:
            before = read_state(self.source, version - 1).fragments
            replaced = [
                fragment.id for group in groups_of(rewrite.rewrite) for fragment in group.old_fragments
            ]
            written = set(state.fragments.ids()) - set(before.ids())
            # All rows, so that each has one place, whichever rows are asked about.
            old = self._live_rows(before.get(replaced).values(), version - 1)
            new = self._live_rows(state.fragments.get(written).values(), version)
            sought, known = self.row_ids(old, version - 1), self.row_ids(new, version)
            if sought is not None and known is not None:
                first, second = (pa.table({"id": ids}) for ids in (sought, known))
            else:
                first, second = self.rows(old, version - 1), self.rows(new, version)
            index = equal_rows(first, second)
            self._regained[version] = old[index >= 0], new[index[index >= 0]]
        old, new = self._regained[version]
        is_moved, at = indices_in(addresses, old)
        moved[is_moved] = new[at[is_moved]]
        return moved

    def _live_rows(self, fragments: Iterable[DataFragment], version: int) -> Addresses:
        return joined(
            [addresses_in(each.id, self._live_offsets(each, each.id, version)) for each in fragments]
        )

    def replacements(self, after: int) -> Sequence[ReplacedContent]:
        """See `RowHistory.replacements`. The marks mostly know that there is none."""
        history = read_state(self.source, self.newest).history
        kinds = (Kind.RESTORE, Kind.OVERWRITE, Kind.CLONE, Kind.UNKNOWN)
        if history.since <= after and all(history.latest.get(kind, 0) <= after for kind in kinds):
            return ()
        replacements = []
        for version in range(after + 1, self.newest + 1):
            summary = self._summary(version)
            if kind_in(summary) is Kind.RESTORE:
                replacements.append(ReplacedContent(version, summary.restored))
            elif kind_in(summary) is Kind.OVERWRITE:
                replacements.append(ReplacedContent(version, None))
        return replacements

    @property
    def columns(self) -> Sequence[str]:
        """See `RowHistory.columns`."""
        return self._last.schema.names

    def rows(self, addresses: Addresses, version: int, columns: Sequence[str] | None = None) -> pa.Table:
        """See `RowHistory.rows`. Blobs are their bytes."""
        empty = pa.Table.from_batches([], feed_schema(self._last.schema.chosen(columns)))
        schema = empty.select(self._last.schema.chosen(columns).names).schema
        return pa.Table.from_batches(self.batches(addresses, version, columns), schema)

    def batches(
        self, addresses: Addresses, version: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields rows as `rows` returns them, batch by batch."""
        chosen = self._last.schema.chosen(columns)
        reader = FragmentPartReader(self.source, chosen)
        for part in self._parts(addresses, version):
            yield from (batch.select(chosen.names) for batch in reader.read(part))

    def _parts(self, addresses: Addresses, version: int) -> Iterator[FragmentPart]:
        head = read_state(self.source, version).head
        schema = schema_of(head)
        fields = Schema(fields=schema.fields, metadata=schema.metadata).SerializeToString(deterministic=True)
        followed = self._fields(version).fields(version, schema) if version < self.newest else None
        if followed is None:
            followed = tuple((field.id, field.id) for field in schema.fields)
        for number, offsets, _ in by_number(addresses):
            fragment = self._fragment(version, number)
            if fragment is None:
                raise expired(self.source, f"fragment {number} is not in version {version}")
            yield FragmentPart(
                version,
                0,
                ChangeType.INSERT,
                None,
                version,
                fragment.SerializeToString(deterministic=True),
                number,
                encode_bitmap(bitmap_of(offsets), runs=True),
                offsets.size,
                fields,
                followed,
            )

    def _fields(self, version: int) -> FieldHistory:
        return FieldHistory(FeedVersions(self.source, self._last), version - 1, self._last)

    @cached_property
    def _last(self) -> LastVersion:
        return last_of(self.source, self.newest)

    def affected(self, envelope: Envelope) -> tuple[int, Addresses] | None:
        """See `RowHistory.affected`."""
        if not envelope.affected_rows:
            return None
        parts = [
            addresses_in(number, numbers_of(decode_bitmap(data, "rows of a proposal")))
            for number, data in envelope.affected_rows.items()
        ]
        return envelope.lance.read_version, joined(parts)

    def numbers_added(self, envelope: Envelope) -> Collection[int]:
        """See `RowHistory.numbers_added`. Ids are assigned later, and a version's record has them."""
        del envelope
        return ()

    def added_after(self, version: int) -> Addresses:
        """See `RowHistory.added_after`."""
        newest = read_state(self.source, self.newest)
        before = set(read_state(self.source, version).fragments.ids())
        fresh = newest.fragments.get(set(newest.fragments.ids()) - before).values()
        return self._live_rows(fresh, self.newest)

    def location(self, address: int) -> str:
        """See `RowHistory.location`."""
        return f"row {address & 0xFFFFFFFF} of fragment {address >> 32}"

    def proposal(
        self,
        view: View,
        key: Key,
        settings: WriteSettings,
        removed: Addresses,
        returned: ReturningRows,
    ) -> Envelope:
        """See `RowHistory.proposal`."""
        return revert_proposal(view, key, settings, removed, returned)

    def _fragment(self, version: int, number: int) -> DataFragment | None:
        known = self._fragments.get((version, number))
        if known is None and (version, number) not in self._fragments:
            known = read_state(self.source, version).fragments.get([number]).get(number)
            self._fragments[version, number] = known
        return known

    def _deleted_rows(self, fragment: DataFragment, number: int, version: int) -> Bitmap:
        if not fragment.HasField("deletion_file"):
            return Bitmap()
        if not fragment.physical_rows:
            message = f"fragment {number} doesn't say how many rows it has, so they can't be followed"
            raise InvalidError(message, where=self.source.uri, hint="restore a version instead")
        name = b"%d %b" % (number, fragment.deletion_file.SerializeToString(deterministic=True))
        if name not in self._deleted:
            with explained(self.source, version):
                head = read_state(self.source, version).head
                self._deleted[name] = deleted_rows(self.source, head, fragment)
        return self._deleted[name]


def _has_same_values(then: DataFragment, now: DataFragment) -> bool:
    """Returns whether a fragment has the values of its columns in the same places, but for dropped ones."""
    if then.files == now.files:
        return True
    if then.physical_rows != now.physical_rows:
        return False
    before, after = field_locations(then), field_locations(now)
    return all(after[number] == location for number, location in before.items() if number in after)
