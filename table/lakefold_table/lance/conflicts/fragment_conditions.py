"""Conditions on fragments, rows and values: one function for each (Lance facts 5.3, 5.4).

Each returns the evidence if the condition holds for the two operations, else None. "Ours" is the proposal,
"theirs" the operation that was committed before. The `rules` say how severe that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.lance.conflicts.rule import Evidence, met_fields, met_fragments
from lakefold_table.lance.verdicts import Rebase

if TYPE_CHECKING:
    from lakefold_table.lance.conflicts.footprint import Footprint


def shared_fragments(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both touch the same fragment."""
    return met_fragments(ours.touched & theirs.touched)


def removed_fragments(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs removed a fragment that ours touches."""
    return met_fragments(ours.touched & theirs.removed)


def shared_but_unmergeable(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both touch the same fragment, and their deleted rows can't be merged.

    To be mergeable ours must name the rows that it deletes, and both must keep the fragment with the same
    data files.
    """
    shared = ours.touched & theirs.touched
    return met_fragments(
        frozenset(fragment for fragment in shared if not _is_mergeable(ours, theirs, fragment))
    )


def shared_and_mergeable(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both delete rows of the same fragment, and ours names them."""
    shared = ours.touched & theirs.touched
    merges = frozenset(fragment for fragment in shared if _is_mergeable(ours, theirs, fragment))
    return Evidence(merges, rebase=Rebase(merges=merges)) if merges else None


def _is_mergeable(ours: Footprint, theirs: Footprint, fragment: int) -> bool:
    return (
        ours.rows is not None
        and fragment in ours.rows
        and fragment not in ours.removed
        and fragment not in theirs.removed
        and not ours.rewrites_columns
        and ours.files.get(fragment) == theirs.files.get(fragment)
    )


def rows_carried(ours: Footprint, theirs: Footprint, version: int) -> Evidence | None:
    """Theirs moved rows of fragments that ours deletes or moves, and they can be followed."""
    shared = ours.touched & theirs.touched
    if not shared or ours.rows is None or ours.rewrites_columns or theirs.moved is None:
        return None
    return Evidence(shared, rebase=Rebase(carries=frozenset({version})))


def rows_unnamed(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs moved rows of fragments that ours changes, and ours doesn't name its rows."""
    return met_fragments(ours.touched & theirs.touched) if ours.rows is None else None


def columns_of_rewritten(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs moved rows of fragments whose columns ours writes again."""
    return met_fragments(ours.touched & theirs.touched) if ours.rewrites_columns else None


def rows_unordered(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs moved rows of fragments that ours changes, and it is not known in which order."""
    return met_fragments(ours.touched & theirs.touched) if theirs.moved is None else None


def rows_lost(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs deleted or moved rows of fragments that ours rewrites, and left their values as they were."""
    shared = ours.touched & theirs.touched
    if not shared or ours.moved is None or _changed(ours, theirs):
        return None
    return Evidence(shared, rebase=Rebase(lost=shared))


def rewritten_unordered(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs deleted or moved rows of fragments that ours rewrites, perhaps in another order."""
    return met_fragments(ours.touched & theirs.touched) if ours.moved is None else None


def rewritten_values(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs changed values in fragments that ours rewrites."""
    return met_fragments(_changed(ours, theirs))


def _changed(ours: Footprint, theirs: Footprint) -> frozenset[int]:
    """Returns the fragments that ours rewrites and that have other data files after theirs."""
    kept = ours.touched & theirs.touched - theirs.removed
    if theirs.rewrites_columns:
        return kept
    return frozenset(number for number in kept if ours.files.get(number) != theirs.files.get(number))


def moved_rows_covered(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours moves rows whose values their overlay changed, or doesn't name the rows that it moves."""
    if not ours.moves_rows:
        return None
    return met_fragments(
        frozenset(fragment for fragment in ours.touched & theirs.touched if _covers(ours, theirs, fragment))
    )


def _covers(ours: Footprint, theirs: Footprint, fragment: int) -> bool:
    covered = theirs.covered.get(fragment)
    if ours.rows is None or covered is None:
        return True
    moved = ours.rows.get(fragment)
    return moved is not None and bool(moved & covered)


def overlaid_rows_moved(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs moved rows of a fragment that our overlay covers. Which rows these are is checked later."""
    shared = ours.touched & theirs.touched - theirs.removed
    if not theirs.moves_rows or not shared:
        return None
    return Evidence(shared, rebase=Rebase(compares=shared))


def dropped_fields(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs dropped a field whose values ours changes."""
    return met_fields(ours.fields - theirs.schema)


def same_values(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both change values of the same field in the same fragment."""
    shared = {
        fragment: fields & theirs.values.get(fragment, frozenset())
        for fragment, fields in ours.values.items()
        if fragment in theirs.values
    }
    met = {fragment: fields for fragment, fields in shared.items() if fields}
    return Evidence(frozenset(met), frozenset().union(*met.values())) if met else None


def rows_moved_away(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs moved rows out of a fragment in which ours replaces a column."""
    return met_fragments(ours.touched & theirs.touched) if theirs.moves_rows else None
