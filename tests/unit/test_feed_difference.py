"""What two versions don't share, found from fragments made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.lance.feed.difference import RowDifference, Rows, Side, difference
from lakefold_reader.lance.feed.sides import unlike
from lakefold_table.bitmaps import Bitmap
from lakefold_table.errors import InvalidError
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.rows.row_versions import encode_versions
from lakefold_table.lance.rows.rowids import encode_row_ids

FIELDS = frozenset({0, 1})


def fragment(
    number: int, *names: str, rows: int = 3, deleted: int = 0, ids: range | None = None
) -> DataFragment:
    """A fragment of two columns, both in one file or each in its own."""
    fragment = DataFragment(id=number, physical_rows=rows)
    for index, name in enumerate(names):
        file = fragment.files.add(path=name)
        held = [0, 1] if len(names) == 1 else [index]
        file.fields.extend(held)
        file.column_indices.extend(range(len(held)))
    if deleted:
        fragment.deletion_file.id = deleted
    if ids is not None:
        fragment.inline_row_ids = encode_row_ids(np.array(ids, np.uint64))
    return fragment


def changed(each: DataFragment, *versions: int) -> DataFragment:
    """The fragment whose rows were last changed by these versions."""
    each.inline_last_updated_at_versions = encode_versions(np.array(versions, np.uint64))
    return each


def side(*fragments: DataFragment, fields: frozenset[int] = FIELDS) -> Side:
    """A version of these fragments; a deletion file of id n deletes row n."""
    return Side(
        {fragment.id: fragment for fragment in fragments},
        fields,
        lambda fragment: Bitmap([fragment.deletion_file.id]),
    )


def difference_of(
    before: Side, after: Side, kind: Kind, reported: dict[int, Bitmap] | None = None, *, lineage: bool = False
) -> dict[str, list[tuple[int, list[int] | None]]]:
    """What became of which rows: fragment and offsets."""
    told_of = difference(before, after, kind, reported or {}, lineage=lineage)
    return {
        name: [_plain(rows) for rows in getattr(told_of, name)]
        for name in RowDifference.__slots__
        if getattr(told_of, name)
    }


def _plain(rows: Rows) -> tuple[int, list[int] | None]:
    return rows.fragment.id, None if rows.offsets is None else list(rows.offsets)


def test_a_fragment_of_the_same_id_is_another_one_if_it_shares_no_file() -> None:
    before, after = side(fragment(4, "a")), side(fragment(4, "b"))
    in_place = {"before": [(4, None)], "after": [(4, None)]}
    anew = {"deleted": [(4, None)], "inserted": [(4, None)]}
    assert difference_of(before, after, Kind.DATA_REPLACEMENT) == in_place
    for kind in (Kind.RESTORE, Kind.UNKNOWN, Kind.OVERWRITE):
        assert difference_of(before, after, kind) == anew
    shared = side(fragment(4, "a", "b")), side(fragment(4, "a", "c"))
    assert difference_of(*shared, Kind.RESTORE) == in_place
    assert difference_of(side(fragment(4, "a")), side(fragment(4, "b", rows=2)), Kind.MERGE) == anew


def test_deleted_rows_go_and_come_and_are_not_among_those_that_changed() -> None:
    before, after = side(fragment(4, "a", deleted=1)), side(fragment(4, "b", deleted=2))
    assert difference_of(before, after, Kind.MERGE) == {
        "deleted": [(4, [2])],
        "inserted": [(4, [1])],
        "before": [(4, [0])],
        "after": [(4, [0])],
    }
    assert difference_of(before, side(fragment(4, "a", deleted=1)), Kind.UNKNOWN) == {}
    values = {4: Bitmap([0, 1])}
    assert difference_of(before, side(fragment(4, "b", deleted=1)), Kind.UPDATE, values)["after"] == [
        (4, [0])
    ]


def test_columns_that_go_change_nothing_and_those_that_come_do() -> None:
    single = fragment(4, "a", "b")
    few = frozenset({0})
    assert difference_of(side(single), side(single, fields=few), Kind.UNKNOWN) == {}
    assert difference_of(side(single, fields=few), side(single), Kind.UNKNOWN) == {
        "before": [(4, None)],
        "after": [(4, None)],
    }


def test_rows_that_moved_are_known_by_their_ids() -> None:
    before = side(changed(fragment(4, "a", ids=range(10, 13)), 1, 1, 1), fragment(5, "x", ids=range(20, 23)))
    after = side(changed(fragment(6, "b", ids=range(11, 14)), 1, 2, 2))
    moved = {"deleted": [(4, [0]), (5, [0, 1, 2])], "inserted": [(6, [2])]}
    assert difference_of(before, after, Kind.UPDATE, lineage=True) == moved | {
        "before": [(4, [1, 2])],
        "after": [(6, [0, 1])],
    }
    assert difference_of(before, after, Kind.UNKNOWN, lineage=True) == moved | {
        "before": [(4, [2])],
        "after": [(6, [1])],
    }
    whole = {"deleted": [(4, None), (5, None)], "inserted": [(6, None)]}
    assert (
        difference_of(before, after, Kind.UPDATE)
        == difference_of(before, after, Kind.OVERWRITE, lineage=True)
        == whole
    )


def test_rows_of_an_unknown_number_are_not_followed() -> None:
    before, after = side(fragment(4, "a", rows=0, ids=range(3))), side(fragment(5, "b", rows=0, ids=range(3)))
    assert difference_of(before, after, Kind.UPDATE) == {"deleted": [(4, None)], "inserted": [(5, None)]}
    with pytest.raises(InvalidError, match="fragment 4 doesn't say how many rows it has"):
        difference_of(before, after, Kind.UPDATE, lineage=True)
    before, after = side(fragment(4, "a", rows=2**62)), side(fragment(5, "b", rows=2**62))
    with pytest.raises(InvalidError, match="can't be decoded"):
        difference_of(before, after, Kind.UPDATE, lineage=True)


def test_fragments_that_are_the_same_are_passed_over() -> None:
    many = [Numbered.of(fragment(number, f"{number:040}")) for number in range(5000)]
    before = Fragments.of(many)
    other, new = fragment(17, "other"), fragment(5001, "new")
    after = Fragments.of([*many[:17], Numbered.of(other), *many[18:4000], *many[4001:], Numbered.of(new)])
    old, now = unlike(before, after)
    assert (sorted(old), sorted(now)) == ([17, 4000], [17, 5001])
    assert now[17] == other
    assert unlike(before, before) == ({}, {})
    assert unlike(before, Fragments())[1] == {}
