"""The formats whose tables are maintained. The only module outside `lance/` and `delta/` that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_maintenance.delta.format import DeltaMaintenance
from lakefold_maintenance.lance.format import LanceMaintenance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_maintenance.format import MaintenanceFormat
    from lakefold_protos.lakefold.log_pb2 import Envelope

FORMATS: Final[dict[str, MaintenanceFormat]] = {
    each.name: each for each in (LanceMaintenance(), DeltaMaintenance())
}
"""The formats, by the names that the reader has for them."""


def format_of(envelope: Envelope) -> MaintenanceFormat | None:
    """Returns the format of an envelope's proposal; None for a claim, and for other formats."""
    return FORMATS.get(envelope.WhichOneof("proposal") or "")


def files_of(envelope: Envelope) -> Iterable[str]:
    """Returns the paths of the files that a proposal names in the table's own folders."""
    format_ = format_of(envelope)
    return () if format_ is None else format_.files_of(envelope)


def files_named_by_chance(envelope: Envelope) -> list[str]:
    """Returns those of `files_of` whose names no other file has."""
    format_ = format_of(envelope)
    return [] if format_ is None else list(filter(format_.is_unique, format_.files_of(envelope)))
