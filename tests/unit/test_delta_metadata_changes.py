"""Changes of a Delta table's metadata, and which proposals they turn back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.conflicts.metadata_changes import is_compatible
from lakefold_table.entry import Committed, Rejected
from tests.delta_logs.actions import Members, data_file, metadata, remove, text
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path


def column(name: str, **more: object) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}, **more}


def schema(*columns: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": list(columns)})


BEFORE = TableMetadata(
    "id", schema(column("x"), column("y")), configuration={"a": "1", "delta.appendOnly": "no"}
)
COMPATIBLE = {
    "nothing": BEFORE,
    "name and description": replace(BEFORE, name="n", description="d", created_ms=7),
    "own property": replace(BEFORE, configuration={**BEFORE.configuration, "a": "2", "b": None}),
    "own property removed": replace(BEFORE, configuration={"delta.appendOnly": "no"}),
    "checkpoints": replace(BEFORE, configuration={**BEFORE.configuration, "delta.checkpointInterval": "50"}),
    "a column after others": replace(BEFORE, schema_text=schema(column("x"), column("y"), column("z"))),
    "a column before others": replace(BEFORE, schema_text=schema(column("z"), column("x"), column("y"))),
}
NOT_COMPATIBLE = {
    "id": replace(BEFORE, id="other"),
    "partitioning": replace(BEFORE, partition_columns=("x",)),
    "append-only": replace(BEFORE, configuration={**BEFORE.configuration, "delta.appendOnly": "true"}),
    "a constraint": replace(BEFORE, configuration={**BEFORE.configuration, "delta.constraints.c": "x > 1"}),
    "row tracking": replace(
        BEFORE, configuration={**BEFORE.configuration, "delta.enableRowTracking": "true"}
    ),
    "a column less": replace(BEFORE, schema_text=schema(column("x"))),
    "another type": replace(BEFORE, schema_text=schema(column("x"), column("y", type="string"))),
    "another order": replace(BEFORE, schema_text=schema(column("y"), column("x"))),
    "no null": replace(BEFORE, schema_text=schema(column("x"), column("y"), column("z", nullable=False))),
    "a default": replace(
        BEFORE,
        schema_text=schema(column("x"), column("y"), column("z", metadata={"CURRENT_DEFAULT": "1"})),
    ),
    "no schema": replace(BEFORE, schema_text="no schema"),
}


@pytest.mark.parametrize("name", COMPATIBLE)
def test_files_fit_after_a_compatible_change(name: str) -> None:
    assert is_compatible(BEFORE, COMPATIBLE[name])


@pytest.mark.parametrize("name", NOT_COMPATIBLE)
def test_files_may_not_fit_after_other_changes(name: str) -> None:
    assert not is_compatible(BEFORE, NOT_COMPATIBLE[name])


@pytest.mark.parametrize("made_by", ["a committer", "another client"])
def test_a_compatible_change_by_a_committer_turns_back_no_files(tmp_path: Path, made_by: str) -> None:
    table = Table(tmp_path / "t")
    change: list[Members] = [
        metadata(schema(column("x"), column("late")), **{"delta.checkpointInterval": "5"})
    ]
    table.begin(data_file(table.path, "a.parquet", 1))
    if made_by == "a committer":
        assert table.fold(table.propose(*change, read=1), log=log_id(1)) == [Committed(2)]
    else:
        (table.path / "_delta_log" / f"{2:020}.json").write_bytes(text(change))
    file = data_file(table.path, "b.parquet", 2)
    data, other = table.propose(remove("a.parquet"), file, read=1), table.propose(metadata(), read=1)
    (result,) = table.fold(data, log=log_id(2))
    if made_by == "a committer":
        assert result == Committed(3, rebased=True, rows_added=1, rows_deleted=1)
        assert table.rows() == [2]
    else:
        assert isinstance(result, Rejected)
    (result,) = table.fold(other, log=log_id(3))
    assert isinstance(result, Rejected)
    assert "changed the table's metadata" in result.conflict.message
