"""Errors show rows with values that Python lacks: times after the year 9999, unknown zones, bad texts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from lakefold_ingest.delta.row_rules import RowRule, RuledFitting
from lakefold_ingest.merge.batch_keys import KEY, BadKeysError, BatchKeys, check_present
from lakefold_ingest.merge.conditions import RowCondition
from lakefold_ingest.rows.fitting import Fitting
from lakefold_ingest.rows.row_faults import python_values, row_texts
from lakefold_ingest.rows.task_files import MisfitRowsError
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_ingest.rows.target import Target

BEYOND = 253_402_300_800_000_005
"""5 µs into the year 10000, in µs."""
VALUES = {
    "timestamp": pa.array([BEYOND]).cast(pa.timestamp("us")),
    "instant": pa.array([BEYOND]).cast(pa.timestamp("us", "UTC")),
    "seconds": pa.array([2**62]).cast(pa.timestamp("s")),
    "before": pa.array([-(2**62)]).cast(pa.timestamp("ms")),
    "zone": pa.array([BEYOND]).cast(pa.timestamp("us", "No/Where")),
    "date": pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
    "long date": pa.array([86_400_000 * 2**31]).view(pa.date64()),
    "time": pa.array([2**62]).view(pa.time64("us")),
    "duration": pa.array([2**62]).cast(pa.duration("s")),
    "text": pa.array([b"\xff"]).view(pa.string()),
}
KEYS = {name: value for name, value in VALUES.items() if name != "text"}

WRITTEN = {name: value for name, value in KEYS.items() if name != "time"}
"""Texts that are not UTF-8 and times beyond a day are bad rows of their own."""


def nested(value: pa.Array) -> dict[str, pa.Array]:
    return {
        "plain": value,
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), value),
        "list": pa.ListArray.from_arrays([0, 1], value),
        "large list": pa.LargeListArray.from_arrays([0, 1], value),
        "fixed list": pa.FixedSizeListArray.from_arrays(value, 1),
        "struct": pa.StructArray.from_arrays([value, pa.array([1])], ["x", "y"]),
        "map": pa.MapArray.from_arrays([0, 1], pa.array(["a"]), value),
        "deep": pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([value], ["x"])),
    }


@pytest.mark.parametrize("name", VALUES)
def test_values_that_python_lacks_are_numbers_or_bytes(name: str) -> None:
    for kind, array in nested(VALUES[name]).items():
        with pytest.raises((KeyError, OverflowError, ValueError)):
            array.to_pylist()
        for column in (array, pa.chunked_array([array])):
            (value,) = python_values(column)
            assert all(isinstance(each, int | bytes) for each in numbers(value)), kind
        (text,) = row_texts(pa.table({"n": [7], "x": array}))
        assert json.loads(text)["n"] == 7


@pytest.mark.parametrize("name", KEYS)
def test_keys_in_several_rows_and_nulls_beside_keys_are_named(name: str) -> None:
    keys = pa.concat_arrays([KEYS[name]] * 2)
    with pytest.raises(BadKeysError, match=r"in several rows of the batch: 1, such as k=-?[0-9]"):
        BatchKeys(pa.table({"k": keys})).check_unique()
    rows = pa.table({"k": keys, "j": ["a", None]})
    with pytest.raises(BadKeysError, match=r"such as row 1 \(k=-?[0-9]+, j=None\)") as caught:
        check_present(rows, ["k", "j"], KEY, ["k", "j"], "t")
    assert caught.value.examples[0]["j"] is None


@pytest.mark.parametrize("name", WRITTEN)
def test_rows_that_break_a_rule_or_a_condition_are_shown(name: str) -> None:
    for array in nested(VALUES[name]).values():
        rows = pa.record_batch({"v": [-5], "x": array})
        ruled = RuledFitting(rows.schema, (0, 1), (RowRule("a rule", "v > 0"),), rows.schema, "t")
        with pytest.raises(InvalidError, match=r"1 rows don't meet a rule.*'v': -5"):
            ruled.apply(rows)
        target = cast("Target", SimpleNamespace(fitting=Fitting(rows.schema, (0, 1))))
        condition = RowCondition("v > 0", rows.schema, "replaceWhere")
        with pytest.raises(MisfitRowsError, match=r"rows of the batch don't satisfy.*\"v\": -5"):
            list(condition.fitted(target, [rows]))


def numbers(value: object) -> list[object]:
    """The values in a value, at any depth, which are no names."""
    if isinstance(value, dict):
        return [each for item in value.values() for each in numbers(item)]
    if isinstance(value, list | tuple):
        return [each for item in value for each in numbers(item) if each != b"a"]
    return [value]
