"""Makes the footprint of a transaction: a function for each kind of which more than the kind is needed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import MemWalIndexDetails
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.allocation import check_allocated
from lakefold_table.bitmaps import Bitmap, decode_bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.conflicts.footprint import (
    FileDigests,
    Filter,
    Footprint,
    IndexFootprint,
    Indexing,
    KeyChanges,
    MovedGroup,
    name_of_file,
)
from lakefold_table.lance.conflicts.keys import bits_of, hashes_of, precedes_appends
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.lance.kinds import Kind, kind_of
from lakefold_table.lance.rows.row_order import groups_of, written_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import (
        CompactedSsTable,
        DataFile,
        DataOverlayFile,
        IndexMetadata,
    )
    from lakefold_protos.lance.transaction_pb2 import KeyExistenceFilter

PLAIN = {kind: Footprint(kind) for kind in Kind}
"""The footprints of the kinds that leave nothing else, one for each kind."""


def footprint_of(
    transaction: Transaction | None,
    *,
    affected_rows: Mapping[int, Bitmap] | None = None,
    carries_reuse: bool = False,
    keeps_order: bool = False,
    last_id: int = 0,
) -> Footprint:
    """Returns what a transaction touches. None is a version without a transaction.

    `affected_rows`: the row offsets that a Delete or an Update deletes or moves, by fragment id, as its
    envelope says; None if it doesn't say. `carries_reuse`: a Rewrite comes with a fragment-reuse index. The
    transaction doesn't contain that index; the envelope of a proposal or the manifest of a version does.
    `keeps_order`: a Rewrite is known to keep the order of its rows. `last_id`: as of `written_groups`. A part
    that can't be read (the bitmap of an index, the details of an index, an overlay's coverage) counts as not
    known, for which the rules assume the worst; that it can't be read is an error of the operation
    itself.
    """
    kind = kind_of(transaction)
    reader = _READERS.get(kind)
    if transaction is None or reader is None:
        return PLAIN[kind]
    footprint = reader(transaction)
    if kind in {Kind.DELETE, Kind.UPDATE} and affected_rows is not None:
        return replace(footprint, rows=affected_rows)
    if kind is Kind.REWRITE and (carries_reuse or keeps_order):
        moved = _moved(transaction, last_id) if keeps_order else None
        return replace(footprint, carries_reuse=carries_reuse, moved=moved)
    return footprint


def _delete(transaction: Transaction) -> Footprint:
    delete = transaction.delete
    removed = frozenset(delete.deleted_fragment_ids)
    return Footprint(
        Kind.DELETE,
        touched=removed.union(fragment.id for fragment in delete.updated_fragments),
        removed=removed,
        files={fragment.id: _digest(fragment.files) for fragment in delete.updated_fragments},
    )


def _update(transaction: Transaction) -> Footprint:
    update = transaction.update
    removed = frozenset(update.removed_fragment_ids)
    updated = frozenset(fragment.id for fragment in update.updated_fragments)
    fields = frozenset(update.fields_modified)
    # pylance's `update_columns` names the fields whose values change in place, and the other mode.
    in_place = update.update_mode == Transaction.REWRITE_COLUMNS
    return Footprint(
        Kind.UPDATE,
        touched=removed | updated,
        removed=removed,
        files={fragment.id: _digest(fragment.files) for fragment in update.updated_fragments},
        moves_rows=bool(update.new_fragments) and not in_place,
        rewrites_columns=in_place or bool(fields),
        fields=fields,
        values=dict.fromkeys(updated, fields) if fields else {},
        inserted=filter_of(update.inserted_rows, precedes_appends=precedes_appends(transaction))
        if update.HasField("inserted_rows")
        else None,
        shards=_shards(update.compacted_sstables),
    )


def _overwrite(transaction: Transaction) -> Footprint:
    keys = frozenset(transaction.overwrite.config_upsert_values)
    return Footprint(Kind.OVERWRITE, config=KeyChanges(keys)) if keys else PLAIN[Kind.OVERWRITE]


def _create_index(transaction: Transaction) -> Footprint:
    create = transaction.create_index
    added = tuple(_index(index) for index in create.new_indices)
    details = [index.index_details.value for index in create.new_indices if index.name == MEM_WAL]
    return Footprint(
        Kind.CREATE_INDEX,
        indexing=Indexing(
            added, tuple((index.name, index.uuid.uuid.hex()) for index in create.removed_indices)
        ),
        shards=_shards(_merged_generations(details[0])) if details else {},
    )


def _rewrite(transaction: Transaction) -> Footprint:
    rewrite = transaction.rewrite
    replaced = [group.old_fragments for group in groups_of(rewrite)]
    groups = tuple(frozenset(fragment.id for fragment in fragments) for fragments in replaced)
    old = frozenset[int]().union(*groups)
    files = (
        name_of_file(file) for fragments in replaced for fragment in fragments for file in fragment.files
    )
    return Footprint(
        Kind.REWRITE,
        touched=old,
        removed=old,
        files={fragment.id: _digest(fragment.files) for fragments in replaced for fragment in fragments},
        groups=groups,
        rewritten=FileDigests.of(files),
    )


def _moved(transaction: Transaction, last_id: int) -> tuple[MovedGroup, ...] | None:
    """Returns the groups of a Rewrite that keeps the order of its rows, None if they can't be read."""
    written = written_groups(transaction, last_id)
    if written is None:
        return None
    groups: list[MovedGroup] = []
    for group, listed in zip(written, groups_of(transaction.rewrite), strict=True):
        new = [fragment.id for fragment in group.new_fragments if fragment.id]
        if len(new) != len(listed.new_fragments):
            return None
        digests = [_digest(fragment.files) for fragment in listed.new_fragments]
        groups.append(MovedGroup(group.SerializeToString(), dict(zip(new, digests, strict=True))))
    return tuple(groups)


def _project(transaction: Transaction) -> Footprint:
    return Footprint(kind_of(transaction), schema=frozenset(field.id for field in transaction.project.schema))


def _update_config(transaction: Transaction) -> Footprint:
    update = transaction.update_config
    old_config = KeyChanges(frozenset(update.upsert_values), frozenset(update.delete_keys))
    return Footprint(
        Kind.UPDATE_CONFIG,
        config=_changes(update.config_updates) if update.HasField("config_updates") else old_config,
        table_metadata=_changes(update.table_metadata_updates)
        if update.HasField("table_metadata_updates")
        else None,
        schema_metadata=update.HasField("schema_metadata_updates") or bool(update.schema_metadata),
        field_metadata=frozenset(update.field_metadata_updates).union(update.field_metadata),
        describes=_describes(update),
    )


def _describes(update: Transaction.UpdateConfig) -> bool:
    """Returns whether an Update changes metadata of the schema or of a field, by any key."""
    updates = [update.schema_metadata_updates, *update.field_metadata_updates.values()]
    old = update.schema_metadata or update.field_metadata
    return bool(old) or any(change.update_entries or change.replace for change in updates)


def _data_replacement(transaction: Transaction) -> Footprint:
    values: dict[int, frozenset[int]] = {}
    for replacement in transaction.data_replacement.replacements:
        values[replacement.fragment_id] = values.get(replacement.fragment_id, frozenset()).union(
            _live(replacement.new_file)
        )
    return Footprint(
        Kind.DATA_REPLACEMENT,
        touched=frozenset(values),
        fields=frozenset[int]().union(*values.values()),
        values=values,
    )


def _data_overlay(transaction: Transaction) -> Footprint:
    values: dict[int, frozenset[int]] = {}
    covered: dict[int, Bitmap | None] = {}
    for group in transaction.data_overlay.groups:
        covers = covered.get(group.fragment_id, Bitmap())
        for overlay in group.overlays:
            values[group.fragment_id] = values.get(group.fragment_id, frozenset()).union(
                _live(overlay.data_file)
            )
            more = _coverage(overlay)
            covers = None if covers is None or more is None else covers | more
        covered[group.fragment_id] = covers
    return Footprint(
        Kind.DATA_OVERLAY,
        touched=frozenset(covered),
        fields=frozenset[int]().union(*values.values()),
        values=values,
        covered=covered,
    )


def _mem_wal_state(transaction: Transaction) -> Footprint:
    return Footprint(
        Kind.UPDATE_MEM_WAL_STATE, shards=_shards(transaction.update_mem_wal_state.compacted_sstables)
    )


def _update_bases(transaction: Transaction) -> Footprint:
    bases = tuple(
        (base.id, base.name if base.HasField("name") else None, base.path)
        for base in transaction.update_bases.new_bases
    )
    return Footprint(Kind.UPDATE_BASES, bases=bases)


_READERS: Mapping[Kind, Callable[[Transaction], Footprint]] = {
    Kind.DELETE: _delete,
    Kind.UPDATE: _update,
    Kind.OVERWRITE: _overwrite,
    Kind.CREATE_INDEX: _create_index,
    Kind.REWRITE: _rewrite,
    Kind.PROJECT: _project,
    Kind.PROJECT_KEEPING_NULLABILITY: _project,
    Kind.UPDATE_CONFIG: _update_config,
    Kind.DATA_REPLACEMENT: _data_replacement,
    Kind.DATA_OVERLAY: _data_overlay,
    Kind.UPDATE_MEM_WAL_STATE: _mem_wal_state,
    Kind.UPDATE_BASES: _update_bases,
}


def _digest(files: Iterable[DataFile]) -> bytes:
    """Returns a digest of the data files of a fragment: their paths and the fields that each still holds."""
    digest = blake2b(digest_size=8)
    for file in files:
        base = file.base_id if file.HasField("base_id") else None
        digest.update(repr((file.path, list(file.fields), base)).encode())
    return digest.digest()


def _live(file: DataFile) -> Iterable[int]:
    """Returns the ids of the fields that a file holds. A negative id is that of no field."""
    return (number for number in file.fields if number >= 0)


def _index(index: IndexMetadata) -> IndexFootprint:
    return IndexFootprint(
        index.uuid.uuid.hex(),
        index.name,
        frozenset(index.fields),
        _bitmap(index.fragment_bitmap),
        index.index_details.type_url,
    )


def _bitmap(data: bytes) -> Bitmap | None:
    try:
        return decode_bitmap(data) if data else None
    except DamagedError:
        return None


def _coverage(overlay: DataOverlayFile) -> Bitmap | None:
    """Returns the row offsets that an overlay covers in any of its fields, or None if they can't be read."""
    parts = overlay.sparse.offset_bitmaps if overlay.HasField("sparse") else [overlay.dense]
    covered = Bitmap()
    for data in parts:
        part = _bitmap(data)
        if part is None:
            return None
        covered |= part
    return covered


def filter_of(keys: KeyExistenceFilter, *, precedes_appends: bool = False) -> Filter:
    """Returns the keys that a message names. `precedes_appends`: as of `Filter`."""
    fields = tuple(keys.field_ids)
    if keys.HasField("bloom"):
        bloom = keys.bloom
        shape = (len(bloom.bitmap), bloom.num_bits, bloom.number_of_items, bloom.probability)
        return Filter(fields, bloom=bits_of(bloom.bitmap), shape=shape, precedes_appends=precedes_appends)
    return Filter(fields, hashes_of(keys.exact.key_hashes), precedes_appends=precedes_appends)


def _shards(tables: Iterable[CompactedSsTable]) -> Mapping[str, int]:
    newest: dict[str, int] = {}
    for table in tables:
        shard = table.shard_id.uuid.hex()
        newest[shard] = max(table.generation, newest.get(shard, 0))
    return newest


def _merged_generations(details: bytes) -> Iterable[CompactedSsTable]:
    try:
        return MemWalIndexDetails.FromString(details).compacted_sstables
    except DecodeError as error:
        check_allocated(error)
        return ()


def _changes(update: Transaction.UpdateMap) -> KeyChanges:
    entries = update.update_entries
    return KeyChanges(
        frozenset(entry.key for entry in entries if entry.HasField("value")),
        frozenset(entry.key for entry in entries if not entry.HasField("value")),
        update.replace,
    )
