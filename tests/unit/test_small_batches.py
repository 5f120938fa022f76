"""Which batches the driver writes itself, by the sizes of the newest ones."""

from __future__ import annotations

from typing import Any

import pytest

from lakefold_ingest.spark.file_layout import FileLayout
from lakefold_ingest.spark.small_batches import MOST_BYTES, MOST_ROWS, BatchSize, RecentSizes, recent_sizes
from lakefold_table.errors import InvalidError

HALF = MOST_BYTES // 2


def limit_after(*sizes: tuple[int, int], most: int = MOST_ROWS) -> int:
    recent = RecentSizes()
    for rows, size in sizes:
        recent.note(BatchSize(rows, size))
    return recent.row_limit(most)


def test_tasks_write_the_first_batch_of_a_writer() -> None:
    assert limit_after() == 0


@pytest.mark.parametrize(
    ("size", "limit"),
    [
        ((25_000, 1000), MOST_ROWS),
        ((25_001, 1000), 0),
        ((0, 0), MOST_ROWS),
        ((1, HALF + 1), 0),
        # Rows of 8 MiB, of which two may be in a batch; rows of a kilobyte.
        ((1, HALF), 2),
        ((100, 102_400), 16_384),
        ((8192, HALF), 16_384),
        # 1,000 rows of 9 kB: 16 MiB hold 1,864 of them, so a batch of as many could be too large.
        ((1000, 9_000_000), 0),
    ],
)
def test_a_batch_may_be_twice_as_large_as_the_one_before(size: tuple[int, int], limit: int) -> None:
    assert limit_after(size) == limit


def test_tasks_write_the_batch_after_one_that_spark_did_not_give() -> None:
    recent = RecentSizes()
    recent.note(BatchSize(1, 1))
    recent.forget()
    assert recent.row_limit(MOST_ROWS) == 0


def test_the_largest_and_the_widest_of_four_batches_count() -> None:
    large, small = (30_000, 60_000), (10, 100)
    assert limit_after(large, small, small, small) == 0
    assert limit_after(large, small, small, small, small) == MOST_ROWS
    assert limit_after((1, 4096), small) == 4096


def test_a_lower_limit_counts_for_the_newest_batches_as_well() -> None:
    assert limit_after((50, 500), most=100) == 100
    assert limit_after((51, 500), most=100) == 0
    assert limit_after((0, 0), most=0) == 0


def test_a_writer_is_known_by_its_table_and_app() -> None:
    recent_sizes("file:///a", "app").note(BatchSize(10, 100))
    assert recent_sizes("file:///a", "app").row_limit(MOST_ROWS) == MOST_ROWS
    assert recent_sizes("file:///a", "other").row_limit(MOST_ROWS) == 0
    for number in range(1000):
        recent_sizes("file:///b", str(number))
    assert recent_sizes("file:///a", "app").row_limit(MOST_ROWS) == 0


def test_files_of_a_size_have_as_many_rows_as_fit_by_the_newest_files() -> None:
    recent, layout = RecentSizes(), FileLayout(target_bytes=1000)
    assert layout.rows_a_file(recent.file_bytes_a_row()) is None
    recent.note_files(0, 0)
    recent.note_files(90, 1000)
    recent.note_files(10, 1000)
    assert recent.file_bytes_a_row() == 20
    assert layout.rows_a_file(20) == 50
    assert layout.rows_a_file(5000) == 1
    assert FileLayout(target_rows=7).rows_a_file(20) == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target_rows": 1, "target_bytes": 1}, "both say how large a file is"),
        ({"target_bytes": 0}, "0 is not above 0"),
        ({"driver_rows": 50_001}, "50001 is not between 0 and 50000"),
        ({"driver_rows": -1}, "-1 is not between"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        FileLayout(**given)


def test_rows_that_are_sorted_are_written_by_tasks_and_fewer_than_a_file_by_the_driver() -> None:
    assert FileLayout(sort_by=("n",)).most_on_driver == 0
    assert FileLayout(target_rows=10).most_on_driver == 10
    assert FileLayout(target_bytes=10).most_on_driver == MOST_ROWS
