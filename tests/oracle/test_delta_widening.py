"""Columns of Delta tables get wider types by a batch that needs them, if the table allows it."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.delta.schemas import new_fields, schema_text
from lakefold_ingest.view import BatchColumns
from lakefold_reader.delta.new_files.stored_columns import fields_in
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError
from tests.delta_logs.actions import metadata, protocol_with, text
from tests.oracle.test_delta_writing import Written, field, log_of

if TYPE_CHECKING:
    from pathlib import Path


def test_what_does_not_fit_says_what_can_be_done_in_delta(tmp_path: Path) -> None:
    table = Written(tmp_path / "t")
    table.create(pa.schema([("n", pa.int32())]))
    with pytest.raises(InvalidError, match="n is int64 in the batch, int32") as raised:
        table.view().addition(BatchColumns(pa.schema([("n", pa.int64()), ("m", pa.int64())])))
    assert "wider types if delta.enableTypeWidening is true, which it is not here" in raised.value.hint
    on = {"delta.enableTypeWidening": "true"}
    wide = log_of(tmp_path / "wide", [field("n", "integer")], ["typeWidening"], **on)
    with pytest.raises(InvalidError, match="n is string in the batch") as raised:
        wide.view().addition(BatchColumns(pa.schema([("n", pa.string())])))
    assert "wider types within a kind; cast" in raised.value.hint


def test_columns_become_wider_before_the_rows_that_need_it(tmp_path: Path) -> None:
    """Only if the table allows it, and to types that keep all values."""
    names = ("n", "f", "d", "p", "day")
    narrow = (pa.int32(), pa.float32(), pa.decimal128(5, 2), pa.int16(), pa.date32())
    wide = (pa.int64(), pa.float64(), pa.decimal128(9, 4), pa.int32(), pa.timestamp("us"))
    inner = [pa.struct([("a", kind)]) for kind in (pa.int8(), pa.int16())]
    deep = (pa.list_(pa.list_(kind)) for kind in (pa.int16(), pa.int64()))
    narrow_nested, wide_nested = zip(
        deep,
        (pa.map_(pa.int8(), pa.float32()), pa.map_(pa.int32(), pa.float64())),
        map(pa.list_, inner),
        strict=True,
    )

    def rows(
        kinds: tuple[pa.DataType, ...], nested: tuple[pa.DataType, ...], struct: pa.DataType, number: int
    ) -> pa.Table:
        values = (number, 0.5, Decimal("1.25"), 7, dt.date(2026, 1, 1))
        arrays = [pa.array([each]).cast(kind) for each, kind in zip(values, kinds, strict=True)]
        contents = ([[1, None], None], [(1, 0.5)], [{"a": 1}])
        arrays += [pa.array([each], kind) for each, kind in zip(contents, nested, strict=True)]
        return pa.table([*arrays, pa.array([{"a": 1}], struct)], names=[*names, "l", "m", "ls", "s"])

    old, new = rows(narrow, narrow_nested, inner[0], 1), rows(wide, wide_nested, inner[1], 2**40)
    plain = Written(tmp_path / "plain", ("p",))
    plain.create(old.schema)
    with pytest.raises(InvalidError, match=r"doesn't fit the table: .*n"):
        plain.view().addition(BatchColumns(new.schema))
    table = Written(tmp_path / "t", ("p",))
    (table.path / "_delta_log").mkdir(parents=True)
    created = metadata(schema_text(new_fields(old.schema)), **{"delta.enableTypeWidening": "true"})
    created["metaData"]["partitionColumns"] = ["p"]
    protocol = protocol_with("typeWidening", "timestampNtz")
    (table.path / commit_path(0)).write_bytes(text([protocol, created]))
    table.append(old)
    with pytest.raises(InvalidError, match=r"doesn't fit the table: .*n"):
        table.view().addition(BatchColumns(pa.schema([("n", pa.float64())])))
    widening = table.view().addition(BatchColumns(new.schema))
    assert widening is not None
    assert widening.text == "the wider types of n, f, d, p, day, l, m, ls.a, s.a"
    (result,) = table.fold(widening.envelope)
    assert isinstance(result, Committed), result
    fields = {each["name"]: each["metadata"] for each in fields_in(table.view().metadata)}
    assert fields["l"]["delta.typeChanges"] == [
        {"fromType": "short", "toType": "long", "fieldPath": "element.element"}
    ]
    assert fields["m"]["delta.typeChanges"] == [
        {"fromType": "byte", "toType": "integer", "fieldPath": "key"},
        {"fromType": "float", "toType": "double", "fieldPath": "value"},
    ]
    assert fields["ls"] == {}
    assert table.view().addition(BatchColumns(new.schema)) is None
    table.append(new)
    read = lakefold.open(table.path).to_arrow().select(new.column_names).sort_by("n")
    assert read.schema.equals(new.schema)
    assert read.equals(
        pa.concat_tables(
            [rows(wide, wide_nested, inner[1], number) for number in (1, 2**40)]
        ).combine_chunks()
    )
    for where, count in (("n = 1", 1), ("p = 7", 2), ("d = 1.25", 2), ("n > 5", 1), ("f = 0.5", 2)):
        assert lakefold.open(table.path).to_arrow(filter=where).num_rows == count, where
    assert sorted(lakefold.changes(table.path, 0).read_all()["n"].to_pylist()) == [1, 2**40]


@pytest.mark.parametrize(
    ("columns", "configuration", "message"),
    [
        (
            [field("n", "integer"), field("m", "integer")],
            {"delta.constraints.few": "n < 10"},
            "'n' can't get the type long instead of integer: the constraint few uses it, which is 'n < 10'",
        ),
        (
            [field("n", "integer"), field("m", metadata={"delta.generationExpression": "n + 1"})],
            {},
            "'n' can't get the type long instead of integer: the generated column m uses it",
        ),
        (
            [field("n", "integer"), field("m", "integer")],
            {"delta.constraints.even": "m % 2 = 0"},
            "the constraint even, which is 'm % 2 = 0': a part of it is not understood",
        ),
    ],
    ids=["a constraint", "a generated column", "rows that can't be checked"],
)
def test_no_column_is_changed_for_rows_that_can_not_be_written(
    tmp_path: Path, columns: list[dict[str, Any]], configuration: dict[str, str], message: str
) -> None:
    features = ["typeWidening", "checkConstraints", "generatedColumns"]
    table = log_of(tmp_path / "t", columns, features, **configuration, **{"delta.enableTypeWidening": "true"})
    with pytest.raises(InvalidError, match=re.escape(message)):
        table.view().addition(BatchColumns(pa.schema([("n", pa.int64())])))


def test_a_column_becomes_wider_beside_one_that_a_constraint_uses(tmp_path: Path) -> None:
    columns, features = [field("n", "integer"), field("m", "integer")], ["typeWidening", "checkConstraints"]
    on = {"delta.constraints.few": "n < 10", "delta.enableTypeWidening": "true"}
    table = log_of(tmp_path / "t", columns, features, **on)
    rows = pa.table({"n": pa.array([1], pa.int32()), "m": [2**40]})
    widening = table.view().addition(BatchColumns(rows.schema))
    assert widening is not None
    assert widening.text == "the wider types of m"
    (result,) = table.fold(widening.envelope)
    assert isinstance(result, Committed), result
    table.append(rows)
    assert lakefold.open(table.path).to_arrow().to_pylist() == rows.to_pylist()
