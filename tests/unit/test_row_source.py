"""Rows that are a stream can be read once, and what fails then is said, with the type that it had.

A second batch of a stream is refused, not taken for an empty one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from lakefold_ingest.rows import row_source
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.errors import InvalidError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_rows_ahead_are_read_once_and_yielded_with_the_others(
    monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    monkeypatch.setattr(row_source, "AHEAD_BYTES", 9)
    batches = ROWS.to_batches(max_chunksize=1)
    read: list[int] = []

    def given() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            read.append(number)
            yield batch

    stream = pa.RecordBatchReader.from_batches(ROWS.schema, given())
    source = RowSource(pa.Table.from_batches(batches) if is_whole else stream, checks=True)
    for _ in range(2):
        assert len(source.ahead()) == (3 if is_whole else 2)
    assert read == ([] if is_whole else [0, 1])
    assert list(source.batches()) == batches
    assert source.checksum
    if is_whole:
        assert list(source.batches()) == batches


class Other:
    """A stream as other libraries have them: of an error it passes on the text."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.reader = reader

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader.__arrow_c_stream__(requested_schema)


class Own(Other):
    """A table of Lakefold's, or a `pyarrow.Table`."""

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


ERRORS = [
    RetryError("the store", where="it", hint="wait"),
    KeyError("k"),
    OSError(5, "no disk"),
    ValueError("v"),
    KeyboardInterrupt("c"),
    ZeroDivisionError("z"),
]
READS: dict[str, Callable[[RowSource], object]] = {
    "batches": lambda source: list(source.batches()),
    "ahead": RowSource.ahead,
    "table": RowSource.table,
}


def failing(error: BaseException) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise error

    return pa.RecordBatchReader.from_batches(ROWS.schema, batches())


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_while_rows_are_read_keeps_its_type_or_is_named(error: BaseException, read: str) -> None:
    for rows in (failing(error), Own(failing(error))):
        with pytest.raises(type(error)) as caught:
            READS[read](RowSource(rows))
        assert caught.value is error
    for rows in (Other(failing(error)), pa.RecordBatchReader.from_stream(Other(failing(error)))):
        with pytest.raises(InvalidError, match="the rows can't be read") as named:
            READS[read](RowSource(rows))
        assert str(error) in named.value.message
        assert "Traceback" not in str(named.value)
        assert named.value.__cause__ is not None


@pytest.mark.parametrize("read", READS)
def test_an_error_of_arrow_s_is_named(read: str) -> None:
    with pytest.raises(InvalidError, match="the rows can't be read: no number"):
        READS[read](RowSource(failing(pa.ArrowInvalid("no number"))))
