"""Errors name options as their user gave them: those of Spark, of verbs, of Python's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lakefold.cli import run
from lakefold.spark_format import LakefoldFormat
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.options.write_options import SPARK_NAMES
from lakefold_table.errors import InvalidError, options_named

if TYPE_CHECKING:
    from pathlib import Path

DELETE = {"path": "memory://named", "writeMode": "delete", "keys": "id", "orderBy": "at"}
BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
UPSERT = {"path": "memory://named", "writeMode": "upsert", "keys": "id"} | BROKERS


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (DELETE, "orderBy"),
        (
            UPSERT | {"whenNotMatchedBySourceSet": "b=1"},
            "whenNotMatchedBySourceSet and whenNotMatchedBySourceUpdate",
        ),
        (UPSERT | {"badRecordsColumns": "a"}, "badRecordsColumns"),
    ],
)
def test_a_write_of_spark_names_its_options(options: dict[str, str], names: str) -> None:
    schema = StructType([StructField("id", LongType())])
    with pytest.raises(InvalidError) as raised:
        LakefoldFormat(options).writer(schema, overwrite=False)
    assert raised.value.where == names
    assert "_" not in raised.value.hint


def test_a_function_names_its_parameters() -> None:
    with pytest.raises(InvalidError) as raised:
        merge_of("delete", "id", "at")
    assert raised.value.where == "order_by"


def test_a_verb_names_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}")
    options = ["--keys", "id", "--update-columns", "a", "--when-matched-delete", "true"]
    assert run(["upsert", str(tmp_path / "t"), str(rows), *options]) == 2
    said = capsys.readouterr().err
    assert "--update-columns and --when-matched-update: one of them has no meaning" in said
    assert "when_" not in said


def test_names_are_replaced_as_whole_words_and_not_in_paths() -> None:
    names = {"order_by": "orderBy", "keys": "--keys"}
    path = "file:///lake/order_by"
    with pytest.raises(InvalidError) as raised, options_named(names):
        raise InvalidError("keys in reorder_by", where=path, hint='order_by="a", or order_by.')
    error = raised.value
    assert "" not in SPARK_NAMES
    assert (error.message, error.where) == ("keys in reorder_by", path)
    assert error.hint == 'orderBy="a", or orderBy.'
