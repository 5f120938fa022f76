"""The index of row ids against a plain dictionary, for ids in every form and in any number of fragments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.lance.scan.row_id_index import Addresses, RowIndex, StableIds
from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.fragments import Fragments
from lakefold_table.lance.rows.rowids import encode_row_ids, row_id_range
from tests.encoding import fragments_of

MOST = 2**64 - 1
STARTS = st.sampled_from([0, 1, 5, 40, 2**32 - 3, 2**40, MOST - 60])
STRETCHES = st.builds(lambda start, length: range(start, start + length), STARTS, st.integers(1, 60))
SCATTERED = st.lists(st.integers(0, 80), unique=True, max_size=40)
IDS = st.one_of(
    STRETCHES.map(list),
    SCATTERED,
    SCATTERED.map(sorted),
    st.lists(st.integers(MOST - 9, MOST), unique=True),
    st.sets(st.integers(0, 59)).map(lambda holes: [number for number in range(60) if number not in holes]),
)
CUTS = st.lists(st.integers(0, 40), max_size=3).map(sorted)


def fragment(number: int, ids: list[int], cuts: list[int]) -> DataFragment:
    """A fragment whose rows have these ids, listed in segments cut at these places."""
    values = np.array(ids, np.uint64)
    parts = [encode_row_ids(part) for part in np.split(values, cuts) if part.size]
    return DataFragment(id=number, physical_rows=len(ids), inline_row_ids=b"".join(parts))


def listing(fragments: list[DataFragment]) -> Fragments:
    """These fragments as a version lists them."""
    return fragments_of([fragment.SerializeToString() for fragment in fragments])


def pairs_of(index: RowIndex, ids: list[int]) -> set[tuple[int, int]]:
    """Pairs of an id and an address."""
    reported = index.find(np.array(ids, np.uint64))
    assert (reported.addresses[1:] > reported.addresses[:-1]).all()
    return {
        (ids[location], int(address))
        for location, address in zip(reported.which, reported.addresses, strict=True)
    }


@given(
    listed=st.lists(st.tuples(IDS, CUTS), max_size=6), asked=st.lists(st.integers(0, 2**64 - 1), max_size=5)
)
def test_every_address_of_every_id(listed: list[tuple[list[int], list[int]]], asked: list[int]) -> None:
    fragments = [fragment(3 * number, ids, cuts) for number, (ids, cuts) in enumerate(listed)]
    index = StableIds.of(listing(fragments))
    existing = {
        (row, (3 * number << 32) + index)
        for number, (ids, _) in enumerate(listed)
        for index, row in enumerate(ids)
    }
    known = {row for row, _ in existing}
    beside = {row + step for row in known for step in (-1, 1) if 0 <= row + step <= MOST}
    everything = sorted(known | beside | set(asked))
    assert pairs_of(index, everything) == existing
    assert pairs_of(index, everything[::-1]) == existing
    assert pairs_of(index, []) == set()


@given(rows=st.lists(st.integers(1, 5), max_size=5), data=st.data())
def test_without_stable_row_ids_an_id_is_an_address(rows: list[int], data: st.DataObject) -> None:
    fragments = [DataFragment(id=2 * number, physical_rows=count) for number, count in enumerate(rows)]
    addresses = st.builds(
        lambda number, location: (number << 32) + location, st.integers(0, 10), st.integers(0, 6)
    )
    asked = data.draw(st.lists(addresses, unique=True))
    existing = {(2 * number << 32) + index for number, count in enumerate(rows) for index in range(count)}
    assert pairs_of(Addresses(listing(fragments)), asked) == {
        (each, each) for each in asked if each in existing
    }


def test_a_fragment_that_does_not_say_its_rows_may_have_any() -> None:
    index = Addresses(listing([DataFragment(id=1)]))
    assert pairs_of(index, [7, (1 << 32) + 7]) == {((1 << 32) + 7, (1 << 32) + 7)}


@pytest.mark.parametrize("ids", [range(3), [5, 1]])
def test_a_fragment_with_more_or_fewer_ids_than_rows_is_damaged(ids: list[int]) -> None:
    broken = fragment(0, list(ids), [])
    broken.physical_rows = 4
    with pytest.raises(DamagedError, match=r"fragment 0: row sequence: . row ids for 4 rows"):
        StableIds.of(listing([broken]))


def test_a_hundred_thousand_appended_fragments_are_as_many_runs() -> None:
    fragments = [fragment(number, [number * 2, number * 2 + 1], []) for number in range(100_000)]
    index = StableIds.of(listing(fragments))
    assert (index.first.size, len(index.lasts)) == (100_000, 18)
    assert pairs_of(index, [0, 199_999, 200_000]) == {(0, 0), (199_999, (99_999 << 32) + 1)}


def ranges(bounds: list[tuple[int, int]]) -> Fragments:
    """A list of fragments of which each has the ids between two numbers."""
    reported = []
    for number, (first, behind) in enumerate(bounds):
        rows = behind - first
        reported.append(DataFragment(id=number, physical_rows=rows, inline_row_ids=row_id_range(first, rows)))
    return listing(reported)


def test_a_hundred_thousand_ranges_over_each_other() -> None:
    """As many pairs of them would be 10^10."""
    count = 100_000
    index = StableIds.of(ranges([(number, 2 * count - number) for number in range(count)]))
    assert sum(level.size for level in index.lasts) < 3 * count
    reported = index.find(np.array([0, 1, 9, 2 * count - 2, 2 * count], np.uint64))
    assert np.bincount(reported.which).tolist() == [1, 2, 10, 2]
    assert reported.addresses[reported.which == 1].tolist() == [1, 1 << 32]


def test_ids_that_are_in_too_many_rows_are_damage() -> None:
    count = 100_000
    index = StableIds.of(ranges([(number, count + 100) for number in range(count)]))
    assert index.find(np.arange(count, count + 20, dtype=np.uint64)).which.size == 20 * count
    with pytest.raises(DamagedError, match="100 row ids are in over"):
        index.find(np.arange(count, count + 100, dtype=np.uint64))
