"""Updates of a map of keys, as UpdateConfig brings them: today's form, and the one of older writers.

Both mean the same three things: keys that are set, keys that are deleted, and whether all others go (Lance
fact 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from lakefold_protos.lance.transaction_pb2 import Transaction


@dataclass(frozen=True, slots=True)
class MapUpdate:
    """What becomes of a map: `sets` keys, `deletes` keys; with `replaces` every key that isn't set goes."""

    sets: Mapping[str, str] = field(default_factory=dict)
    deletes: frozenset[str] = frozenset()
    replaces: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """All keys that it names."""
        return self.deletes.union(self.sets)

    def apply(self, found: MutableMapping[str, str]) -> None:
        """Changes a map of texts."""
        for key in self._gone(found):
            del found[key]
        found.update(self.sets)

    def apply_encoded(self, found: MutableMapping[str, bytes]) -> None:
        """Changes a map whose values are bytes."""
        for key in self._gone(found):
            del found[key]
        found.update({key: value.encode() for key, value in self.sets.items()})

    def _gone(self, found: Iterable[str]) -> list[str]:
        return [key for key in found if self.replaces or key in self.deletes]


@dataclass(frozen=True, slots=True)
class ConfigUpdates:
    """What an UpdateConfig does to each map of a table; None where it leaves one alone."""

    config: MapUpdate | None = None
    table_metadata: MapUpdate | None = None
    schema_metadata: MapUpdate | None = None
    field_metadata: Mapping[int, MapUpdate] = field(default_factory=dict)

    @property
    def all(self) -> Iterable[MapUpdate]:
        """Every update, whichever map it is for."""
        maps = (self.config, self.table_metadata, self.schema_metadata, *self.field_metadata.values())
        return [one for one in maps if one is not None]


def updates_of(update: Transaction.UpdateConfig) -> ConfigUpdates | Invalid:
    """The updates in either form; pylance can't read a transaction that mixes them (Lance fact 3.7)."""
    older = _older_updates(update)
    newer = ConfigUpdates(
        _update_of(update.config_updates) if update.HasField("config_updates") else None,
        _update_of(update.table_metadata_updates) if update.HasField("table_metadata_updates") else None,
        _update_of(update.schema_metadata_updates) if update.HasField("schema_metadata_updates") else None,
        {number: _update_of(one) for number, one in update.field_metadata_updates.items()},
    )
    if older is None:
        return newer
    if newer.all:
        return Invalid(
            "the update of keys mixes its fields of today with deprecated ones",
            "send only the fields of today",
        )
    return older


def _update_of(update: Transaction.UpdateMap) -> MapUpdate:
    """Of entries with the same key the last one counts (Lance fact 3.5)."""
    last = {entry.key: entry.value if entry.HasField("value") else None for entry in update.update_entries}
    sets = {key: value for key, value in last.items() if value is not None}
    return MapUpdate(sets, frozenset(last.keys() - sets.keys()), update.replace)


def _older_updates(update: Transaction.UpdateConfig) -> ConfigUpdates | None:
    """The deprecated form, None where nothing is said in it.

    A key both set and deleted is deleted; metadata of the schema and of fields is always replaced (Lance fact
    3.5).
    """
    if not (update.upsert_values or update.delete_keys or update.schema_metadata or update.field_metadata):
        return None
    deletes = frozenset(update.delete_keys)
    sets = {key: value for key, value in update.upsert_values.items() if key not in deletes}
    return ConfigUpdates(
        config=MapUpdate(sets, deletes) if sets or deletes else None,
        schema_metadata=_replacing(update.schema_metadata) if update.schema_metadata else None,
        field_metadata={number: _replacing(one.metadata) for number, one in update.field_metadata.items()},
    )


def _replacing(values: Mapping[str, str]) -> MapUpdate:
    return MapUpdate(dict(values), replaces=True)
