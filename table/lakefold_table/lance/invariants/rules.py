"""The invariants, each with its name, and whether it is cheap enough to be held before each publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError, StopError
from lakefold_table.lance.invariants import contents, heads
from lakefold_table.lance.invariants.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakefold_table.lance.state import LanceState


@dataclass(frozen=True, slots=True)
class Invariant:
    """`holds` gives what breaks it, empty where nothing does; it may raise `DamagedError` instead.

    `reason`: what would go wrong. `cheap`: it costs by the fragments that it is shown and is true of any part
    of them; the others must be shown all.
    """

    name: str
    reason: str
    holds: Callable[[Step], str]
    cheap: bool = True


INVARIANTS: Sequence[Invariant] = (
    Invariant("version-follows", "a gap ends every reader that asks for the next one", heads.version_follows),
    Invariant("ids-stay-used", "an index or a waiting proposal would mean other rows", heads.ids_stay_used),
    Invariant("row-ids-stay-stable", "other clients append rows without ids", heads.row_ids_stay_stable),
    Invariant("schema-is-sound", "no client can open the table", heads.schema_is_sound),
    Invariant("flags-tell-content", "a client that can't read it would read it", heads.flags_tell_content),
    Invariant("bases-are-known", "files would be looked for in another place", heads.bases_are_known),
    Invariant("indices-name-what-was", "a scan by index would lose rows", heads.indices_name_what_was),
    Invariant("fragment-ids-ascend", "pylance takes rows from wrong fragments", contents.ids_ascend),
    Invariant("fragments-have-rows", "filtered scans fail", contents.fragments_have_rows),
    Invariant("fields-lie-once", "which of two files is read is chance", contents.fields_lie_once),
    Invariant("fragments-keep-their-rows", "rows appear or vanish", contents.fragments_keep_their_rows),
    Invariant("deleted-rows-stay-deleted", "a delete is undone", contents.deleted_rows_stay_deleted),
    Invariant("row-ids-fit", "filtered scans fail, or an id is given twice", contents.row_ids_fit),
    Invariant("row-versions-fit", "change feeds tell of rows that aren't there", contents.row_versions_fit),
    Invariant("files-lie-once", "rows are there twice", contents.files_lie_once, cheap=False),
    Invariant("marks-grow", "entries would be folded twice", heads.marks_grow, cheap=False),
    Invariant("counts-add-up", "counts are answered from them", contents.counts_add_up, cheap=False),
    Invariant(
        "deletion-files-tell-truth",
        "count and scan disagree",
        contents.deletion_files_tell_truth,
        cheap=False,
    ),
    Invariant(
        "live-row-ids-are-unique", "a row id finds a wrong row", contents.live_row_ids_are_unique, cheap=False
    ),
)
"""All of them."""
CHEAP = tuple(one for one in INVARIANTS if one.cheap)


def faults(step: Step, invariants: Sequence[Invariant] = INVARIANTS) -> Iterator[tuple[Invariant, str]]:
    """Those that the step breaks, each with what breaks it."""
    for one in invariants:
        fault = broken(one, step)
        if fault:
            yield one, fault


def broken(invariant: Invariant, step: Step) -> str:
    """What breaks the invariant, empty where it holds."""
    try:
        return invariant.holds(step)
    except DamagedError as error:
        return str(error)


def check(before: LanceState | None, after: LanceState) -> None:
    """Holds a version that is about to be published against the cheap ones; costs by what it changes.

    Raises `DamagedError` where the version before broke the same already, else `StopError`: then the fault is
    ours, and nothing may be built on it.
    """
    found = (pair for step in Step.changed(before, after) for pair in faults(step, CHEAP))
    for one, fault in found:
        message = f"it would break {one.name}: {fault}"
        where = f"version {after.version}"
        if before is not None and broken(one, Step.whole(None, before)):
            raise DamagedError(
                message, where=where, hint=f"version {before.version} breaks it already: restore an older one"
            )
        raise StopError(
            message,
            where=where,
            hint=f"nothing was published ({one.reason}); report this, with the entries that lead to it",
        )
