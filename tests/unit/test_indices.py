"""What becomes of indices where fragments and columns change: nothing is touched without need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lance.table_pb2 import IndexMetadata
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.indexing.indices import (
    coverage,
    effective_coverage,
    is_address_based,
    type_of,
    with_fragments,
    without_fields,
    without_fragments,
    without_idle,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

BITMAP = "/lance.table.BitmapIndexDetails"
BTREE = "/lance.table.BTreeIndexDetails"


def index(
    name: str,
    fields: Sequence[int] = (0,),
    covers: Collection[int] | None = (0, 1),
    kind: str = BITMAP,
    version: int | None = 0,
    built: int = 1,
) -> IndexMetadata:
    """An entry. If `covers` is None, it doesn't record its coverage."""
    entry = IndexMetadata(name=name, fields=fields, index_version=version, dataset_version=built)
    entry.uuid.uuid = name.encode().ljust(16, b"\0")[:16]
    entry.index_details.type_url = kind
    if covers is not None:
        entry.fragment_bitmap = encode_bitmap(Bitmap(covers))
    return entry


def covered(indices: Sequence[IndexMetadata]) -> list[list[int] | None]:
    values = [coverage(index) for index in indices]
    return [None if each is None else list(each) for each in values]


def live(*ids: int) -> frozenset[int]:
    return frozenset(ids)


@pytest.mark.parametrize(
    ("kind", "version", "by_address"),
    [
        (BTREE, None, False),
        (BTREE, 0, False),
        (BTREE, 1, True),
        ("type.googleapis.com/lance.index.pb.BTreeIndexDetails", 2, True),
        ("/lance.table.ZoneMapIndexDetails", None, True),
        ("/lance.index.pb.BloomFilterIndexDetails", 0, True),
        (BITMAP, 1, False),
        ("/lance.index.pb.VectorIndexDetails", 1, False),
        ("/lance.table.InvertedIndexDetails", 2, False),
        ("/somebody.Unknown", 1, False),
        ("", 1, False),
    ],
)
def test_which_indices_know_rows_by_address(kind: str, version: int | None, by_address: bool) -> None:  # noqa: FBT001 - a parameter
    assert is_address_based(index("i", kind=kind, version=version)) is by_address


def test_the_type_is_what_follows_the_last_dot() -> None:
    assert type_of(index("i")) == "BitmapIndexDetails"
    assert type_of(IndexMetadata()) == ""


def test_coverage_counts_as_far_as_fragments_exist() -> None:
    single = index("i", covers=(1, 5, 9))
    assert effective_coverage(single, live(5, 6).intersection) == Bitmap([5])
    assert effective_coverage(index("i", covers=None), live(5).intersection) is None


def test_a_bitmap_that_is_none_is_damage_by_name() -> None:
    with pytest.raises(DamagedError, match="index a_idx"):
        coverage(IndexMetadata(name="a_idx", fragment_bitmap=b"\x01\x02"))


def test_changed_values_leave_the_coverage_of_their_indices_only() -> None:
    before = [index("a", (0,)), index("b", (1,)), index("ab", (0, 1)), index("uncovered", (0,), None)]
    after = without_fragments(before, [0], [1, 7])
    assert covered(after) == [[0], [0, 1], [0], None]
    assert after[1] is before[1]
    assert after[3] is before[3]
    assert covered(before)[0] == [0, 1]


def test_an_index_may_come_to_cover_nothing() -> None:
    (after,) = without_fragments([index("a")], [0], [0, 1])
    assert list(coverage(after) or [99]) == [99]
    assert after.fragment_bitmap


@pytest.mark.parametrize(("fields", "fragments"), [([5], [0]), ([0], [7]), ([], [0]), ([0], [])])
def test_nothing_changes_if_nothing_is_covered(fields: list[int], fragments: list[int]) -> None:
    before = [index("a")]
    assert without_fragments(before, fields, fragments) is before


def test_an_index_goes_with_any_of_its_fields() -> None:
    before = [index("a", (0,)), index("ab", (0, 1)), index("own", ()), index("b", (1,))]
    assert [index.name for index in without_fields(before, [1, 2])] == ["own", "b"]
    assert without_fields(before, [0, 1]) is before


def test_moved_rows_are_covered_if_rows_are_known_by_id() -> None:
    before = [
        index("ids", (1,)),
        index("changed", (0, 1)),
        index("half", (1,), (0,)),
        index("address", (1,), kind=BTREE, version=1),
        index("uncovered", (1,), None),
    ]
    after = with_fragments(before, [0], [0, 1], [5, 6])
    assert covered(after) == [[0, 1, 5, 6], [0, 1], [0], [0, 1], None]
    assert all(index is other for index, other in zip(after[1:], before[1:], strict=True))
    assert with_fragments(before, [0], [0, 1], []) is before
    assert with_fragments(before[1:], [0], [0, 1], [5]) == before[1:]


def test_segments_that_cover_nothing_are_removed_if_another_covers_rows() -> None:
    before = [
        index("i", covers=(0, 1)),
        index("i", covers=(8,)),
        index("i", covers=()),
        index("i", covers=None),
    ]
    after = without_idle(before, live(1, 2).intersection)
    assert [first is before[index] for first, index in zip(after, (0, 3), strict=True)] == [True, True]


def test_the_oldest_of_segments_that_cover_nothing_stays() -> None:
    before = [
        index("i", covers=(7,), built=9),
        index("i", covers=(8,), built=3),
        index("i", covers=(9,), built=3),
    ]
    (kept,) = without_idle(before, live(1).intersection)
    assert kept is before[1]


def test_a_lone_index_stays_whatever_it_covers() -> None:
    before = [
        index("i", covers=(7,)),
        index("j", covers=()),
        index("k", covers=(1,)),
        index("k", covers=(2,)),
    ]
    assert without_idle(before, live(1, 2).intersection) is before


def test_a_long_coverage_is_searched_to_its_end() -> None:
    before = [index("i", covers=range(1000)), index("i", covers=range(1000, 2000))]
    assert without_idle(before, live(999, 1999).intersection) is before
    assert list(without_idle(before, live(999).intersection)) == before[:1]
