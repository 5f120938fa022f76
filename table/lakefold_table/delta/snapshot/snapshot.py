"""A version of a Delta table as values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_table.durations import DAY_MS, UNITS_MS, duration_ms
from lakefold_table.errors import DamagedError
from lakefold_table.layered_map import LayeredMap
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, FileKey, RemoveFile
    from lakefold_table.delta.actions.table_actions import (
        AppTransaction,
        DomainMetadata,
        TableMetadata,
        TableProtocol,
    )


@value()
class DurationProperty:
    """A property of tables that holds a duration. `default_ms`: if the table doesn't set it."""

    name: str
    default_ms: int


APPS: Final = "delta.setTransactionRetentionDuration"
"""The property after which time clients may forget `txn` actions."""
TOMBSTONES: Final = DurationProperty("delta.deletedFileRetentionDuration", 7 * DAY_MS)


@value()
class DeltaSnapshot:
    """A table at a version. Never changed.

    `files`: the logical files by path. `tombstones`: those that were removed, by path and deletion vector.
    `apps`: by app id. `domains`: by name, the removed ones as well. `size_bytes`: of all data files.
    `in_commit_ms`: the time that the version's commit gives, in milliseconds since 1970, None without one.
    """

    version: int
    protocol: TableProtocol
    metadata: TableMetadata
    files: Mapping[str, AddFile]
    tombstones: Mapping[FileKey, RemoveFile]
    apps: Mapping[str, AppTransaction]
    domains: Mapping[str, DomainMetadata]
    size_bytes: int = 0
    in_commit_ms: int | None = None

    @property
    def live_domains(self) -> dict[str, DomainMetadata]:
        """The domains that have a configuration, by name."""
        return {name: domain for name, domain in self.domains.items() if not domain.removed}

    def tombstones_at(self, now_ms: int) -> dict[FileKey, RemoveFile]:
        """Returns the tombstones that have not expired at a time, in milliseconds since 1970.

        Raises `DamagedError` if the table's property for that is not a duration.
        """
        expired = now_ms - property_ms(self.metadata.configuration, TOMBSTONES)
        return {key: file for key, file in self.tombstones.items() if (file.deleted_ms or 0) > expired}

    def without_expired(self, now_ms: int) -> DeltaSnapshot:
        """Returns the version without the tombstones that have expired at a time.

        If the table's property for that is not a duration, they are all kept.
        """
        try:
            kept = self.tombstones_at(now_ms)
        except DamagedError:
            return self
        return self if len(kept) == len(self.tombstones) else replace(self, tombstones=LayeredMap(kept))


def property_ms(configuration: Mapping[str, str | None], of: DurationProperty) -> int:
    """Returns the milliseconds of a duration such as `interval 1 week`, by the table's properties.

    See Delta fact 3.5. Months and years are refused, since their length differs.
    Raises `DamagedError` if it is not a duration.
    """
    text = configuration.get(of.name)
    if text is None:
        return of.default_ms
    total = duration_ms(text.strip().lower().removeprefix("interval").strip(), UNITS_MS)
    if total is None:
        message = f"the property {of.name} is {text!r}, which is not a duration"
        raise DamagedError(message, hint="set it to weeks, days or hours, as in `interval 1 week`")
    return total
