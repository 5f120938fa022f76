"""Finds the rows that two consecutive versions of a table don't share, from their fragments alone.

No rows are read. For a fragment that both versions have, the deletion files show which rows were removed and
added, and the data files show whether values changed in place. Of all other fragments every row was removed
or added. If rows have ids for life, a row that was removed in one fragment and added in another is one row
that changed. No transaction is needed, so this works for versions of any client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lakefold_table.bitmaps import Bitmap, bitmap_of, numbers_of
from lakefold_table.errors import InvalidError
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.rows.row_versions import decode_versions
from lakefold_table.lance.rows.rowids import decode_row_ids
from lakefold_table.lance.rows.segments import check_rows
from lakefold_table.lance.schemas.fragment_files import field_locations, file_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment

    Numbers = NDArray[np.uint64]

ANEW = frozenset({Kind.OVERWRITE, Kind.CLONE})
"""After these operations a fragment with an old id is a new fragment."""
DOUBTFUL = frozenset({Kind.RESTORE, Kind.UNKNOWN, Kind.DATA_OVERLAY})
"""After these operations a fragment with an old id is the old fragment only if both name one data file."""
FIRST_VERSION = 1
"""The version that counts as having made a row if its fragment doesn't record it (Lance fact 7.5)."""


class Rows(NamedTuple):
    """Rows of a fragment as a version has it. `offsets` is None for all rows that aren't deleted."""

    fragment: DataFragment
    offsets: Bitmap | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Either of the two versions: the fragments of it that are compared, by id, and the fields of its schema.

    `deleted` returns the offsets that a fragment's deletion file lists.
    """

    fragments: Mapping[int, DataFragment]
    fields: frozenset[int]
    deleted: Callable[[DataFragment], Bitmap]

    def deleted_rows(self, fragment: DataFragment) -> Bitmap:
        """Returns the deleted rows of a fragment."""
        return self.deleted(fragment) if fragment.HasField("deletion_file") else Bitmap()


@dataclass(slots=True)
class RowDifference:
    """The rows that were removed, those that were added, and those that changed: before and after."""

    deleted: list[Rows] = field(default_factory=list)
    before: list[Rows] = field(default_factory=list)
    after: list[Rows] = field(default_factory=list)
    inserted: list[Rows] = field(default_factory=list)


def difference(
    before: Side,
    after: Side,
    kind: Kind,
    changed_offsets: Mapping[int, Bitmap],
    *,
    lineage: bool,
    dropped: frozenset[int] = frozenset(),
) -> RowDifference:
    """Returns what became of the rows of these fragments from one version to the next.

    `kind`: what made the next version. `changed_offsets`: the rows whose values it says it changed, by
    fragment, if it says so. `lineage`: rows have ids for life. `dropped`: fields that only `before` has and
    whose loss counts as a change of the rows. Raises `DamagedError` if a fragment's content contradicts it,
    and `InvalidError` if the number of its rows is needed and not recorded, or too large.
    """
    rows_changed = RowDifference()
    for number in sorted(before.fragments.keys() | after.fragments.keys()):
        old, new = before.fragments.get(number), after.fragments.get(number)
        if old is not None and new is not None and _is_same(old, new, kind):
            changed = _has_other_values(old, new, before.fields, after.fields, dropped)
            _within(
                rows_changed, before, after, (old, new), kind, changed_offsets.get(number), changed=changed
            )
            continue
        if old is not None:
            rows_changed.deleted.append(Rows(old))
        if new is not None:
            rows_changed.inserted.append(Rows(new))
    if lineage and kind not in ANEW and rows_changed.deleted and rows_changed.inserted:
        _follow(rows_changed, before, after, kind)
    return rows_changed


def live(side: Side, rows: Rows) -> Bitmap:
    """Returns the offsets of some rows.

    Raises `InvalidError` if their fragment doesn't record how many it has.
    """
    if rows.offsets is not None:
        return rows.offsets
    if not rows.fragment.physical_rows:
        raise InvalidError(
            f"fragment {rows.fragment.id} doesn't say how many rows it has, so they can't be followed",
            hint="compact the table, which rewrites it, and continue from there",
        )
    check_rows(rows.fragment.physical_rows, f"fragment {rows.fragment.id}")
    return Bitmap(range(rows.fragment.physical_rows)) - side.deleted_rows(rows.fragment)


def _is_same(old: DataFragment, new: DataFragment, kind: Kind) -> bool:
    """Returns whether the fragment with this id holds the same rows in both versions."""
    if kind in ANEW or old.physical_rows != new.physical_rows:
        return False
    return kind not in DOUBTFUL or not {file_key(file) for file in old.files}.isdisjoint(
        file_key(file) for file in new.files
    )


def _within(
    rows_changed: RowDifference,
    before: Side,
    after: Side,
    pair: tuple[DataFragment, DataFragment],
    kind: Kind,
    changed_offsets: Bitmap | None,
    *,
    changed: bool,
) -> None:
    """Adds the differing rows of a fragment that both versions have. `changed`: values changed."""
    old, new = pair
    if old.deletion_file == new.deletion_file:
        gone_before = gone_after = before.deleted_rows(old) if changed else Bitmap()
    else:
        gone_before, gone_after = before.deleted_rows(old), after.deleted_rows(new)
    _add(rows_changed.deleted, old, gone_after - gone_before)
    _add(rows_changed.inserted, new, gone_before - gone_after)
    if changed:
        offsets = changed_offsets if changed_offsets is not None or kind in DOUBTFUL else _touched(old, new)
        if offsets is None and not gone_before and not gone_after:
            rows_changed.before.append(Rows(old))
            rows_changed.after.append(Rows(new))
            return
        offsets_changed = offsets if offsets is not None else live(before, Rows(old))
        _add(rows_changed.before, old, offsets_changed - gone_before - gone_after)
        _add(rows_changed.after, new, offsets_changed - gone_before - gone_after)


def _add(rows: list[Rows], fragment: DataFragment, offsets: Bitmap) -> None:
    if offsets:
        rows.append(Rows(fragment, offsets))


def _has_other_values(
    old: DataFragment,
    new: DataFragment,
    before: frozenset[int],
    after: frozenset[int],
    dropped: frozenset[int],
) -> bool:
    """Returns whether a field of the next version is stored in another file than before, or is new.

    A column that was dropped changes nothing unless it is in `dropped`; a column that is in no file is null
    on both sides.
    """
    was, now = field_locations(old), field_locations(new)
    return (
        list(old.overlays) != list(new.overlays)
        or any((was.get(number) if number in before else None) != now.get(number) for number in after)
        or any(was.get(number) is not None for number in dropped)
    )


def _touched(old: DataFragment, new: DataFragment) -> Bitmap | None:
    """Returns the rows of a fragment that its lineage says were changed.

    Returns None if the lineage says so of no row. Values changed nevertheless: an update that doesn't say
    which rows it changed records none (Lance fact 7.7), so it may be any rows.
    """
    if old.inline_last_updated_at_versions == new.inline_last_updated_at_versions:
        return None
    moved = _last_changed(old) != _last_changed(new)
    return bitmap_of(np.flatnonzero(moved).astype(np.uint32)) if bool(moved.any()) else None


def _follow(rows_changed: RowDifference, before: Side, after: Side, kind: Kind) -> None:
    """Turns a row that was removed in a fragment and added in another into a changed row.

    A version without a known operation may be a compaction: then the row is unchanged if its lineage says so.
    """
    removed, added = (
        _laid_out(before, rows_changed.deleted),
        _laid_out(after, rows_changed.inserted),
    )
    _, at_removed, at_added = np.intersect1d(removed.ids, added.ids, return_indices=True)
    if not at_removed.size:
        return
    changed = np.ones(at_removed.size, dtype=np.bool_)
    if kind is Kind.UNKNOWN:
        changed = removed.changed()[at_removed] != added.changed()[at_added]
    rows_changed.deleted, rows_changed.inserted = (
        list(removed.without(at_removed)),
        list(added.without(at_added)),
    )
    if bool(changed.any()):
        rows_changed.before += removed.only(at_removed[changed])
        rows_changed.after += added.only(at_added[changed])


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """Returns the rows of several fragments in order: their fragments, offsets and ids."""

    fragments: Sequence[DataFragment]
    owners: NDArray[np.int64]
    offsets: NDArray[np.uint32]
    ids: Numbers

    def changed(self) -> Numbers:
        """Returns the version that changed each row last."""
        ends = np.searchsorted(self.owners, np.arange(1, len(self.fragments)))
        parts = np.split(self.offsets, ends)
        return np.concatenate(
            [
                _last_changed(fragment)[offsets]
                for fragment, offsets in zip(self.fragments, parts, strict=True)
            ]
        )

    def only(self, indices: NDArray[np.int64]) -> Iterator[Rows]:
        """Yields the rows at these indices."""
        indices = np.sort(indices)
        owners, starts = np.unique(self.owners[indices], return_index=True)
        for owner, some in zip(owners.tolist(), np.split(self.offsets[indices], starts[1:]), strict=True):
            yield Rows(self.fragments[owner], bitmap_of(some))

    def without(self, indices: NDArray[np.int64]) -> Iterator[Rows]:
        """Returns all rows but those at these indices."""
        others = np.ones(self.ids.size, dtype=np.bool_)
        others[indices] = False
        return self.only(np.flatnonzero(others)) if bool(others.any()) else iter(())


def _laid_out(side: Side, rows: Sequence[Rows]) -> _LaidOut:
    fragments = [each.fragment for each in rows]
    offsets = [numbers_of(live(side, each)) for each in rows]
    ids = [_row_ids(each)[chosen] for each, chosen in zip(fragments, offsets, strict=True)]
    owners = np.repeat(np.arange(len(fragments)), [chosen.size for chosen in offsets])
    return _LaidOut(fragments, owners, np.concatenate(offsets), np.concatenate(ids))


def _row_ids(fragment: DataFragment) -> Numbers:
    return decode_row_ids(fragment.inline_row_ids, fragment.physical_rows, f"fragment {fragment.id}")


def _last_changed(fragment: DataFragment) -> Numbers:
    if not fragment.HasField("inline_last_updated_at_versions"):
        return np.full(fragment.physical_rows, FIRST_VERSION, np.uint64)
    data, rows = fragment.inline_last_updated_at_versions, fragment.physical_rows
    return decode_versions(data, rows, f"fragment {fragment.id}")
