"""Values of an older schema in the shape of a newer one: matched by id, never by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefold_protos.lance.file_pb2 import Field
from lakefold_reader.lance.feed.values import Shape, shaped, with_bytes

PAIR = pa.struct([("x", pa.int8()), ("y", pa.int8())])


def fields(*ids: int) -> list[Field]:
    """A struct of x and y, or more of them."""
    names = ["s", "x", "y"]
    return [
        Field(id=number, name=name, parent_id=-1 if name == "s" else ids[0], logical_type="int8")
        for number, name in zip(ids, names, strict=True)
    ]


def test_a_field_that_has_the_name_of_another_is_null() -> None:
    then, now = fields(0, 1, 2), fields(0, 1, 3)
    values = pa.array([{"x": 1, "y": 2}, None, {"x": 3, "y": None}], PAIR)
    actual = shaped(values, PAIR, 0, 0, Shape.of(now, then, {0: 0, 1: 1}))
    assert actual.to_pylist() == [{"x": 1, "y": None}, None, {"x": 3, "y": None}]
    same = Shape.of(now, then, {0: 0, 1: 1, 3: 2})
    assert shaped(values, PAIR, 0, 0, same) is values


def test_lists_of_any_slice() -> None:
    then = [Field(id=0, name="l", parent_id=-1), Field(id=1, name="item", parent_id=0)]
    then += [Field(id=2, name="x", parent_id=1), Field(id=3, name="y", parent_id=1)]
    now = [*then[:2], Field(id=3, name="z", parent_id=1)]
    shape = Shape.of(now, then, {0: 0, 1: 1, 3: 3})
    lists = [[{"x": 1, "y": 2}], None, [], [None, {"x": 3, "y": 4}], [{"x": 5, "y": 6}]]
    for make in (pa.list_, pa.large_list):
        values = pa.array(lists, make(PAIR))
        kind = make(pa.struct([("z", pa.int16())]))
        expected = [None if rows is None else [row and {"z": row["y"]} for row in rows] for rows in lists]
        for start in range(len(lists)):
            actual = shaped(values.slice(start, 3), kind, 0, 0, shape)
            actual.validate(full=True)
            assert (actual.type, actual.to_pylist()) == (kind, expected[start : start + 3])


def test_a_value_of_another_form_raises_an_error() -> None:
    shape = Shape.of(fields(0, 1, 2), [Field(id=0, name="s", parent_id=-1)], {0: 0})
    with pytest.raises(pa.ArrowNotImplementedError, match="can't be shown"):
        shaped(pa.array([1]), PAIR, 0, 0, shape)


def test_types_without_blobs_stay() -> None:
    assert with_bytes(pa.map_(pa.int8(), PAIR)) == pa.map_(pa.int8(), PAIR)
