"""A reader of Spark says which package its executor lacks."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lakefold.spark_format import LakefoldFormat
from lakefold_table.errors import InvalidError
from tests.queries import copied, pickled

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceReader

HIDDEN = """
import pickle, sys
sys.modules["lakefold_reader"] = None
try:
    pickle.load(sys.stdin.buffer)
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.fixture
def reader(tmp_path: Path) -> DataSourceReader:
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "t")
    schema = StructType([StructField("id", LongType())])
    return LakefoldFormat({"path": str(tmp_path / "t")}).reader(schema)


def test_an_executor_without_lakefold_is_named(reader: DataSourceReader) -> None:
    """It can't load the classes of errors either, so this one is Python's."""
    program = [sys.executable, "-c", HIDDEN]
    said = subprocess.run(program, input=pickled(reader), capture_output=True, check=True).stdout
    assert f"executor on {platform.node()} can't read the table: it has no lakefold_reader" in said.decode()
    assert b"install lakefold[ingest]" in said
    assert b"PYSPARK_PYTHON" in said


def test_an_executor_without_pylance_is_named(
    reader: DataSourceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copied(reader)
    partitions = reader.partitions()
    assert [batch.to_pydict() for each in partitions for batch in other.read(each)] == [{"id": [1]}]

    def lacks(*_: object) -> None:
        raise ModuleNotFoundError(name="lance")

    monkeypatch.setattr(type(other._rows), "read", lacks)
    with pytest.raises(InvalidError, match=f"executor on {platform.node()} can't read .*: it has no lance"):
        next(other.read(partitions[0]))
