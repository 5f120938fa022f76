"""Spark's Python processes, which collect garbage after each call, don't look through what was imported."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lakefold.spark_format import LakefoldFormat
from lakefold_table.errors import InvalidError

SCHEMA = StructType([StructField("id", LongType())])


def test_a_process_of_spark_spares_what_was_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    freezes: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(len(sys.modules)))

    def write() -> None:
        with pytest.raises(InvalidError):
            LakefoldFormat({"nope": "1"}).writer(SCHEMA, overwrite=False)

    write()
    assert not freezes, "the process of an application keeps its collections"
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    write()
    write()
    assert freezes == [len(sys.modules)]
    monkeypatch.setitem(sys.modules, "imported_by_the_next_call", ModuleType("imported_by_the_next_call"))
    write()
    assert freezes == [len(sys.modules) - 1, len(sys.modules)]
