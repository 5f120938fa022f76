"""Updates of key-value maps in UpdateConfig, in the current and the deprecated message form.

Both forms say which keys are set, which are deleted, and whether all other keys are removed (Lance fact 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

    from lakefold_protos.lance.transaction_pb2 import Transaction


@dataclass(frozen=True, slots=True)
class MapUpdate:
    """Changes of a map: sets keys, deletes keys; if `replaces`, removes every key that it doesn't set."""

    sets: Mapping[str, str] = field(default_factory=dict)
    deletes: frozenset[str] = frozenset()
    replaces: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """All keys that are set or deleted."""
        return self.deletes.union(self.sets)

    def apply(self, values: MutableMapping[str, str]) -> None:
        """Changes a map of strings in place."""
        for key in self._removed(values):
            del values[key]
        values.update(self.sets)

    def apply_encoded(self, values: MutableMapping[str, bytes]) -> None:
        """Changes a map whose values are bytes in place."""
        for key in self._removed(values):
            del values[key]
        values.update({key: value.encode() for key, value in self.sets.items()})

    def _removed(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if self.replaces or key in self.deletes]


@dataclass(frozen=True, slots=True)
class ConfigUpdates:
    """The changes of each map of a table; None for a map that stays the same."""

    config: MapUpdate | None = None
    table_metadata: MapUpdate | None = None
    schema_metadata: MapUpdate | None = None
    field_metadata: Mapping[int, MapUpdate] = field(default_factory=dict)

    @property
    def others(self) -> Sequence[MapUpdate]:
        """The updates of all maps but the configuration."""
        maps = (self.table_metadata, self.schema_metadata, *self.field_metadata.values())
        return [update for update in maps if update is not None]


def updates_of(update: Transaction.UpdateConfig) -> ConfigUpdates | Invalid:
    """Returns the updates, whichever form they have.

    Returns `Invalid` if both forms are mixed, since pylance can't read such a transaction (Lance fact 3.7).
    """
    older = _older_updates(update)
    newer = ConfigUpdates(
        _update_of(update.config_updates) if update.HasField("config_updates") else None,
        _update_of(update.table_metadata_updates) if update.HasField("table_metadata_updates") else None,
        _update_of(update.schema_metadata_updates) if update.HasField("schema_metadata_updates") else None,
        {number: _update_of(field_update) for number, field_update in update.field_metadata_updates.items()},
    )
    if older is None:
        return newer
    if newer.config is not None or newer.others:
        return Invalid(
            "the transaction mixes current and deprecated fields of UpdateConfig",
            "send only the current fields",
        )
    return older


def _update_of(update: Transaction.UpdateMap) -> MapUpdate:
    """Returns the update of a map. The last of several entries with the same key counts (Lance fact 3.5)."""
    last = {entry.key: entry.value if entry.HasField("value") else None for entry in update.update_entries}
    sets = {key: value for key, value in last.items() if value is not None}
    return MapUpdate(sets, frozenset(last.keys() - sets.keys()), update.replace)


def _older_updates(update: Transaction.UpdateConfig) -> ConfigUpdates | None:
    """Returns the updates in the deprecated form, None if it is not used.

    A key that is both set and deleted is deleted. Metadata of the schema and of fields is always replaced as
    a whole (Lance fact 3.5).
    """
    if not (update.upsert_values or update.delete_keys or update.schema_metadata or update.field_metadata):
        return None
    deletes = frozenset(update.delete_keys)
    sets = {key: value for key, value in update.upsert_values.items() if key not in deletes}
    return ConfigUpdates(
        config=MapUpdate(sets, deletes) if sets or deletes else None,
        schema_metadata=_replacing(update.schema_metadata) if update.schema_metadata else None,
        field_metadata={
            number: _replacing(field_update.metadata)
            for number, field_update in update.field_metadata.items()
        },
    )


def _replacing(values: Mapping[str, str]) -> MapUpdate:
    return MapUpdate(dict(values), replaces=True)
