"""A version of a Lance table on which an upsert or a delete is built: its proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lakefold_ingest.lance.data_files import FragmentTarget, write_fragments
from lakefold_ingest.lance.proposals import begin_envelope
from lakefold_ingest.merge.key_hashes import key_hashes
from lakefold_ingest.merge.lance.candidates import candidates
from lakefold_ingest.merge.lance.deletions import LanceDeletions, delete_rows, delete_rows_again
from lakefold_ingest.merge.lance.rematch import matched_again
from lakefold_ingest.merge.lance.rows import LanceRows
from lakefold_ingest.merge.new_rows import RowsToWrite, changed_columns
from lakefold_ingest.merge.read_version import (
    ReadVersion,
    column_of,
    offsets_by_number,
    united_rows,
)
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import KeyExistenceFilter
from lakefold_reader.lance.scan.columns import is_blob
from lakefold_reader.lance.scan.scan import ADDRESS
from lakefold_reader.pylance.release import check_pylance
from lakefold_table.bitmaps import Bitmap, decode_bitmap, encode_bitmap
from lakefold_table.errors import InvalidError
from lakefold_table.lance.isolation import is_serializable
from lakefold_table.lance.rows.rowids import encode_row_ids
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.lance.view import LanceView
    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.merge_batch import MergeBatch
    from lakefold_ingest.merge.read_version import Rematch
    from lakefold_ingest.merge.row_changes import FoundRows, RowChanges
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target
    from lakefold_protos.lakefold.log_pb2 import Reads
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.state import LanceState

    Numbers = NDArray[np.uint64]


class LanceReadVersion(LanceRows, ReadVersion):
    """See `ReadVersion`. `deleted`: what it said of deleted rows in its last proposal.

    Or what an older version said, if the same rows are deleted.
    """

    def __init__(self, source: Source, state: LanceState, view: LanceView) -> None:
        super().__init__(source, state)
        self.view = view
        self.deleted: LanceDeletions | None = None
        self._changed = frozenset[int]()

    def scan_all(self, columns: Sequence[str], row_bytes: float) -> Iterator[pa.RecordBatch]:
        """See `ReadVersion.scan_all`."""
        return self.scan(columns, row_bytes=row_bytes)

    def candidates(self, keys: BatchKeys, row_bytes: float) -> Iterator[pa.RecordBatch]:
        """See `ReadVersion.candidates`."""
        return candidates(self, keys, row_bytes)

    def rows_where(self, where: str) -> Numbers:
        """See `ReadVersion.rows_where`. The condition is SQL as pylance reads it."""
        addresses = [column_of(batch, ADDRESS) for batch in self.scan([], where)]
        return np.sort(np.concatenate([np.empty(0, np.uint64), *addresses]))

    def matched_again(self, before: ReadVersion, keys: BatchKeys, matched: FoundRows) -> Rematch | None:
        """See `ReadVersion.matched_again`."""
        if not isinstance(before, LanceReadVersion) or list(before.view.fields) != list(self.view.fields):
            return None
        again, self._changed = matched_again(self, keys, before.state, matched)
        self.deleted = before.deleted if again.is_same else None
        return again

    def write(self, target: Target, batch: MergeBatch, changes: RowChanges) -> Envelope:
        """See `ReadVersion.write`."""
        view, into = self.view, cast("FragmentTarget", target)
        check_pylance(into.pylance, into.uri)
        part = Envelope()
        for number, offsets in offsets_by_number(changes.deleted).items():
            part.affected_rows[number] = encode_bitmap(offsets)
        update = part.lance.update
        update.fields_for_preserving_frag_bitmap.extend(
            view.field_ids(changed_columns(changes.rewritings, batch.keys.names))
        )
        if changes.inserted.size:
            update.inserted_rows.CopyFrom(key_filter(view, batch, changes.inserted))
        if self.is_serializable:
            self._add_reads(part, batch, changes)
        rows = RowsToWrite(self, into.fitting.schema, batch.source, changes.rewritings, changes.inserted)
        _check_blobs(rows, view)
        update.new_fragments.extend(self._written_rows(into, rows))
        return part

    @property
    def is_serializable(self) -> bool:
        """Whether the table's level is `serializable`: then all that was read is judged.

        Otherwise the rows that change are, and the keys that are inserted.
        """
        return is_serializable(self.state.head.config)

    def _add_reads(self, part: Envelope, batch: MergeBatch, changes: RowChanges) -> None:
        """Adds what the merge has read beside the rows that it changes."""
        part.reads.any_row = changes.reads_all
        part.reads.keys.CopyFrom(key_filter(self.view, batch, np.arange(batch.keys.count)))
        for number, offsets in offsets_by_number(changes.kept).items():
            part.reads.rows[number] = encode_bitmap(offsets)

    def _written_rows(self, target: FragmentTarget, rows: RowsToWrite) -> list[DataFragment]:
        written: list[DataFragment] = []
        try:
            written.extend(write_fragments(target, rows.batches()))
        except BaseException as error:
            remove_unused(target, written, str(error))
            raise
        if self.stable_row_ids:
            set_row_ids(written, rows.moved_ids)
        return written

    def written(self, part: Envelope) -> Sequence[DataFragment]:
        """See `ReadVersion.written`."""
        return part.lance.update.new_fragments

    def proposal(
        self, target: Target, key: Key, parts: Sequence[Envelope], names: Sequence[str]
    ) -> Envelope | None:
        """See `ReadVersion.proposal`."""
        del target
        rows = united_rows(map(_affected, parts), "fragment", self.source.uri)
        updates = [part.lance.update for part in parts]
        fragments = [fragment for update in updates for fragment in update.new_fragments]
        if not fragments and not rows:
            return None
        envelope = begin_envelope(self.source.uri, key, self.version)
        deleted = self._deletions(rows)
        deleted.add_affected(envelope)
        if self.is_serializable:
            join_reads(envelope.reads, [part.reads for part in parts])
        if not fragments:
            deleted.as_delete(envelope, f"merged by {', '.join(names)}")
            return envelope
        deleted.as_update(envelope, fragments)
        changed = {number for update in updates for number in update.fields_for_preserving_frag_bitmap}
        envelope.lance.update.fields_for_preserving_frag_bitmap.extend(sorted(changed))
        into = envelope.lance.update.inserted_rows
        if self.is_serializable:
            # No key at all is a statement as well: the Update inserts no row that others looked for.
            into.field_ids[:] = envelope.reads.keys.field_ids
            into.exact.SetInParent()
        for update in updates:
            if update.HasField("inserted_rows"):
                into.field_ids[:] = update.inserted_rows.field_ids
                into.exact.key_hashes.extend(update.inserted_rows.exact.key_hashes)
        return envelope

    def deletion(self, target: Target, key: Key, addresses: Numbers, predicate: str) -> Envelope:
        """See `ReadVersion.deletion`."""
        del target
        deleted = delete_rows(self, offsets_by_number(addresses))
        envelope = begin_envelope(self.source.uri, key, self.version)
        deleted.add_affected(envelope)
        deleted.as_delete(envelope, predicate)
        if self.is_serializable:
            # Rows for which it does not hold are not changed, whatever others do to them.
            envelope.reads.any_row = True
        return envelope

    def _deletions(self, rows: Mapping[int, Bitmap]) -> LanceDeletions:
        """Writes the deletion files of these rows, but those that the older version has written."""
        before = self.deleted
        if before is not None and before.affected == rows:
            self.deleted = delete_rows_again(self, before, self._changed)
        else:
            self.deleted = delete_rows(self, rows)
        return self.deleted


def _affected(part: Envelope) -> Mapping[int, Bitmap]:
    return {number: decode_bitmap(data, "a part's rows") for number, data in part.affected_rows.items()}


def set_row_ids(fragments: Sequence[DataFragment], moved_ids: NDArray[np.uint64]) -> None:
    """Sets the ids of moved rows in the fragments into which they were written, in order.

    The rows after them are new; the committer gives them ids (Lance fact 7.6).
    """
    start = 0
    for fragment in fragments:
        ids = moved_ids[start : start + fragment.physical_rows]
        if ids.size:
            fragment.inline_row_ids = encode_row_ids(ids)
        start += fragment.physical_rows


def key_filter(view: LanceView, batch: MergeBatch, rows: NDArray[np.int64]) -> KeyExistenceFilter:
    """Returns the hashes of the keys of some rows of a batch, the key columns in the order of their ids."""
    ids = {field.name: field.id for field in view.fields if field.parent_id == TOP}
    keys = sorted(zip(batch.keys.names, batch.keys.arrays, strict=True), key=lambda key: ids[key[0]])
    hashes = np.unique(key_hashes([column.take(pa.array(rows)) for _, column in keys]))
    exact = KeyExistenceFilter.ExactKeySet(key_hashes=hashes.tolist())
    return KeyExistenceFilter(field_ids=[ids[name] for name, _ in keys], exact=exact)


def join_reads(into: Reads, parts: Sequence[Reads]) -> None:
    """Makes `into` what all parts of a proposal have read, which have the same key columns."""
    rows: dict[int, Bitmap] = {}
    for part in parts:
        into.any_row |= part.any_row
        into.keys.field_ids[:] = part.keys.field_ids
        into.keys.exact.key_hashes.extend(part.keys.exact.key_hashes)
        for number, data in part.rows.items():
            rows[number] = rows.get(number, Bitmap()) | decode_bitmap(data, "a part's rows")
    for number, offsets in rows.items():
        into.rows[number] = encode_bitmap(offsets)


def _check_blobs(rows: RowsToWrite, view: LanceView) -> None:
    """Raises `InvalidError` if blobs of the table would have to be copied, or written by pylance."""
    by_pylance = set(view.schema.names) - set(rows.schema.names)
    blobs = {field.name for field in view.fields if field.parent_id == TOP and is_blob(field)} | by_pylance
    for rewriting in rows.rewritings:
        if rewriting.rows.addresses.size and blobs - (rewriting.columns - by_pylance):
            raise InvalidError(
                f"rows with the blob columns {', '.join(sorted(blobs))} can't be updated yet",
                where=view.uri,
                hint="delete the rows and append them again",
            )
