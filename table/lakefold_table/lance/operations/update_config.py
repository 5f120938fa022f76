"""UpdateConfig: changes the table's config, its metadata, or the metadata of its schema or of fields.

A proposal can't change the log's own keys (`lakefold.*`). It is also refused if Lance clients could not open
the table afterwards: an invalid key column, or a feature that this release doesn't know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.columns.extension_names import EXTENSION_NAME
from lakefold_table.entry import Invalid
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.creation import primary_key_fault
from lakefold_table.lance.operations.key_values import ConfigUpdates, MapUpdate, updates_of
from lakefold_table.lance.schemas.keys import (
    CLUSTERING_KEY,
    PRIMARY_KEY,
    declare_keys,
    position_of,
)
from lakefold_table.lance.schemas.schema import by_id
from lakefold_table.lance.validity import (
    MANAGED_BLOBS,
    config_fault,
    managed_blobs_fault,
    reserved_key_fault,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_table.lance.version_builder import VersionBuilder

PRIMARY_KEYS = frozenset({PRIMARY_KEY, f"{PRIMARY_KEY}:position"})
CLUSTERING_KEYS = frozenset({f"{CLUSTERING_KEY}:position"})


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that sets, deletes or replaces the keys of the maps."""
    updates = updates_of(proposal.transaction.update_config)
    if isinstance(updates, Invalid):
        return updates
    fault = reserved_key_fault([key for update in updates.others for key in update.keys])
    if updates.config is not None:
        fault = fault or config_fault(updates.config.sets, updates.config.deletes)
    fault = fault or _schema_metadata_fault(updates.schema_metadata) or _unknown_field(table, updates)
    if fault is not None:
        return fault
    head = Manifest()
    head.CopyFrom(table.head)
    if updates.config is not None:
        updates.config.apply(head.config)
    if updates.table_metadata is not None:
        # The marks are written again with every version, so a replacement can't lose them.
        updates.table_metadata.apply(head.table_metadata)
    if updates.schema_metadata is not None:
        updates.schema_metadata.apply_encoded(head.schema_metadata)
    fault = _update_fields(head.fields, updates.field_metadata)
    return fault or TableChange(proposal.transaction, head=head)


def _schema_metadata_fault(update: MapUpdate | None) -> Invalid | None:
    return None if update is None else managed_blobs_fault(update.sets.get(MANAGED_BLOBS))


def _unknown_field(table: VersionBuilder, updates: ConfigUpdates) -> Invalid | None:
    unknown = sorted(set(updates.field_metadata) - {field.id for field in table.head.fields})
    if not unknown:
        return None
    return Invalid(f"the table has no field {unknown[0]}", "use the field ids of the table's schema")


def _update_fields(fields: Sequence[Field], updates: Mapping[int, MapUpdate]) -> Invalid | None:
    """Changes the metadata of fields, and what follows from it. Returns a fault if the result is invalid."""
    had_primary = _has_primary(fields)
    had_clustering = any(field.unenforced_clustering_key_position for field in fields)
    fields_by_id = by_id(fields)
    touched: set[str] = set()
    for number, update in updates.items():
        touched |= _update_field(fields_by_id[number], update)
    fault = _key_fault("primary", touched & PRIMARY_KEYS, had=had_primary, has=_has_primary(fields))
    fault = fault or _key_fault(
        "clustering", touched & CLUSTERING_KEYS, had=had_clustering, has=_has_clustering(fields)
    )
    return fault or (primary_key_fault(fields) if touched & PRIMARY_KEYS else None)


def _update_field(field: Field, update: MapUpdate) -> frozenset[str]:
    """Changes a field. Returns the keys whose value may have changed, including dropped keys."""
    touched = update.keys.union(field.metadata) if update.replaces else update.keys
    update.apply_encoded(field.metadata)
    if EXTENSION_NAME in touched:
        field.extension_name = field.metadata.get(EXTENSION_NAME, b"").decode()
    if touched & (PRIMARY_KEYS | CLUSTERING_KEYS):
        declare_keys(field)
    return touched


def _has_primary(fields: Iterable[Field]) -> bool:
    return any(field.unenforced_primary_key for field in fields)


def _has_clustering(fields: Iterable[Field]) -> bool:
    """Returns whether a field has a clustering position, including 0 (Lance fact 4.3)."""
    return any(position_of(field, CLUSTERING_KEY) is not None for field in fields)


def _key_fault(which: str, touched: AbstractSet[str], *, had: bool, has: bool) -> Invalid | None:
    """Returns why the keys of fields can't change in this way.

    A table's key is declared once and never changed (Lance fact 4.3).
    """
    if not touched:
        return None
    if had:
        return Invalid(f"the table has a {which} key already, which can't be changed", "leave these keys out")
    if not has:
        keys = ", ".join(sorted(touched))
        return Invalid(f"{keys} declares no {which} key", "set it to true, or to a position that is a number")
    return None
