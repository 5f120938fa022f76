"""A read becomes few partitions of about one size, and none of its fragments is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_reader.lance.units import ROW_BYTES, bytes_of
from lakefold_reader.spark.partitions import OPEN_BYTES, Cut, grouped

SIZES = st.lists(st.integers(min_value=0, max_value=200 * 1024 * 1024), max_size=60)


@given(SIZES, st.integers(min_value=1, max_value=2**30), st.integers(min_value=1, max_value=80))
def test_partitions_hold_all_in_order_and_at_most_their_size(
    sizes: list[int], limit: int, wanted: int
) -> None:
    groups = grouped(sizes, int, Cut(limit, wanted))
    assert [size for group in groups for size in group] == sizes
    assert all(groups)
    assert len(groups) >= min(wanted, len(sizes))
    assert all(len(group) == 1 or sum(group) + len(group) * OPEN_BYTES <= limit for group in groups)


def test_100_000_small_fragments_are_no_100_000_tasks() -> None:
    groups = grouped([10_000] * 100_000, int, Cut())
    assert 500 < len(groups) < 1000


def test_nesting_fill_a_partition() -> None:
    assert grouped([30, 30, 30, 30], lambda size: size * OPEN_BYTES, Cut(62 * OPEN_BYTES)) == [
        (30, 30),
        (30, 30),
    ]


def test_a_fragment_is_as_large_as_its_files() -> None:
    files = [DataFile(file_size_bytes=700), DataFile(file_size_bytes=11)]
    assert bytes_of(DataFragment(files=files, physical_rows=5)) == 711
    assert bytes_of(DataFragment(files=[*files, DataFile()], physical_rows=5)) == 5 * ROW_BYTES
