"""A condition on a Delta table has one meaning for scans, deletes and replaced rows, by partitions or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.merge.delta.row_condition import DeltaRowCondition
from lakefold_ingest.merge.formats import merge_format
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_table.delta.actions.file_actions import RemoveFile
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.errors import InvalidError
from tests.delta_merging import DeltaFolding
from tests.unit.test_delta_filters import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.delta.view import DeltaView

CONSTANTS = (
    *("0", "-0.0", "0.1", "1.5", "5", "300", "9007199254740993", "9007199254740992.0", "1e30", "null"),
    *("true", "'true'", "'5'", "'a'", "x'61'", "'2024-01-01'", "date '2024-01-01'", "'2024-01-01T12:00:00Z'"),
    *("timestamp '2024-01-01 12:00:00'", "timestamp '2024-01-01 12:00:00Z'"),
)
CONDITIONS = (
    *("p = {}", "p != {}", "p > {}", "{} >= p", "p <=> {}", "p in ({})", "p not in ({}, 1)"),
    *("p between {} and {}", "not (p = {}) or p is null"),
)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_condition_has_one_meaning(tmp_path: Path, kind: str) -> None:
    rows = rows_of(kind)
    plain, parted = (made(tmp_path / name, rows, parts) for name, parts in (("a", ()), ("b", ("p",))))
    ids = ids_of_files(parted)
    doors = {
        "partitioned": scan_of(parted),
        "delete": lambda where: deleted(parted, where, ids),
        "replaceWhere": lambda where: replaceable(parted, rows, where),
        "replaceWhere without partitions": lambda where: replaceable(plain, rows, where),
    }
    scan = scan_of(plain)
    some = 0
    for condition in CONDITIONS:
        for constant in CONSTANTS:
            where = condition.format(constant, constant)
            expected = answer(scan, where)
            some += bool(expected)
            for name, door in doors.items():
                assert answer(door, where) == expected, (name, where)
    assert some > 10


def test_an_empty_text_in_a_partition_column_counts_as_the_null_that_is_stored(tmp_path: Path) -> None:
    rows = pa.table({"id": [0, 1, 2], "p": ["", "a", None]})
    table = made(tmp_path / "t", rows, ("p",))
    for where, ids in (("p is null", [0, 2]), ("p = ''", []), ("p < 'b'", [1])):
        assert scan_of(table)(where) == ids
        assert replaceable(table, rows, where) == ids


def test_a_condition_that_cannot_be_evaluated_is_named_with_what_to_write(tmp_path: Path) -> None:
    tables = [made(tmp_path / name, rows_of("integer"), parts) for name, parts in (("a", ()), ("b", ("p",)))]
    faults = []
    for table in tables:
        with pytest.raises(InvalidError, match="the predicate 'p = true' can't be evaluated") as caught:
            table.build(DeleteWhere("p = true"))
        faults.append((caught.value.message, caught.value.hint))
    assert faults[0] == faults[1]


def rows_of(kind: str) -> pa.Table:
    arrow, values = COLUMNS[kind]
    # An empty text is null in a partition column.
    filled = [value for value in values if value not in ("", b"")]
    return pa.table({"id": range(len(filled) + 1), "p": pa.array([*filled, None], arrow)})


def made(path: Path, rows: pa.Table, partition_by: tuple[str, ...]) -> DeltaFolding:
    table = DeltaFolding(path)
    table.create(rows.schema, {}, partition_by)
    table.append(rows)
    return table


def scan_of(table: DeltaFolding) -> Callable[[str], list[int]]:
    opened = lakefold.open(table.path)
    return lambda where: sorted(opened.to_arrow(["id"], filter=where)["id"].to_pylist())


def ids_of_files(table: DeltaFolding) -> dict[str, list[int]]:
    version: Any = merge_format(table.view()).open(table.view(), {})
    return {
        file.path: [row for batch in version.scan(["id"], [number]) for row in batch.column(0).to_pylist()]
        for number, file in enumerate(version.files)
    }


def deleted(table: DeltaFolding, where: str, ids: dict[str, list[int]]) -> list[int]:
    envelope = table.build(DeleteWhere(where))
    actions = [] if envelope is None else parse_actions(envelope.delta.actions)
    return sorted(row for action in actions if isinstance(action, RemoveFile) for row in ids[action.path])


def replaceable(table: DeltaFolding, rows: pa.Table, where: str) -> list[int]:
    view: DeltaView = table.view()  # type: ignore[assignment] # the table is of Delta
    text, partitions = view.metadata.schema_text, view.partition_columns()
    met = DeltaRowCondition(where, view.schema, "replaceWhere", text, partitions).met(rows)
    chosen: list[int] = rows.filter(pa.array(met))["id"].to_pylist()
    return chosen


def answer(door: Callable[[str], list[int]], where: str) -> list[int] | None:
    """Returns the ids of the rows for which a condition holds, None if it is refused."""
    try:
        return door(where)
    except InvalidError:
        return None
