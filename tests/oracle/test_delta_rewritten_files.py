"""Of a file that is written again the rows that changed count alone, also in the change feed."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_reader.format.value_numbers import value_numbers
from tests.delta_merging import DeltaFolding, delta_rs_rows
from tests.oracle.test_delta_merges import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold_ingest.writing.operation import Operation

NESTED = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string()), ("n", NESTED)])


def rows(ids: Sequence[int], v: int = 0) -> pa.Table:
    nested = [{"x": float(n % 3), "y": ["a"] * (n % 4)} if n % 5 else None for n in ids]
    columns = [list(ids), [v] * len(ids), [f"p{n % 2}" for n in ids], nested]
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


OPERATIONS: dict[str, Operation] = {
    "delete by keys": delete_keys(rows([1, 5, 700]).select(["id"]), ["id"]),
    "delete by a condition": DeleteWhere("id = 3 OR id > 17"),
    "upsert": UpsertRows(rows([2, 4, 100, 101], 1), Merge(("id",))),
    "upsert of new rows": UpsertRows(rows([102]), Merge(("id",))),
    "events": ApplyChanges(
        rows([6, 8, 200], 2).append_column("op", pa.array(["u", "d", "i"])),
        change_format("id", operation_column="op", operations=None),
    ),
}


def counted(table: Sequence[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(row) for row in table)


def changes(path: Path, version: int) -> tuple[Counter[str], Counter[str]]:
    """The rows that a version removed and added by its feed."""
    sides: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for row in lakefold.changes(path, version - 1, version).read_all().to_pylist():
        kind = row["_change_type"]
        sides[kind in ("insert", "update_postimage")][repr({name: row[name] for name in SCHEMA.names})] += 1
    return sides


@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.parametrize("kind", KINDS)
def test_changed_rows_alone_are_counted_and_in_the_feed(
    tmp_path: Path, kind: str, partition_by: tuple[str, ...]
) -> None:
    folding = DeltaFolding(tmp_path / "t")
    folding.create(SCHEMA, KINDS[kind], partition_by)
    for start in (0, 10):
        folding.append(rows(range(start, start + 10)))
    for name, operation in OPERATIONS.items():
        before = counted(lakefold.open(folding.path).to_arrow().to_pylist())
        result = folding.put(operation)
        assert result is not None
        after = counted(lakefold.open(folding.path).to_arrow().to_pylist())
        gone, new = before - after, after - before
        assert (result.rows_deleted, result.rows_added) == (gone.total(), new.total()), name
        assert changes(folding.path, result.version) == (gone, new), name
        traffic = next(iter(lakefold.open(folding.path).history()))
        assert (traffic.rows_in, traffic.rows_out) == (new.total(), gone.total()), name


def test_the_rows_that_a_merge_of_delta_rs_left_are_no_changes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), rows([*range(1000), 7, 7, 7]), partition_by=["p"])
    before = counted(lakefold.open(path).to_arrow().to_pylist())
    source = rows([3, 2000], 5)
    (
        DeltaTable(str(path))
        .merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    DeltaTable(str(path)).delete("id = 7 OR id = 9")
    after = [counted(lakefold.open(path, version).to_arrow().to_pylist()) for version in (1, 2)]
    assert changes(path, 1) == (before - after[0], after[0] - before)
    assert changes(path, 2) == (after[0] - after[1], Counter())
    assert changes(path, 2)[0].total() == 5
    assert len(delta_rs_rows(path)) == after[1].total()


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        pa.scalar(1e20),
        pa.scalar(0.1, pa.float32()),
        pa.scalar(Decimal("1.20"), pa.decimal128(9, 2)),
    ],
    ids=lambda value: str(value.type),
)
def test_rows_of_a_partition_whose_value_others_write_otherwise_are_no_changes(
    tmp_path: Path, value: pa.Scalar
) -> None:
    """delta-rs and Lakefold write different texts of one value."""
    folding = DeltaFolding(tmp_path / "t")
    rows = pa.table({"id": [1, 2], "p": pa.repeat(value, 2), "v": ["a", "b"]})
    write_deltalake(folding.path, rows, partition_by=["p"])
    folding.put(UpsertRows(pa.table({"id": [1], "v": ["u"]}), Merge(("id",))))
    feed = lakefold.changes(folding.path, 0).read_all().to_pylist()
    assert [(row["id"], row["v"], row["_change_type"]) for row in feed] == [
        (1, "a", "delete"),
        (1, "u", "insert"),
    ]


def test_a_column_that_is_not_read_distinguishes_rows_as_well(tmp_path: Path) -> None:
    folding = DeltaFolding(tmp_path / "t")
    folding.create(SCHEMA, {})
    folding.append(rows(range(10)))
    folding.put(UpsertRows(rows([4], 1), Merge(("id",))))
    shown = lakefold.changes(folding.path, 1, columns=["id"]).read_all()
    assert shown.select(["id", "_change_type"]).to_pylist() == [
        {"id": 4, "_change_type": kind} for kind in ("delete", "insert")
    ]


def test_an_overwrite_with_the_same_rows_replaces_them(tmp_path: Path) -> None:
    for mode in ("error", "overwrite"):
        write_deltalake(str(tmp_path / "t"), rows(range(3)), mode=mode)
    kinds = lakefold.changes(tmp_path / "t", 0, rewritten="rows").read_all()["_change_type"].to_pylist()
    assert sorted(kinds) == ["delete"] * 3 + ["insert"] * 3


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", None, "", "a", "é", None]),
    "bytes": (pa.binary(), [b"a", None, b"", b"a", b"\xff", b""]),
    "number": (pa.int64(), [1, None, 0, 1, -1, 0]),
    "float": (pa.float64(), [1.5, None, 0.0, 1.5, float("inf"), 0.0]),
    "boolean": (pa.bool_(), [True, None, False, True, False, None]),
    "decimal": (pa.decimal128(5, 2), [Decimal("1.50"), None, Decimal(0), Decimal("1.5"), None, Decimal(-1)]),
    "date": (pa.date32(), [dt.date(1500, 1, 1), None, dt.date.max, dt.date(1500, 1, 1), None, dt.date.min]),
    "list": (pa.list_(pa.int64()), [[1, 2], None, [], [1, 2], [1, None], []]),
    "lists": (pa.list_(pa.list_(pa.string())), [[["a"], []], None, [[]], [["a"], []], [None], []]),
    "struct": (
        NESTED,
        [{"x": 1.0, "y": ["a"]}, None, {"x": None, "y": None}, {"x": 1.0, "y": ["a"]}, {}, None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("a", 1)], [("a", None)], [("b", 1)]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_have_one_number_if_they_are_equal(name: str) -> None:
    kind, values = VALUES[name]
    arrays = [pa.array(values, kind), pa.array(values[::-1], kind).slice(1, 4), pa.array([], kind)]
    texts = [repr(value) for array in arrays for value in array.to_pylist()]
    numbers = value_numbers(arrays)
    _, expected = np.unique(texts, return_inverse=True)
    assert [[a == b for b in numbers] for a in numbers] == [[a == b for b in expected] for a in expected]
