"""The invariants: their names and reasons, and the check of a version that is about to be published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError, StopError
from lakefold_table.lance.invariants import fragments, metadata
from lakefold_table.lance.invariants.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.lance.state import LanceState


@dataclass(frozen=True, slots=True)
class Invariant:
    """An invariant. `holds` returns what breaks it, or an empty string; it may also raise `DamagedError`.

    `reason`: what goes wrong if it is broken. Its cost depends on the fragments of the step, so it can be
    checked for some of a version's fragments at a time.
    """

    name: str
    reason: str
    holds: Callable[[Step], str]


INVARIANTS: Sequence[Invariant] = (
    Invariant("version-follows", "a reader can't continue after a gap", metadata.version_follows),
    Invariant(
        "ids-stay-used", "an index or a waiting proposal would refer to other rows", metadata.ids_stay_used
    ),
    Invariant(
        "row-ids-stay-stable", "other clients would append rows without ids", metadata.row_ids_stay_stable
    ),
    Invariant("schema-is-sound", "no client can open the table", metadata.schema_is_sound),
    Invariant(
        "flags-match-content", "a client that can't read it would try to", metadata.flags_match_content
    ),
    Invariant("bases-are-known", "files would be read from another path", metadata.bases_are_known),
    Invariant("indices-are-consistent", "a scan by index would lose rows", metadata.indices_are_consistent),
    Invariant("fragment-ids-ascend", "pylance takes rows from wrong fragments", fragments.ids_ascend),
    Invariant("fragments-have-rows", "filtered scans fail", fragments.fragments_have_rows),
    Invariant(
        "fields-are-stored-once", "a reader may choose either of two files", fragments.fields_are_stored_once
    ),
    Invariant("fragments-keep-their-rows", "rows appear or vanish", fragments.fragments_keep_their_rows),
    Invariant("deleted-rows-stay-deleted", "a delete is undone", fragments.deleted_rows_stay_deleted),
    Invariant("row-ids-fit", "filtered scans fail, or an id is given twice", fragments.row_ids_fit),
    Invariant("row-versions-fit", "change feeds contain rows that don't exist", fragments.row_versions_fit),
)
"""All invariants."""


def faults(step: Step) -> Iterator[tuple[Invariant, str]]:
    """Yields the invariants that the step breaks, each with what breaks it."""
    for invariant in INVARIANTS:
        fault = broken(invariant, step)
        if fault:
            yield invariant, fault


def broken(invariant: Invariant, step: Step) -> str:
    """Returns what breaks the invariant, or an empty string if it holds."""
    try:
        return invariant.holds(step)
    except DamagedError as error:
        return str(error)


def check(before: LanceState | None, after: LanceState) -> None:
    """Checks a version that is about to be published; the cost depends on its change.

    Raises `DamagedError` if the previous version breaks the same invariant, else `StopError`: then the fault
    is in this program, and nothing may be built on the version.
    """
    broken_invariants = (pair for step in Step.changed(before, after) for pair in faults(step))
    for invariant, fault in broken_invariants:
        message = f"it would break {invariant.name}: {fault}"
        where = f"version {after.version}"
        if before is not None and broken(invariant, Step.whole(None, before)):
            raise DamagedError(
                message,
                where=where,
                hint=f"version {before.version} breaks it already: restore an older version",
            )
        raise StopError(
            message,
            where=where,
            hint=f"nothing was published ({invariant.reason}); report this, with the entries that led to it",
        )
