"""Marks rows as deleted: writes the deletion files of their fragments, and says so in the proposal."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.lance.rows.deletions import BITMAP, deletion_path, encode_deletions
from lakefold_table.new_threads import new_threads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakefold_ingest.merge.lance.rows import LanceRows
    from lakefold_protos.lakefold.log_pb2 import Envelope

FILES_AT_ONCE = 16
"""How many deletion files are read and written at once: a store answers each in some milliseconds."""


@dataclass(frozen=True, slots=True)
class LanceDeletions:
    """What a proposal says of the rows that it deletes or moves.

    `updated`: fragments with their new deletion files; `removed`: ids of fragments without remaining rows;
    `affected`: the row offsets by fragment id, by which the committer merges them with those of others.
    """

    updated: tuple[DataFragment, ...]
    removed: tuple[int, ...]
    affected: Mapping[int, Bitmap]

    def add_affected(self, envelope: Envelope) -> None:
        """Adds the row offsets to an envelope."""
        for number, rows in self.affected.items():
            envelope.affected_rows[number] = encode_bitmap(rows)

    def as_delete(self, envelope: Envelope, predicate: str) -> None:
        """Makes the envelope's operation a Delete of these rows. `predicate` describes them."""
        delete = envelope.lance.delete
        delete.predicate = predicate
        delete.updated_fragments.extend(self.updated)
        delete.deleted_fragment_ids.extend(self.removed)

    def as_update(self, envelope: Envelope, fragments: Iterable[DataFragment]) -> None:
        """Makes the envelope's operation an Update that deletes these rows and adds fragments."""
        update = envelope.lance.update
        update.update_mode = Transaction.REWRITE_ROWS
        update.removed_fragment_ids.extend(self.removed)
        update.updated_fragments.extend(self.updated)
        update.new_fragments.extend(fragments)


def delete_rows(table: LanceRows, rows: Mapping[int, Bitmap]) -> LanceDeletions:
    """Writes deletion files with these rows beside those that are deleted already, durably.

    `rows`: the offsets of rows that are not deleted, by fragment id.
    """
    fragments = table.fragments(rows)

    def changed(number: int) -> DataFragment | None:
        return _changed(table, fragments[number], rows[number])

    with new_threads(), ThreadPoolExecutor(min(FILES_AT_ONCE, max(len(rows), 1))) as pool:
        results = dict(zip(sorted(rows), pool.map(changed, sorted(rows)), strict=True))
    updated = tuple(fragment for fragment in results.values() if fragment is not None)
    removed = tuple(number for number, fragment in results.items() if fragment is None)
    return LanceDeletions(updated, removed, rows)


def delete_rows_again(table: LanceRows, before: LanceDeletions, changed: Collection[int]) -> LanceDeletions:
    """Returns the same deletions for a newer version. It writes files only for the fragments that `changed`.

    The rows are still in it.
    """
    ids = before.affected.keys() & set(changed)
    fresh = delete_rows(table, {number: before.affected[number] for number in ids})
    updated = [fragment for fragment in before.updated if fragment.id not in ids]
    return LanceDeletions(
        tuple(sorted([*updated, *fresh.updated], key=attrgetter("id"))),
        tuple(sorted({*before.removed} - ids | {*fresh.removed})),
        before.affected,
    )


def _changed(table: LanceRows, fragment: DataFragment, rows: Bitmap) -> DataFragment | None:
    """Returns the fragment with its new deletion file. Returns None if no row is left of it."""
    deleted = table.deleted_rows(fragment) | rows
    if len(deleted) == fragment.physical_rows:
        return None
    file = DeletionFile(
        file_type=BITMAP,
        read_version=table.version,
        # A file of its own: who removes it, as a dry run does, must not remove that of an equal Delete.
        id=secrets.randbits(64),
        num_deleted_rows=len(deleted),
    )
    table.source.storage.put(deletion_path(fragment.id, file), [encode_deletions(deleted, BITMAP)])
    changed = DataFragment()
    changed.CopyFrom(fragment)
    changed.deletion_file.CopyFrom(file)
    return changed
