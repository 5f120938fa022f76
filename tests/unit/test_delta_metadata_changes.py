"""Changes of a Delta table's metadata, and which proposals they conflict with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.conflicts.metadata_changes import (
    MetadataChange,
    change_between,
    merged,
    stored_change,
)
from lakefold_table.delta.table_features.row_tracking import ENABLED, MATERIALIZED
from lakefold_table.entry import Committed, Invalid, Rejected
from tests.delta_logs.actions import Members, data_file, metadata, protocol_with, remove, snapshot_in, text
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
    change = change_between(BEFORE, COMPATIBLE[name])
    assert change is not None
    assert change.fits_files
    assert stored_change(json.loads(json.dumps(change.members()))) == change


@pytest.mark.parametrize("name", NOT_COMPATIBLE)
def test_files_may_not_fit_after_other_changes(name: str) -> None:
    assert change_between(BEFORE, NOT_COMPATIBLE[name]) is None


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
    if made_by == "a committer":
        # It sets what was there: nothing is lost of the change that it did not read.
        assert isinstance(result, Committed)
        kept = snapshot_in(table.path).metadata
        assert kept.configuration == {"delta.checkpointInterval": "5"}
        assert [each["name"] for each in json.loads(kept.schema_text)["fields"]] == ["x", "late"]
    else:
        assert isinstance(result, Rejected)
        assert "changed the table's metadata" in result.conflict.message


def changed(**configuration: str | None) -> TableMetadata:
    known = {**BEFORE.configuration, **configuration}
    return replace(BEFORE, configuration={name: text for name, text in known.items() if text is not None})


def with_columns(*columns: dict[str, Any], **configuration: str | None) -> TableMetadata:
    return replace(changed(**configuration), schema_text=schema(column("x"), column("y"), *columns))


Z, W = column("z"), column("w")
LESS = replace(BEFORE, schema_text=schema(column("x")))
CONSTRAINT: dict[str, str | None] = {"delta.constraints.c": "x > 0"}
MERGED = {
    "two properties": (changed(b="1"), changed(c="2"), changed(b="1", c="2")),
    "one set, one removed": (changed(a=None), changed(c="2"), changed(a=None, c="2")),
    "the same value": (changed(a="7"), changed(a="7"), changed(a="7")),
    "a property and a column": (changed(b="1"), with_columns(Z), with_columns(Z, b="1")),
    "two columns": (with_columns(Z), with_columns(W), with_columns(Z, W)),
    "one column twice": (with_columns(Z), with_columns(Z), with_columns(Z)),
    "one more column": (with_columns(Z), with_columns(W, Z), with_columns(Z, W)),
    "an order of its own": (
        replace(BEFORE, schema_text=schema(Z, column("x"), column("y"))),
        with_columns(W),
        replace(BEFORE, schema_text=schema(Z, column("x"), column("y"), W)),
    ),
    "a column and a constraint": (with_columns(Z), changed(**CONSTRAINT), with_columns(Z, **CONSTRAINT)),
    "a name and a description": (
        replace(BEFORE, name="n"),
        replace(BEFORE, description="d"),
        replace(BEFORE, name="n", description="d"),
    ),
    "a property, and a column less": (
        changed(b="1"),
        LESS,
        replace(changed(b="1"), schema_text=LESS.schema_text),
    ),
}
UNMERGED = {
    "one property": (changed(a="7"), changed(a="8"), {"a"}),
    "one property set and removed": (changed(a="7"), changed(a=None), {"a"}),
    "one column, two types": (with_columns(Z), with_columns(column("z", type="string")), {"z"}),
    "one column, another case": (with_columns(Z), with_columns(column("Z")), {"Z"}),
    "a column, and a column less": (with_columns(Z), LESS, {"the schema"}),
    "two names": (replace(BEFORE, name="n"), replace(BEFORE, name="m"), {"name"}),
}


def merge(theirs: TableMetadata, ours: TableMetadata) -> TableMetadata | frozenset[str]:
    change = change_between(BEFORE, theirs)
    assert change is not None
    # What was changed before that and back again is not a change.
    return merged(ours, theirs, [MetadataChange({"a": "1"}, {"name": None}), change])


@pytest.mark.parametrize("name", MERGED)
def test_two_changes_are_merged(name: str) -> None:
    theirs, ours, both = MERGED[name]
    made = merge(theirs, ours)
    assert isinstance(made, TableMetadata)
    assert json.loads(made.schema_text) == json.loads(both.schema_text)
    assert replace(made, schema_text="") == replace(both, schema_text="")


@pytest.mark.parametrize("name", UNMERGED)
def test_what_both_changed_is_named(name: str) -> None:
    theirs, ours, names = UNMERGED[name]
    assert merge(theirs, ours) == frozenset(names)


@pytest.mark.parametrize(
    "members", [None, True, [], {"configuration": 1}, {"columns": [1]}, {"table": {"name": 1}}]
)
def test_a_change_that_says_nothing_is_none(members: object) -> None:
    assert stored_change(members) is None


def test_writers_that_add_a_column_and_set_a_property_all_pass(tmp_path: Path) -> None:
    """Each was built on version 1, and each is in the table."""
    table = Table(tmp_path / "t")
    table.begin(data_file(table.path, "a.parquet", 1), note="old")
    proposals = [
        table.propose(metadata(schema(column("x"), column("one")), note="old"), read=1),
        table.propose(metadata(schema(column("x"), column("two")), note="old"), read=1),
        table.propose(metadata(schema(column("x")), note="new", **{"delta.checkpointInterval": "7"}), read=1),
        table.propose(
            metadata(schema(column("x"), column("two")), note="old"), read=1, operation="ADD COLUMN"
        ),
        table.propose(metadata(schema(column("x"), column("two", type="string")), note="other"), read=1),
    ]
    *passed, refused = table.fold(*proposals, log=log_id(1))
    assert [type(each) for each in passed] == [Committed] * 4, passed
    assert isinstance(refused, Rejected)
    assert refused.conflict.keys == ("note", "two")
    assert refused.conflict.other_version == 2
    made = snapshot_in(table.path).metadata
    assert [each["name"] for each in json.loads(made.schema_text)["fields"]] == ["x", "one", "two"]
    assert made.configuration == {"note": "new", "delta.checkpointInterval": "7"}
    theirs = json.loads(DeltaTable(str(table.path)).schema().to_json())
    assert [each["name"] for each in theirs["fields"]] == ["x", "one", "two"]


def test_metadata_that_are_none_are_invalid_although_others_changed_them(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin(data_file(table.path, "a.parquet", 1))
    assert table.fold(table.propose(metadata(note="1"), read=1), log=log_id(1)) == [Committed(2)]
    for broken in ("", "[]", '{"type":"struct","fields":[1]}', "[" * 5_000):
        (refused,) = table.fold(table.propose(metadata(broken), read=1), log=log_id(2))
        assert isinstance(refused, Invalid)


def test_files_with_the_types_before_are_committed_after_a_column_became_wider(tmp_path: Path) -> None:
    table, protocol = Table(tmp_path / "t"), protocol_with("typeWidening")
    on = {"delta.enableTypeWidening": "true"}

    def described(kind: str, *changes: tuple[str, str], more: str = "x", **properties: str) -> Members:
        listed = [{"fromType": old, "toType": new} for old, new in changes]
        keys = {"metadata": {"delta.typeChanges": listed}} if listed else {}
        columns = [column("x", type=kind, **keys), *([column(more)] if more != "x" else [])]
        return metadata(schema(*columns), **{**on, **properties})

    def stored(name: str, *rows: int) -> Members:
        action = data_file(table.path, name, *rows)
        pq.write_table(pa.table({"x": pa.array(rows, pa.int32())}), table.path / name)
        action["add"]["size"] = (table.path / name).stat().st_size
        return action

    table.fold(table.propose(protocol, described("integer")), log=log_id(1))
    table.fold(table.propose(stored("a.parquet", 1)), log=log_id(2))
    for number, (wrong, says) in enumerate(
        [
            (described("long"), "which delta.typeChanges does not list"),
            (described("string", ("integer", "string")), "list a change of its type that is unknown"),
            (described("long", ("integer", "double")), "which delta.typeChanges does not list"),
            (described("long", ("short", "long")), "which delta.typeChanges does not list"),
            (described("short"), "gets the type short instead of integer"),
            (
                described("long", ("integer", "long"), **{"delta.enableTypeWidening": "false"}),
                "delta.enableTypeWidening is not true",
            ),
        ],
        start=1,
    ):
        (refused,) = table.fold(table.propose(wrong, read=number), log=log_id(2 + number))
        assert isinstance(refused, Invalid), says
        assert says in refused.message or "typeWidening" in refused.message
    wider = described("long", ("integer", "long"))
    (made,) = table.fold(table.propose(wider, read=7), log=log_id(20))
    assert isinstance(made, Committed)
    before = [
        table.propose(stored("b.parquet", 2), read=7),
        table.propose(remove("a.parquet"), stored("c.parquet", 3), read=7),
        table.propose(described("integer", note="1"), read=7),
        table.propose(described("integer", more="y"), read=7),
    ]
    results = table.fold(*before, log=log_id(21))
    assert [type(each) for each in results] == [Committed, Committed, Rejected, Rejected]
    newest = snapshot_in(table.path).version
    (lost,) = table.fold(table.propose(described("long"), read=newest), log=log_id(22))
    assert isinstance(lost, Invalid)
    assert "loses entries of delta.typeChanges" in lost.message
    read = lakefold.open(table.path).to_arrow()
    assert (read.schema.field("x").type, sorted(read["x"].to_pylist())) == (pa.int64(), [2, 3])


def test_elements_keys_and_values_get_wider_types_where_their_changes_say(tmp_path: Path) -> None:
    table, protocol = Table(tmp_path / "t"), protocol_with("typeWidening")

    def described(key: str, value: str, *changes: tuple[str, str, str], **more: str) -> Members:
        listed = [{"fromType": old, "toType": new, "fieldPath": at} for old, new, at in changes]
        inside = {"type": "array", "elementType": value, "containsNull": True}
        kind = {"type": "map", "keyType": key, "valueType": inside, "valueContainsNull": True}
        keys = {"metadata": {"delta.typeChanges": listed, **more}} if listed else {}
        return metadata(schema(column("x", type=kind, **keys)), **{"delta.enableTypeWidening": "true"})

    def stored(name: str, *rows: int) -> Members:
        action = data_file(table.path, name, *rows)
        kind = pa.map_(pa.int32(), pa.list_(pa.int16()))
        pq.write_table(pa.table({"x": pa.array([[(row, [row])] for row in rows], kind)}), table.path / name)
        action["add"]["size"] = (table.path / name).stat().st_size
        return action

    table.fold(table.propose(protocol, described("integer", "short")), log=log_id(1))
    table.fold(table.propose(stored("a.parquet", 1)), log=log_id(2))
    element = "value.element"
    for number, (wrong, says) in enumerate(
        [
            (described("integer", "long"), f"'x.{element}' gets the type long instead of short, which"),
            (described("integer", "long", ("short", "long", "value")), "does not list"),
            (described("integer", "long", ("short", "long", "")), "does not list"),
            (described("long", "short", ("integer", "long", element)), "'x.key' gets the type long"),
            (described("short", "short"), "'x.key' gets the type short instead of integer"),
        ],
        start=1,
    ):
        (refused,) = table.fold(table.propose(wrong, read=number), log=log_id(2 + number))
        assert isinstance(refused, Invalid), refused
        assert says in refused.message
    changes = (("integer", "long", "key"), ("short", "integer", element), ("integer", "long", element))
    wider = described("long", "long", *changes)
    results = table.fold(
        table.propose(wider, read=6), table.propose(stored("b.parquet", 2), read=6), log=log_id(20)
    )
    assert [type(each) for each in results] == [Committed, Committed]
    read = lakefold.open(table.path).to_arrow()
    assert read.schema.field("x").type == pa.map_(pa.int64(), pa.list_(pa.int64()))
    assert sorted(read["x"].to_pylist()) == [[(1, [1])], [(2, [2])]]
    newest = snapshot_in(table.path).version
    # More than a wider type has changed, so files that were written before may not fit.
    more = (*changes, ("long", "decimal(20,0)", element))
    wider = described("long", "decimal(20,0)", *more, comment="its unit")
    beside = table.propose(stored("c.parquet", 3), read=newest)
    results = table.fold(table.propose(wider, read=newest), beside, log=log_id(21))
    assert [type(each) for each in results] == [Committed, Rejected]


def test_a_wider_type_names_the_version_that_is_made(tmp_path: Path) -> None:
    """Clients before delta-spark 4 write it; each change inside of a struct and an array has its own."""
    protocol = protocol_with("typeWidening")

    def described(old: str, new: str, *versions: int) -> Members:
        changes = [{"fromType": old, "toType": new, "tableVersion": version} for version in versions]
        keys = {"metadata": {"delta.typeChanges": changes}} if changes else {}
        inside = {"type": "struct", "fields": [column("y", type=new, **keys)]}
        kind = {"type": "array", "elementType": inside, "containsNull": True}
        columns = (column("x"), column("z", type=new, **keys), column("s", type=kind))
        return metadata(schema(*columns), **{"delta.enableTypeWidening": "true"})

    table = Table(tmp_path / "t")
    table.fold(table.propose(protocol, described("short", "integer")), log=log_id(1))
    first, second = (data_file(table.path, f"{name}.parquet", 1) for name in "ab")
    widened = table.propose(described("integer", "long", 1), read=0)
    results = table.fold(table.propose(first), table.propose(second), widened, log=log_id(2))
    assert [type(each) for each in results] == [Committed] * 3, results
    made = snapshot_in(table.path)
    assert made.version == 2
    assert made.metadata.schema_text.count('"tableVersion":2') == 2
    assert '"tableVersion":1' not in made.metadata.schema_text


def test_enabling_row_tracking_turns_back_only_what_writes_rows_again(tmp_path: Path) -> None:
    names = ["rowTracking", "domainMetadata"]
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}}
    columns = {each: f"_{number}" for number, each in enumerate(MATERIALIZED)}
    table = Table(tmp_path / "t")
    files = [data_file(table.path, f"{name}.parquet", number) for number, name in enumerate("abcde")]
    table.fold(table.propose(protocol, metadata()), log=log_id(1))
    table.fold(table.propose(*files[:2]), log=log_id(2))
    enabled = table.propose(metadata(**{ENABLED: "true"}, **columns), read=1)
    assert table.fold(enabled, log=log_id(3)) == [Committed(2)]
    append = table.propose(files[2], read=1, read_predicates=["x = 9"])
    rewrite = table.propose(remove("a.parquet"), files[3], read=1)
    deletion = table.propose(remove("b.parquet"), read=1)
    appended, rewritten, deleted = table.fold(append, rewrite, deletion, log=log_id(4))
    assert isinstance(appended, Committed)
    assert isinstance(deleted, Committed)
    assert isinstance(rewritten, Rejected)
    assert table.rows() == [0, 2]


def test_of_two_that_add_mapped_columns_at_once_the_second_is_built_again(tmp_path: Path) -> None:
    """The ids of the second one's columns are lower than the highest that the first one has given."""

    def described(*names: str) -> Members:
        columns = [
            column(
                name,
                metadata={"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"},
            )
            for number, name in enumerate(names, 1)
        ]
        highest = {"delta.columnMapping.maxColumnId": str(len(names))}
        return metadata(schema(*columns), **{"delta.columnMapping.mode": "name"} | highest)

    table = Table(tmp_path / "t")
    table.fold(table.propose(protocol_with("columnMapping"), described("x")), log=log_id(1))
    first, second = (
        table.propose(described("x", "y", "z"), read=0),
        table.propose(described("x", "w"), read=0),
    )
    done, late = table.fold(first, second, log=log_id(2))
    assert isinstance(done, Committed)
    assert isinstance(late, Rejected)
    assert late.conflict.retryable
    (refused,) = table.fold(table.propose(described("x", "w"), read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert "goes back from 3 to 2" in refused.message
