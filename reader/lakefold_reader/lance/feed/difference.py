"""Which rows two neighbouring versions of a table don't share, told from their fragments alone.

Nothing is read of the rows themselves. A fragment that both versions have tells by its deletion files which
rows went and came, and by its data files whether values changed in place; of all other fragments every row
went or came. Where rows have ids for life, one that went in one place and came in another is one row that
changed. It needs no transaction, so it tells what any client did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lakefold_table.errors import InvalidError
from lakefold_table.lance.operations import Kind
from lakefold_table.lance.rows.bitmaps import Bitmap, bitmap_of, numbers_of
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
"""After these a fragment has nothing to do with one of the same id before."""
DOUBTFUL = frozenset({Kind.RESTORE, Kind.UNKNOWN, Kind.DATA_OVERLAY})
"""After these a fragment is the one of the same id before only where both name a common data file."""
FIRST_VERSION = 1
"""The version that counts as having made a row if its fragment doesn't say (Lance fact 7.5)."""


class Rows(NamedTuple):
    """Rows of one fragment as a version has it; their offsets are None for all that aren't deleted."""

    fragment: DataFragment
    offsets: Bitmap | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two versions: the fragments of it that are looked at, by id, and the fields of its schema.

    `deleted` gives the offsets that a fragment's deletion file lists.
    """

    fragments: Mapping[int, DataFragment]
    fields: frozenset[int]
    deleted: Callable[[DataFragment], Bitmap]

    def gone_from(self, fragment: DataFragment) -> Bitmap:
        """The deleted rows of a fragment."""
        return self.deleted(fragment) if fragment.HasField("deletion_file") else Bitmap()


@dataclass(slots=True)
class RowDifference:
    """The rows that went, that came, and those that changed: as they were before, as they are after."""

    deleted: list[Rows] = field(default_factory=list)
    before: list[Rows] = field(default_factory=list)
    after: list[Rows] = field(default_factory=list)
    inserted: list[Rows] = field(default_factory=list)


def difference(
    before: Side,
    after: Side,
    kind: Kind,
    told: Mapping[int, Bitmap],
    *,
    lineage: bool,
    went: frozenset[int] = frozenset(),
) -> RowDifference:
    """What became of the rows of these fragments from one version to the next.

    `kind`: what made the next version. `told`: the rows whose values it says it changed, by fragment, where
    it tells. `lineage`: rows have ids for life. `went`: fields that only `before` has and whose loss counts
    as a change of the rows. Raises `DamagedError` where a fragment isn't what it says, `InvalidError` where
    it doesn't say how many rows it has, or has too many to follow, and that is needed.
    """
    found = RowDifference()
    for number in sorted(before.fragments.keys() | after.fragments.keys()):
        old, new = before.fragments.get(number), after.fragments.get(number)
        if old is not None and new is not None and _is_same(old, new, kind):
            changed = _has_other_values(old, new, before.fields, after.fields, went)
            _within(found, before, after, (old, new), kind, told.get(number), changed=changed)
            continue
        if old is not None:
            found.deleted.append(Rows(old))
        if new is not None:
            found.inserted.append(Rows(new))
    if lineage and kind not in ANEW and found.deleted and found.inserted:
        _follow(found, before, after, kind)
    return found


def live(side: Side, rows: Rows) -> Bitmap:
    """The offsets of some rows. Raises `InvalidError` where their fragment doesn't say how many it has."""
    if rows.offsets is not None:
        return rows.offsets
    if not rows.fragment.physical_rows:
        raise InvalidError(
            f"fragment {rows.fragment.id} doesn't say how many rows it has, so they can't be followed",
            hint="compact the table, which writes it anew, and go on from there",
        )
    check_rows(rows.fragment.physical_rows, f"fragment {rows.fragment.id}")
    return Bitmap(range(rows.fragment.physical_rows)) - side.gone_from(rows.fragment)


def _is_same(old: DataFragment, new: DataFragment, kind: Kind) -> bool:
    """Whether the fragment of the next version holds the same rows as the one before of the same id."""
    if kind in ANEW or old.physical_rows != new.physical_rows:
        return False
    return kind not in DOUBTFUL or not {file_key(one) for one in old.files}.isdisjoint(
        file_key(one) for one in new.files
    )


def _within(
    found: RowDifference,
    before: Side,
    after: Side,
    pair: tuple[DataFragment, DataFragment],
    kind: Kind,
    told: Bitmap | None,
    *,
    changed: bool,
) -> None:
    """Adds what became of the rows of a fragment that both versions have. `changed`: values of some did."""
    old, new = pair
    if old.deletion_file == new.deletion_file:
        gone_before = gone_after = before.gone_from(old) if changed else Bitmap()
    else:
        gone_before, gone_after = before.gone_from(old), after.gone_from(new)
    _add(found.deleted, old, gone_after - gone_before)
    _add(found.inserted, new, gone_before - gone_after)
    if changed:
        offsets = told if told is not None or kind in DOUBTFUL else _touched(old, new)
        if offsets is None and not gone_before and not gone_after:
            found.before.append(Rows(old))
            found.after.append(Rows(new))
            return
        there = offsets if offsets is not None else live(before, Rows(old))
        _add(found.before, old, there - gone_before - gone_after)
        _add(found.after, new, there - gone_before - gone_after)


def _add(rows: list[Rows], fragment: DataFragment, offsets: Bitmap) -> None:
    if offsets:
        rows.append(Rows(fragment, offsets))


def _has_other_values(
    old: DataFragment, new: DataFragment, before: frozenset[int], after: frozenset[int], went: frozenset[int]
) -> bool:
    """Whether a field that the next version has lies elsewhere than it did, or was not there before.

    A column that only went changes nothing unless it is one of `went`; one that lies in no file is null on
    both sides.
    """
    was, now = field_locations(old), field_locations(new)
    return (
        list(old.overlays) != list(new.overlays)
        or any((was.get(number) if number in before else None) != now.get(number) for number in after)
        or any(was.get(number) is not None for number in went)
    )


def _touched(old: DataFragment, new: DataFragment) -> Bitmap | None:
    """The rows of a fragment that its lineage says were changed, None where it says that of none.

    Then values changed all the same: an update that doesn't say which rows it changed notes none (Lance
    fact 7.7), so it may be any.
    """
    if old.inline_last_updated_at_versions == new.inline_last_updated_at_versions:
        return None
    moved = _last_changed(old) != _last_changed(new)
    return bitmap_of(np.flatnonzero(moved).astype(np.uint32)) if bool(moved.any()) else None


def _follow(found: RowDifference, before: Side, after: Side, kind: Kind) -> None:
    """Makes of a row that went in one place and came in another one that changed.

    A version that doesn't tell what made it may be a compaction: there the row is the same where its lineage
    says that nothing changed it.
    """
    went, came = (
        _laid_out(before, found.deleted),
        _laid_out(after, found.inserted),
    )
    _, at_went, at_came = np.intersect1d(went.ids, came.ids, return_indices=True)
    if not at_went.size:
        return
    changed = np.ones(at_went.size, dtype=np.bool_)
    if kind is Kind.UNKNOWN:
        changed = went.changed()[at_went] != came.changed()[at_came]
    found.deleted, found.inserted = list(went.without(at_went)), list(came.without(at_came))
    if bool(changed.any()):
        found.before += went.only(at_went[changed])
        found.after += came.only(at_came[changed])


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """Rows of several fragments one after the other: whose they are, their offsets and ids."""

    fragments: Sequence[DataFragment]
    owners: NDArray[np.int64]
    offsets: NDArray[np.uint32]
    ids: Numbers

    def changed(self) -> Numbers:
        """The version that changed each row last."""
        ends = np.searchsorted(self.owners, np.arange(1, len(self.fragments)))
        parts = np.split(self.offsets, ends)
        return np.concatenate(
            [_last_changed(one)[some] for one, some in zip(self.fragments, parts, strict=True)]
        )

    def only(self, places: NDArray[np.int64]) -> Iterator[Rows]:
        """The rows at these places."""
        places = np.sort(places)
        owners, starts = np.unique(self.owners[places], return_index=True)
        for owner, some in zip(owners.tolist(), np.split(self.offsets[places], starts[1:]), strict=True):
            yield Rows(self.fragments[owner], bitmap_of(some))

    def without(self, places: NDArray[np.int64]) -> Iterator[Rows]:
        """All rows but those at these places."""
        others = np.ones(self.ids.size, dtype=np.bool_)
        others[places] = False
        return self.only(np.flatnonzero(others)) if bool(others.any()) else iter(())


def _laid_out(side: Side, rows: Sequence[Rows]) -> _LaidOut:
    fragments = [one.fragment for one in rows]
    offsets = [numbers_of(live(side, one)) for one in rows]
    ids = [_row_ids(one)[some] for one, some in zip(fragments, offsets, strict=True)]
    owners = np.repeat(np.arange(len(fragments)), [some.size for some in offsets])
    return _LaidOut(fragments, owners, np.concatenate(offsets), np.concatenate(ids))


def _row_ids(fragment: DataFragment) -> Numbers:
    return decode_row_ids(fragment.inline_row_ids, fragment.physical_rows, f"fragment {fragment.id}")


def _last_changed(fragment: DataFragment) -> Numbers:
    if not fragment.HasField("inline_last_updated_at_versions"):
        return np.full(fragment.physical_rows, FIRST_VERSION, np.uint64)
    data, rows = fragment.inline_last_updated_at_versions, fragment.physical_rows
    return decode_versions(data, rows, f"fragment {fragment.id}")
