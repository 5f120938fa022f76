"""Columns of a Delta table that a RESTORE brings back: feeds, tails and diffs show their values again.

Promise: feeds-add-up (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.delta.schemas import new_fields, schema_text, with_physical_names
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_reader.delta.versions import read_state
from lakefold_reader.formats import open_source
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID
from lakefold_table.entry import Committed
from lakefold_table.uri import canonical
from tests.delta_merging import FEATURES, FEED, VECTORS, DeltaFolding
from tests.feeds import applied, values_of
from tests.oracle.test_delta_restores import changed, restored

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = pa.schema(
    [("x", pa.int64()), ("word", pa.string()), ("s", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]
)


def rows(*numbers: int) -> pa.Table:
    return pa.table(
        {"x": numbers, "word": [str(n) for n in numbers], "s": [{"a": n, "b": -n} for n in numbers]},
        schema=SCHEMA,
    )


def without(table: DeltaFolding, *names: str) -> None:
    """Drops columns; `s.a` is a field of a struct."""
    source = open_source(canonical(table.path), format_name="delta")
    metadata = read_state(source, source.versions.latest())[1].metadata
    fields = [each for each in fields_of(metadata.schema_text) if each["name"] not in names]
    for outer in fields:
        if isinstance(outer["type"], dict):
            kept = [
                each for each in outer["type"]["fields"] if f"{outer['name']}.{each['name']}" not in names
            ]
            outer["type"]["fields"] = kept
    assert isinstance(changed(table, schema_text=schema_text(fields)), Committed)


def fields_of(text: str) -> list[dict[str, Any]]:
    return list(json.loads(text)["fields"])


@pytest.fixture(params=[{}, VECTORS, {**VECTORS, **FEED}], ids=("plain", "vectors", "feed"))
def table(tmp_path: Path, request: pytest.FixtureRequest) -> DeltaFolding:
    """Versions: 0 empty, 1 with rows 1 to 3, 2 with 4, 3 without columns, 4 with 5, 5 as 2 again."""
    made = DeltaFolding(tmp_path / "t")
    configuration: Mapping[str, str] = request.param
    fields, highest = with_physical_names(new_fields(SCHEMA), 0, "seed")
    mapped = {**configuration, "delta.columnMapping.mode": "name", HIGHEST_ID: str(highest)}
    made.create(SCHEMA, mapped, features=(*FEATURES, "columnMapping"), fields=fields)
    made.append(rows(1, 2, 3))
    made.append(rows(4))
    without(made, "word", "s.a")
    made.append(pa.table({"x": [5], "s": [{"b": -5}]}))
    assert isinstance(made.fold(restored(made, 2))[0], Committed)
    return made


def shown(table: DeltaFolding, version: int) -> dict[Any, dict[str, Any]]:
    return {row["x"]: row for row in lakefold.open(table.path, version=version).to_arrow().to_pylist()}


def test_a_feed_leads_from_each_version_to_the_last(table: DeltaFolding) -> None:
    final = shown(table, 5)
    assert final[1] == {"x": 1, "word": "1", "s": {"a": 1, "b": -1}}
    assert len(final) == 4
    for after in range(5):
        before = shown(table, after)
        base = [
            {
                "x": x,
                "word": row.get("word"),
                "s": {"a": row["s"].get("a"), "b": row["s"]["b"]},
                "_change_type": "insert",
            }
            for x, row in before.items()
        ]
        feed = lakefold.changes(table.path, after, 5).read_all().to_pylist()
        assert applied([*base, *feed], "x") == final, after


def test_rows_that_a_restore_brings_back_go_as_they_were_shown(table: DeltaFolding) -> None:
    """With rows that were deleted meanwhile, and rows that were deleted before."""
    without(table, "word")
    table.put(DeleteWhere("x = 1"))
    assert isinstance(table.fold(restored(table, 5))[0], Committed)
    newest = open_source(canonical(table.path), format_name="delta").versions.latest()
    feed = lakefold.changes(table.path, 0, newest).read_all().to_pylist()
    assert applied(feed, "x") == shown(table, newest)
    assert shown(table, newest)[1]["word"] == "1"


def test_a_tail_shows_the_restore_as_changes_of_all_rows_that_stay(table: DeltaFolding) -> None:
    change = next(iter(lakefold.tail(table.path, 4)))
    assert not change.only_inserts
    listed = change.feed().read_all().to_pylist()
    kinds = sorted((row["_change_type"], row["x"]) for row in listed)
    posts, pres = (
        [("update_postimage", x) for x in range(1, 5)],
        [("update_preimage", x) for x in range(1, 5)],
    )
    assert kinds == [("delete", 5), *posts, *pres]
    assert all(row["word"] is None for row in listed if row["_change_type"] == "update_preimage")
    assert (
        values_of(next(row for row in listed if row["_change_type"] == "update_postimage"))
        in shown(table, 5).values()
    )


def test_a_diff_shows_the_rows_that_have_values_again(table: DeltaFolding) -> None:
    difference = lakefold.diff(table.path, 3, 5)
    assert difference.columns_added == ("word",)
    assert (difference.rows_removed, difference.rows_added) == (4, 4)
    assert lakefold.diff(table.path, 2, 5).rows_added == 0
    assert lakefold.diff(table.path, 2, 3).rows_added == 0


def test_a_new_column_of_the_same_name_changes_no_row(table: DeltaFolding) -> None:
    without(table, "word")
    source = open_source(canonical(table.path), format_name="delta")
    metadata = read_state(source, source.versions.latest())[1].metadata
    more, highest = with_physical_names(
        [*fields_of(metadata.schema_text), *new_fields(pa.schema([("word", pa.string())]))],
        int(metadata.configuration[HIGHEST_ID] or 0),
        "again",
    )
    configuration = {**metadata.configuration, HIGHEST_ID: str(highest)}
    assert isinstance(changed(table, schema_text=schema_text(more), configuration=configuration), Committed)
    newest = source.versions.latest()
    assert lakefold.changes(table.path, newest - 1, newest).read_all().num_rows == 0
    assert lakefold.diff(table.path, newest - 1, newest).rows_added == 0
    assert {row["word"] for row in shown(table, newest).values()} == {None}
