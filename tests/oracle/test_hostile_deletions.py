"""Damaged deletion files: pylance may end the whole process over one, so it only gets those that we can read.

All damage of one sort is tried in a process of its own, which prints before each read what was damaged: so
the damage that ends the process is known. With the step 1 it is every byte with every value, which takes
minutes: `python -m tests.oracle.test_hostile_deletions SORT 1`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_reader.lance.scan import deletion_files as deletions
from lakefold_reader.spark.data_source import LakefoldSource
from lakefold_reader.tail.tail import tail
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.deletion_arrays import _batch, _Flat
from tests.queries import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 12_000
SORTS = {"array": "id in (1, 7, 300)", "packed": "id % 100 = 1", "bitmap": "id % 2 = 1"}
VALUES = (0x7F,)
SIZES = (2**40,)
"""Numbers that replace a length; no machine has that much memory."""


def spark_rows(uri: str) -> None:
    """The rows as tasks of Spark read them."""
    source = LakefoldSource({"path": uri})
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        list(reader.read(partition))


READS: dict[str, Callable[[str], object]] = {
    "rows": lambda uri: lakefold.open(uri).to_arrow(["id"]),
    "rows of an older version": lambda uri: lakefold.open(uri, 2).to_arrow(),
    "a filter": lambda uri: lakefold.open(uri).count_rows("id >= 0"),
    "ids": lambda uri: lakefold.open(uri).take([0, 3], ["id"]),
    "all content": lambda uri: next(tail(uri, 1)).feed().read_all(),
    "changes": lambda uri: lakefold.changes(uri, 1).read_all(),
    "Spark, a stream": lambda uri: Query(uri, startingVersion=2, readChangeFeed="true").batch(),
    "Spark, a version": spark_rows,
}


def made(folder: Path, sort: str) -> tuple[str, Path]:
    """A table some of whose rows are deleted, and its deletion file."""
    uri = str(folder / "t")
    lance.write_dataset(pa.table({"id": range(ROWS)}), uri, enable_stable_row_ids=True)
    lance.dataset(uri).delete(SORTS[sort])
    (file,) = (folder / "t" / "_deletions").iterdir()
    assert file.suffix == (".bin" if sort == "bitmap" else ".arrow")
    return uri, file


def damaged(data: bytes, step: int) -> Iterator[tuple[str, bytes]]:
    """The content with one thing wrong: a byte, a length, its end. `step` 1: all possible ones."""
    offsets = [*range(min(len(data), 700)), *range(700, len(data), 97)]
    for location in offsets[:: min(step, 3)]:
        for value in range(256) if step == 1 else VALUES:
            if data[location] != value:
                yield f"byte {location} = {value}", data[:location] + bytes([value]) + data[location + 1 :]
    for location in offsets[:-8:4]:
        for size in SIZES:
            number = size.to_bytes(8, "little", signed=True)
            yield f"length at {location} = {size}", data[:location] + number + data[location + 8 :]
    for length in range(0, len(data), step * (1 + len(data) // 400)):
        yield f"cut at {length}", data[:length]
    for more in (b"\0", bytes(64), data):
        yield f"{len(more)} bytes more", data + more


def play(sort: str, step: int) -> dict[str, int]:
    """Tries every damage of a sort. Returns how many were reported, and how many read as by pylance."""
    counts = {"refused": 0, "read": 0}
    with tempfile.TemporaryDirectory() as folder:
        uri, file = made(Path(folder), sort)
        for what, data in damaged(file.read_bytes(), step):
            file.write_bytes(data)
            deletions.forget()
            sys.stderr.write(f"{what}\n")
            actual = read(uri)
            if isinstance(actual, DamagedError):
                assert actual.where.endswith(file.name), (what, actual)
                counts["refused"] += 1
            else:
                assert actual.equals(lance.dataset(uri).to_table(columns=["id"])), what
                counts["read"] += 1
    return counts


def read(uri: str) -> pa.Table | DamagedError:
    """The rows, or the text of the error."""
    try:
        return lakefold.open(uri).to_arrow(["id"])
    except DamagedError as error:
        return error


@pytest.mark.parametrize("sort", SORTS)
def test_no_damage_ends_the_process(sort: str) -> None:
    module = [sys.executable, "-m", "tests.oracle.test_hostile_deletions"]
    process = subprocess.run([*module, sort, "13"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr.splitlines()[-3:]
    counts = json.loads(process.stdout)
    assert counts["refused"] > 100
    assert counts["read"] > 100 or sort == "bitmap", "a bit more or less shows in the number of rows"


@pytest.mark.parametrize("call", READS)
def test_every_way_of_reading_reports_it(tmp_path: Path, call: str) -> None:
    uri, file = made(tmp_path, "array")
    file.write_bytes(file.read_bytes()[:-1])
    if "older" in call:
        lance.write_dataset(pa.table({"id": [1]}), uri, mode="overwrite")
    with pytest.raises(DamagedError) as caught:
        READS[call](uri)
    assert caught.value.where == f"file://{file}"


def test_what_only_lance_finds_names_the_file_too(tmp_path: Path) -> None:
    """Arrow ignores a buffer of nulls if the number of nulls is 0; Lance unpacks it."""
    uri, file = made(tmp_path, "packed")
    data = file.read_bytes()
    nulls = _batch(_Flat(data, "")).body
    file.write_bytes(data[:nulls] + (15).to_bytes(8, "little") + data[nulls + 8 :])
    deletions.forget()
    with pytest.raises(DamagedError, match="corrupt file") as caught:
        lakefold.open(uri).to_arrow()
    assert caught.value.where == f"file://{file}"


def test_a_file_is_checked_once(tmp_path: Path) -> None:
    uri, file = made(tmp_path, "bitmap")
    whole = lakefold.open(uri).to_arrow()
    file.write_bytes(b"")
    with pytest.raises(DamagedError):
        lakefold.open(uri).to_arrow()
    deletions.forget()
    with pytest.raises(DamagedError, match="not a well-formed bitmap"):
        lakefold.open(uri).to_arrow()
    assert whole.num_rows == ROWS // 2


if __name__ == "__main__":
    sys.stdout.write(json.dumps(play(sys.argv[1], int(sys.argv[2]))))
