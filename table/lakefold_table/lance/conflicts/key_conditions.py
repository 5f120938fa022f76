"""Conditions on what was read, on keys of rows and maps, on shards and base paths (Lance facts 5.3 and 5.5).

Each returns the evidence if the condition holds for the two operations, else None. "Ours" is the proposal,
"theirs" the operation that was committed before. The `rules` say how severe that is. Rows that ours has
read and names are compared with the table itself (`operations.read_rows`, decision 0120).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.lance.conflicts.keys import may_share_keys
from lakefold_table.lance.conflicts.rule import Evidence, met_fields, met_keys

if TYPE_CHECKING:
    from lakefold_table.lance.conflicts.footprint import Footprint


def read_anything(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours has read rows or looked for some, of any kind."""
    return None if ours.reads is None else Evidence()


def read_without_names(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours doesn't say what it has read."""
    return Evidence() if ours.reads is not None and not ours.reads.is_named else None


def looked_for_rows(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours has looked for rows, and theirs added some whose keys are not known."""
    reads = ours.reads
    if reads is None or (reads.keys is None and not reads.any_row):
        return None
    return Evidence() if reads.keys is None else Evidence(field_ids=frozenset(reads.keys.fields))


def looked_for_inserted(ours: Footprint, theirs: Footprint, version: int) -> Evidence | None:
    """Ours has looked for rows, and those that theirs wrote may be among them.

    A row that theirs moved had its key before, so ours has found it. If ours has looked for keys alone, only
    those count that theirs inserted.
    """
    if not theirs.moves_rows or ours.reads is None:
        return None
    keys, inserted = ours.reads.keys, theirs.inserted
    if keys and inserted and not ours.reads.any_row and not may_share_keys(keys, inserted):
        return None
    return looked_for_rows(ours, theirs, version)


def read_rewritten_columns(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours has read rows, and theirs wrote columns of some fragments again, where their rows are."""
    return Evidence() if ours.reads is not None and theirs.rewrites_columns else None


def inserts_keys(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours inserts rows only if their keys are new, and theirs appended rows whose keys are not known.

    The condition doesn't hold if ours states that such an Append counts as made after it.
    """
    if ours.inserted is None or ours.inserted.precedes_appends:
        return None
    return Evidence(field_ids=frozenset(ours.inserted.fields))


def same_inserted_keys(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours inserts rows only if their keys are new, and theirs may have inserted some of these keys."""
    if ours.inserted is None:
        return None
    if theirs.inserted is not None and not may_share_keys(ours.inserted, theirs.inserted):
        return None
    return Evidence(field_ids=frozenset(ours.inserted.fields))


def same_config_keys(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """One of the two sets a key of the table's configuration that the other sets or deletes."""
    if ours.config is None or theirs.config is None:
        return None
    keys = (ours.config.sets & theirs.config.keys) | (theirs.config.sets & ours.config.keys)
    return met_keys(keys)


def same_table_metadata(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both change the same key of the table's metadata, or one of them replaces all keys."""
    if ours.table_metadata is None or theirs.table_metadata is None:
        return None
    keys = ours.table_metadata.keys & theirs.table_metadata.keys
    replaces = ours.table_metadata.replaces or theirs.table_metadata.replaces
    return Evidence(keys=keys or ours.table_metadata.keys) if keys or replaces else None


def both_schema_metadata(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both change the schema's metadata."""
    return Evidence() if ours.schema_metadata and theirs.schema_metadata else None


def same_field_metadata(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both change the metadata of the same field."""
    return met_fields(ours.field_metadata & theirs.field_metadata)


def names_schema(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours names the metadata of the schema or of fields, even if it changes nothing there."""
    return Evidence(field_ids=ours.field_metadata) if ours.schema_metadata or ours.field_metadata else None


def describes_schema(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours changes the metadata of the schema or of fields."""
    return Evidence(field_ids=ours.field_metadata) if ours.describes else None


def schema_described(_ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs changed the metadata of the schema or of fields."""
    return Evidence(field_ids=theirs.field_metadata) if theirs.describes else None


def older_generation(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs merged an older generation of a shard that ours merges too."""
    older = {shard for shard, newest in ours.shards.items() if theirs.shards.get(shard, newest) < newest}
    return met_keys(frozenset(older))


def same_generation(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs merged the same or a newer generation of a shard that ours merges too."""
    same = {shard for shard, newest in ours.shards.items() if theirs.shards.get(shard, -1) >= newest}
    return met_keys(frozenset(same))


def same_bases(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both add a base path with the same id, name or path."""
    clashes = {
        path
        for number, name, path in ours.bases
        for other_number, other_name, other_path in theirs.bases
        if (number and number == other_number)
        or (name is not None and name == other_name)
        or path == other_path
    }
    return met_keys(frozenset(clashes))
