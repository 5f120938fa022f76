"""A stream of rows that has raised an error raises it again, and never looks complete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold
from lakefold_reader.row_stream import row_stream
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

import lance

BATCH = pa.record_batch({"n": [1]})


@pytest.mark.parametrize("error", [LakefoldError("gone"), KeyboardInterrupt()])
def test_each_further_read_raises_the_error_again(error: BaseException) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise error

    stream = row_stream(BATCH.schema, batches())
    assert stream.read_next_batch() == BATCH
    for read in (stream.read_next_batch, stream.read_all, stream.read_next_batch):
        with pytest.raises(type(error)):
            read()


def test_a_stream_without_error_ends() -> None:
    stream = row_stream(BATCH.schema, [BATCH, BATCH])
    assert stream.read_all().num_rows == 2
    with pytest.raises(StopIteration):
        stream.read_next_batch()


@pytest.mark.parametrize(
    "reader",
    [
        lambda uri: partial(lakefold.changes, uri, 1),
        lambda uri: next(lakefold.tail(uri, start=7)).feed,
        lambda uri: lakefold.open(uri).to_reader,
    ],
    ids=["changes", "a change", "a version"],
)
def test_rows_whose_file_was_away_for_a_moment_are_not_left_out(
    tmp_path: Path, reader: Callable[[str], Callable[[], pa.RecordBatchReader]]
) -> None:
    uri = str(tmp_path / "t.lance")
    for number in range(8):
        lance.write_dataset(pa.table({"n": [number]}), uri, mode="append" if number else "create")
    (file,) = lance.dataset(uri).get_fragments()[7].data_files()
    path = tmp_path / "t.lance" / "data" / file.path
    read = reader(uri)
    path.rename(path.with_suffix(".away"))  # before the stream begins, since pylance reads ahead
    stream = read()
    with pytest.raises(LakefoldError):
        list(stream)
    path.with_suffix(".away").rename(path)
    with pytest.raises(LakefoldError):
        stream.read_all()
