"""Makes the footprint of a transaction: one function for each operation that leaves more than its kind."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import MemWalIndexDetails
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.allocation import check_allocated
from lakefold_table.errors import DamagedError
from lakefold_table.lance.conflicts.footprint import (
    MEM_WAL,
    FileDigests,
    Filter,
    Footprint,
    Indexing,
    IndexPrint,
    KeyChanges,
    name_of_file,
)
from lakefold_table.lance.conflicts.keys import bits_of, hashes_of
from lakefold_table.lance.operations import Kind, kind_of
from lakefold_table.lance.rows.bitmaps import Bitmap, decode_bitmap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import (
        CompactedSsTable,
        DataFile,
        DataOverlayFile,
        IndexMetadata,
    )

PLAIN = {kind: Footprint(kind) for kind in Kind}
"""The footprints of the kinds that leave nothing else: there is one of each."""


def footprint_of(
    transaction: Transaction | None,
    *,
    affected_rows: Mapping[int, Bitmap] | None = None,
    carries_reuse: bool = False,
) -> Footprint:
    """What a transaction touches; None stands for a version without one.

    `affected_rows`: the row offsets that a Delete or an Update deletes or moves, by fragment id, as its
    envelope says; None where nobody says. `carries_reuse`: a Rewrite comes with a fragment-reuse index, which
    its message doesn't tell: for a proposal its envelope does, for a version its manifest. A part that can't
    be read (the bitmap of an index, the details of one, an overlay's coverage) counts as one that isn't told,
    which the rules take for the worst; that it can't be read is for the operation itself to say.
    """
    kind = kind_of(transaction)
    reader = _READERS.get(kind)
    if transaction is None or reader is None:
        return PLAIN[kind]
    footprint = reader(transaction)
    if kind in {Kind.DELETE, Kind.UPDATE} and affected_rows is not None:
        return replace(footprint, rows=affected_rows)
    return replace(footprint, carries_reuse=True) if kind is Kind.REWRITE and carries_reuse else footprint


def _delete(transaction: Transaction) -> Footprint:
    delete = transaction.delete
    removed = frozenset(delete.deleted_fragment_ids)
    return Footprint(
        Kind.DELETE,
        touched=removed.union(one.id for one in delete.updated_fragments),
        removed=removed,
        files={one.id: _digest(one.files) for one in delete.updated_fragments},
    )


def _update(transaction: Transaction) -> Footprint:
    update = transaction.update
    removed = frozenset(update.removed_fragment_ids)
    updated = frozenset(one.id for one in update.updated_fragments)
    fields = frozenset(update.fields_modified)
    in_place = update.update_mode == Transaction.REWRITE_COLUMNS
    return Footprint(
        Kind.UPDATE,
        touched=removed | updated,
        removed=removed,
        files={one.id: _digest(one.files) for one in update.updated_fragments},
        moves_rows=bool(update.new_fragments) and not in_place,
        rewrites_columns=in_place,
        fields=fields,
        values=dict.fromkeys(updated, fields) if fields else {},
        inserted=_filter(transaction) if update.HasField("inserted_rows") else None,
        shards=_shards(update.compacted_sstables),
    )


def _overwrite(transaction: Transaction) -> Footprint:
    keys = frozenset(transaction.overwrite.config_upsert_values)
    return Footprint(Kind.OVERWRITE, config=KeyChanges(keys)) if keys else PLAIN[Kind.OVERWRITE]


def _create_index(transaction: Transaction) -> Footprint:
    create = transaction.create_index
    added = tuple(_index(one) for one in create.new_indices)
    details = [one.index_details.value for one in create.new_indices if one.name == MEM_WAL]
    return Footprint(
        Kind.CREATE_INDEX,
        indexing=Indexing(added, tuple((one.name, one.uuid.uuid.hex()) for one in create.removed_indices)),
        shards=_shards(_merged_generations(details[0])) if details else {},
    )


def _rewrite(transaction: Transaction) -> Footprint:
    rewrite = transaction.rewrite
    replaced = [group.old_fragments for group in rewrite.groups]
    if rewrite.old_fragments:
        replaced.append(rewrite.old_fragments)
    groups = tuple(frozenset(one.id for one in fragments) for fragments in replaced)
    old = frozenset[int]().union(*groups)
    files = (name_of_file(file) for fragments in replaced for one in fragments for file in one.files)
    return Footprint(Kind.REWRITE, touched=old, removed=old, groups=groups, rewritten=FileDigests.of(files))


def _project(transaction: Transaction) -> Footprint:
    return Footprint(kind_of(transaction), schema=frozenset(one.id for one in transaction.project.schema))


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
    """Whether it changes metadata of the schema or of a field: an update that names no key does not."""
    updates = [update.schema_metadata_updates, *update.field_metadata_updates.values()]
    old = update.schema_metadata or update.field_metadata
    return bool(old) or any(one.update_entries or one.replace for one in updates)


def _data_replacement(transaction: Transaction) -> Footprint:
    values: dict[int, frozenset[int]] = {}
    for one in transaction.data_replacement.replacements:
        values[one.fragment_id] = values.get(one.fragment_id, frozenset()).union(_live(one.new_file))
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
        for one in group.overlays:
            values[group.fragment_id] = values.get(group.fragment_id, frozenset()).union(_live(one.data_file))
            more = _coverage(one)
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
        (one.id, one.name if one.HasField("name") else None, one.path)
        for one in transaction.update_bases.new_bases
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
    """Tells the data files of a fragment from others: their places and the fields that each still holds."""
    digest = blake2b(digest_size=8)
    for one in files:
        base = one.base_id if one.HasField("base_id") else None
        digest.update(repr((one.path, list(one.fields), base)).encode())
    return digest.digest()


def _live(file: DataFile) -> Iterable[int]:
    """The ids of the fields that a file holds; a negative one stands for none."""
    return (number for number in file.fields if number >= 0)


def _index(index: IndexMetadata) -> IndexPrint:
    return IndexPrint(
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
    """The row offsets that an overlay covers in any of its fields."""
    parts = overlay.sparse.offset_bitmaps if overlay.HasField("sparse") else [overlay.dense]
    covered = Bitmap()
    for data in parts:
        part = _bitmap(data)
        if part is None:
            return None
        covered |= part
    return covered


def _filter(transaction: Transaction) -> Filter:
    inserted = transaction.update.inserted_rows
    fields = tuple(inserted.field_ids)
    if inserted.HasField("bloom"):
        bloom = inserted.bloom
        shape = (len(bloom.bitmap), bloom.num_bits, bloom.number_of_items, bloom.probability)
        return Filter(fields, bloom=bits_of(bloom.bitmap), shape=shape)
    return Filter(fields, hashes_of(inserted.exact.key_hashes))


def _shards(tables: Iterable[CompactedSsTable]) -> Mapping[str, int]:
    newest: dict[str, int] = {}
    for one in tables:
        shard = one.shard_id.uuid.hex()
        newest[shard] = max(one.generation, newest.get(shard, 0))
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
        frozenset(one.key for one in entries if one.HasField("value")),
        frozenset(one.key for one in entries if not one.HasField("value")),
        update.replace,
    )
