"""A batch with wider types has the table's columns written again; pylance reads each version."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.lance import widening
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_table.entry import Committed, Rejected
from lakefold_table.errors import InvalidError
from tests.merging import people
from tests.oracle.test_evolution import FoldedLog, Storage, appending, evolve, made, put, rows_of

if TYPE_CHECKING:
    from pathlib import Path

US = pa.timestamp("us")
INT, LONG, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
LEAVES: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType, object, object, object]] = {
    "a byte": (pa.int8(), pa.int16(), pa.int16(), 1, 300, 1),
    "an int": (INT, LONG, LONG, 1, 2**40, 1),
    "a float": (FLOAT, DOUBLE, DOUBLE, 0.5, 1e300, 0.5),
    "a decimal": (
        pa.decimal128(5, 2),
        pa.decimal128(6, 4),
        pa.decimal128(7, 4),
        Decimal("123.45"),
        Decimal("12.3456"),
        Decimal("123.4500"),
    ),
    "a date": (pa.date32(), US, US, date(2024, 2, 29), datetime(2024, 3, 1, 1, 2, 3), datetime(2024, 2, 29)),  # noqa: DTZ001 - they have no zone
}
NULLS: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType, object, object, object]] = {
    f"nulls, then {kind}": (pa.null(), given, kind, None, value, None)
    for given, kind, value in (
        (LONG, LONG, 1),
        (pa.string(), pa.string(), "a"),
        (pa.dictionary(INT, pa.string()), pa.string(), "a"),
        (pa.bool_(), pa.bool_(), True),
        (pa.decimal128(38, 2), pa.decimal128(38, 2), Decimal("1.50")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), datetime(2024, 3, 1, tzinfo=UTC)),
        (pa.list_(FLOAT, 2), pa.list_(FLOAT, 2), [0.5, 1.0]),
    )
}
INNER_NULLS: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType, object, object, object]] = {
    "nulls in a struct": (
        pa.struct([("x", pa.null()), ("y", INT)]),
        pa.struct([("x", pa.string())]),
        pa.struct([("x", pa.string()), ("y", INT)]),
        {"x": None, "y": 1},
        {"x": "a"},
        {"x": None, "y": 1},
    ),
    "nulls in a list": (pa.list_(pa.null()), pa.list_(INT), pa.list_(INT), [None], [1], [None]),
}
NESTED: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType, object, object, object]] = {
    "a struct, with a new field": (
        pa.struct([("x", INT), ("z", pa.string())]),
        pa.struct([("x", LONG), ("y", pa.bool_())]),
        pa.struct([("x", LONG), ("z", pa.string()), ("y", pa.bool_())]),
        {"x": 1, "z": "q"},
        {"x": 2**40, "y": True},
        {"x": 1, "z": "q", "y": None},
    ),
    "a list": (pa.list_(INT), pa.list_(LONG), pa.list_(LONG), [1, None], [2**40], [1, None]),
    "structs in a list": (
        pa.list_(pa.struct([("x", FLOAT)])),
        pa.list_(pa.struct([("x", DOUBLE)])),
        pa.list_(pa.struct([("x", DOUBLE)])),
        [{"x": 0.5}, None],
        [{"x": 1e300}],
        [{"x": 0.5}, None],
    ),
}
MAPS: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType, object, object, object]] = {
    "a map": (
        pa.map_(INT, pa.list_(INT)),
        pa.map_(LONG, pa.list_(LONG)),
        pa.map_(LONG, pa.list_(LONG)),
        [(1, [1])],
        [(2**40, [2**40])],
        [(1, [1])],
    )
}
SOME = {name: LEAVES[name] for name in ("an int",)}
CASES = [
    pytest.param(version, *case, id=f"{name} in {version}")
    for version, cases in {
        "2.0": SOME | NULLS,
        "2.1": SOME | NESTED | NULLS,
        "2.2": LEAVES | NESTED | MAPS | NULLS | INNER_NULLS,
    }.items()
    for name, case in cases.items()
]


@pytest.mark.parametrize(("version", "narrow", "given", "wide", "old", "new", "shown"), CASES)
def test_values_stay_and_wider_ones_follow(
    tmp_path: Path,
    version: Storage,
    narrow: pa.DataType,
    given: pa.DataType,
    wide: pa.DataType,
    old: object,
    new: object,
    shown: object,
) -> None:
    """Rows that are deleted stay deleted, older versions stay as they are, and narrow batches still fit."""
    first = pa.table({"id": [1, 2, 3, 4], "c": pa.array([old, None, old, old], narrow)})
    folding = made(tmp_path / "t", first, data_storage_version=version, max_rows_per_file=3)
    dataset = lance.dataset(str(folding.path))
    dataset.delete("id = 1")
    before = dataset.version
    put(folding, appending(pa.table({"id": [5, 6], "c": pa.array([new, None], given)})))
    assert lance.dataset(str(folding.path)).schema.field("c").type == wide
    expected = [(2, None), (3, shown), (4, shown), (5, pa.array([new], wide).to_pylist()[0]), (6, None)]
    assert [(row["id"], row["c"]) for row in rows_of(folding)] == expected
    assert [row["c"] for row in rows_of(folding, before)] == [None, old, old]
    narrow_again = put(folding, appending(first.slice(0, 1)))
    assert isinstance(narrow_again, Committed)
    lance.dataset(str(folding.path)).optimize.compact_files()
    assert [(row["id"], row["c"]) for row in rows_of(folding)] == [*expected, (1, shown)]


@pytest.mark.parametrize(
    ("narrow", "given"),
    [
        (INT, DOUBLE),
        (LONG, pa.decimal128(20, 0)),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.decimal128(38, 0), pa.decimal128(38, 2)),
        (pa.string(), LONG),
        (pa.list_(FLOAT, 2), pa.list_(DOUBLE, 2)),
        (pa.null(), pa.list_(LONG)),
        (pa.null(), pa.struct([("x", LONG)])),
        (pa.null(), pa.map_(LONG, LONG)),
    ],
    ids=str,
)
def test_a_type_of_another_kind_changes_nothing(
    tmp_path: Path, narrow: pa.DataType, given: pa.DataType
) -> None:
    folding = made(tmp_path / "t", pa.table({"id": [1], "c": pa.array([None], narrow)}))
    log = FoldedLog(folding)
    with pytest.raises(InvalidError, match=r"c.* is .* in the batch, .*the table") as caught:
        evolve(folding, appending(pa.table({"id": [2], "c": pa.array([None], given), "new": [1]})), log)
    assert "makes types wider within a kind" in caught.value.hint
    assert log.asked == 0
    assert lance.dataset(str(folding.path)).version == 1


def test_rows_that_were_written_for_the_narrow_type_are_refused_and_can_be_written_again(
    tmp_path: Path,
) -> None:
    """Their files have the old column only, so their values would be lost."""
    folding = made(tmp_path / "t", people([1], at=[1]))
    narrow = people([2]).set_column(2, "n", pa.array([7], INT))
    late = folding.build(appending(narrow))
    assert late is not None
    put(folding, appending(people([3]).set_column(2, "n", pa.array([2**40], LONG))))
    (result,) = folding.fold(late)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    folding.put(appending(narrow))
    assert [(row["id"], row["n"]) for row in rows_of(folding)][1:] == [(3, 2**40), (2, 7)]


def test_writers_that_need_wider_types_at_once_end_in_one_schema(tmp_path: Path) -> None:
    """Only what others added meanwhile is written again for the next attempt."""
    folding = made(tmp_path / "t", pa.table({"id": [1], "c": pa.array([1], pa.int8())}))
    medium = appending(pa.table({"id": [2], "c": pa.array([300], pa.int16()), "a": [1]}))
    wide = appending(pa.table({"id": [3], "c": pa.array([2**40], LONG)}))
    log = FoldedLog(folding, [lambda: put(folding, medium)])
    evolve(folding, wide, log)
    assert log.asked == 2
    folding.put(wide)
    other = FoldedLog(folding)
    evolve(folding, appending(pa.table({"id": [4], "c": pa.array([5], pa.int16())})), other)
    assert other.asked == 0
    assert [(row["c"], row["a"]) for row in rows_of(folding)] == [(1, None), (300, 1), (2**40, None)]


def test_a_refused_attempt_leaves_the_files_that_stay_good(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people(list(range(10))), max_rows_per_file=2)
    files = len(list((folding.path / "data").iterdir()))
    log = FoldedLog(folding, [lambda: folding.put(appending(people([11])))] * 3)
    evolve(folding, appending(people([12]).set_column(2, "n", pa.array([1], LONG))), log)
    # One for each fragment, and for each append one with its rows and one with the wider column.
    assert len(list((folding.path / "data").iterdir())) == files + 5 + 3 * 2


def test_what_the_table_says_of_its_columns_stays(tmp_path: Path) -> None:
    key = {"lance-schema:unenforced-primary-key": "true", "note": "x"}
    fields = [pa.field("id", INT, nullable=False, metadata=key), pa.field("n", FLOAT, metadata={"note": "y"})]
    folding = made(tmp_path / "t", pa.Table.from_pylist([{"id": 1, "n": 1.0}], pa.schema(fields)))
    wide = pa.schema([("n", DOUBLE), ("id", LONG)])
    put(folding, appending(pa.Table.from_pylist([{"id": 2**40, "n": 2.0}], wide)))
    after = lance.dataset(str(folding.path)).schema
    assert after.names == ["id", "n"]
    assert after.types == [LONG, DOUBLE]
    assert not after.field("id").nullable
    assert [after.field(name).metadata[b"note"] for name in after.names] == [b"x", b"y"]
    assert [row["id"] for row in rows_of(folding)] == [1, 2**40]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_an_upsert_makes_its_key_and_values_wider(tmp_path: Path, *, stable: bool) -> None:
    narrow = pa.table({"id": pa.array([1, 2], INT), "v": pa.array([1.0, 2.0], FLOAT)})
    folding = made(tmp_path / "t", narrow, enable_stable_row_ids=stable)
    wide = pa.table({"id": pa.array([2, 2**40], LONG), "v": [0.1, 0.2]})
    put(folding, UpsertRows(wide, Merge(("id",))))
    assert {row["id"]: row["v"] for row in rows_of(folding)} == {1: 1.0, 2: 0.1, 2**40: 0.2}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_change_events_make_the_key_they_are_applied_by_wider(tmp_path: Path, *, stable: bool) -> None:
    """Each event finds its row by the wider key: an update, a deletion, an insertion, one that is too old."""
    columns = {"id": pa.array([1, 2, 3, 4], INT), "v": pa.array([1.0, 2.0, 3.0, 4.0], FLOAT)}
    folding = made(tmp_path / "t", pa.table({**columns, "at": [5] * 4}), enable_stable_row_ids=stable)
    events = pa.table(
        {
            "op": ["u", "d", "i", "u"],
            "id": pa.array([1, 2, 2**40, 4], LONG),
            "v": pa.array([0.1, None, 0.3, 0.4]),
            "at": [6, 6, 6, 4],
        }
    )
    put(folding, ApplyChanges(events, change_format("id", "at", operation_column="op")))
    assert {row["id"]: row["v"] for row in rows_of(folding)} == {1: 0.1, 3: 3.0, 4: 4.0, 2**40: 0.3}


def test_readers_follow_a_table_over_a_wider_type(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    (first,) = lakefold.tail(folding.path, start="earliest", follow=False)
    put(folding, appending(people([2]).set_column(2, "n", pa.array([2**40], LONG))))
    changes = list(lakefold.tail(folding.path, start=first.cursor, follow=False))
    inserted = [row["n"] for change in changes for row in change.inserted().to_pylist()]
    assert inserted == [2**40]
    feed = lakefold.changes(folding.path, 1).read_all().to_pylist()
    assert [(row["_change_type"], row["id"], row["n"]) for row in feed][-1] == ("insert", 2, 2**40)


def test_a_table_that_is_too_large_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widening, "MOST_ROWS", 3)
    folding = made(tmp_path / "t", people([1, 2, 3, 4]))
    log, files = FoldedLog(folding), list((folding.path / "data").iterdir())
    with pytest.raises(InvalidError, match=r"n from int32 to int64.* 4 rows.* at most 3") as caught:
        evolve(folding, appending(people([5]).set_column(2, "n", pa.array([1], LONG))), log)
    assert "alter_columns" in caught.value.hint
    assert log.asked == 0
    assert list((folding.path / "data").iterdir()) == files


def test_a_date_that_no_timestamp_can_be_fails_the_batch(tmp_path: Path) -> None:
    last = pa.array([2**31 - 1], INT).cast(pa.date32())
    folding = made(tmp_path / "t", pa.table({"id": [1], "c": last}))
    log = FoldedLog(folding)
    with pytest.raises(InvalidError, match="c: a value doesn't fit the table's timestamp"):
        evolve(folding, appending(pa.table({"id": [2], "c": pa.array([0], US)})), log)
    assert log.asked == 0
