"""What is true of every version of a table, each invariant with its name and its reason.

Other clients don't check most of them: pylance opens a table whose next append will fail, or from which it
reads wrong rows (Lance fact 11.1). So a version is checked before it is published, and is not published if it
breaks an invariant, whatever the cause. Tests check more, which needs all rows and fragments of a version.

They look at the change of a version, so what a check costs depends on that. An invariant is a function of a
`Step`: a version, its predecessor, and the fragments to check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.invariants import Invariant, faults, unpublished
from lakefold_table.lance.invariants import fragments, metadata
from lakefold_table.lance.invariants.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.lance.state import LanceState


__all__ = ["INVARIANTS", "Step", "check"]

INVARIANTS: Sequence[Invariant[Step]] = (
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


def check(before: LanceState | None, after: LanceState) -> None:
    """Checks a version that is about to be published; the cost depends on its change.

    Raises `DamagedError` if the previous version breaks the same invariant, else `StopError`: then the fault
    is in this program, and nothing may be built on the version.
    """
    for step in Step.changed(before, after):
        for invariant, fault in faults(INVARIANTS, step):
            error = unpublished(invariant, fault, after.version)
            if before is not None and invariant.broken(Step.whole(None, before)):
                hint = f"version {before.version} breaks it already: restore an older version"
                raise DamagedError(error.message, where=error.where, hint=hint)
            raise error
