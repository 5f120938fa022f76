"""Rows that are a stream can be read once. A second batch of them is refused, not taken for an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pa.table({"n": [1, 2, 3]})
STREAMS: dict[str, Callable[[], pa.RecordBatchReader]] = {
    "a table's": ROWS.to_reader,
    "of batches": lambda: pa.RecordBatchReader.from_batches(ROWS.schema, iter(ROWS.to_batches())),
    "duckdb's": lambda: duckdb.from_arrow(ROWS).to_arrow_reader(),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("whole", [True, False])
def test_a_stream_that_was_read_is_refused(name: str, *, whole: bool) -> None:
    stream = STREAMS[name]()
    source = RowSource(stream)
    if whole:
        assert source.table().num_rows == 3
    else:
        next(source.batches())
    with pytest.raises(InvalidError, match="the stream was read before"):
        RowSource(stream)
    with pytest.raises(InvalidError, match="the stream was read before"):
        source.table()


def test_a_stream_of_which_only_the_columns_were_read_is_taken() -> None:
    stream = ROWS.to_reader()
    assert RowSource(stream).schema == ROWS.schema
    assert RowSource(stream).table() == ROWS


@pytest.mark.parametrize("rows", [ROWS, pl.DataFrame({"n": [1, 2, 3]}), ROWS.to_pandas()])
def test_a_table_is_read_as_often_as_it_is_passed(rows: pa.Table) -> None:
    for _ in range(2):
        assert RowSource(rows).table()["n"].to_pylist() == [1, 2, 3]
