"""Rules for writers about columns, expressions, properties and changed rows: what breaks one is Invalid."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakefold
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.table_features.property_values import PROPERTIES, value_faults
from lakefold_table.entry import Committed, Invalid
from tests.delta_logs.actions import Members, data_file, remove
from tests.unit.test_delta_format import Table, changed
from tests.unit.test_delta_requirements import MAPPED, Field, described, field, mapped, protocol
from tests.unit.test_delta_rows import Rows, log_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.entry import Result

FEATURES = protocol(
    *("allowColumnDefaults", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors"),
    *("generatedColumns", "inCommitTimestamp", "invariants"),
)
X = field("x")


def constrained(*columns: Field, text: str = "x > 0") -> Members:
    return described(*columns, **{"delta.constraints.c": text})


def required(name: str, kind: object = "long") -> Field:
    return {**field(name, kind), "nullable": False}


def struct(*fields: Field) -> Field:
    return field("s", {"type": "struct", "fields": list(fields)})


def generated(text: object) -> Members:
    return described(X, field("y", **{"delta.generationExpression": text}))


def unparsed(invariant: object) -> Members:
    return described(field("x", **{"delta.invariants": invariant}))


WITH_MAPPING = described(mapped("x", 1), mapped("y", 2), **MAPPED)
ALONE: dict[str, tuple[Members, str]] = {
    "no columns": (described(), "the schema has no columns"),
    "a name": (described(field("a b")), "the name of the column 'a b' has one of the characters"),
    "a name inside": (described(struct(field("a=b"))), "the name of the column 's.a=b' has one of"),
    "a name with a mapping": (described(mapped("a b", 1), **MAPPED), ""),
    "an invariant": (unparsed("x > 3"), "delta.invariants of the column 'x' is not JSON with an expression"),
    "an invariant without one": (unparsed("{}"), "is not JSON with an expression"),
    "an invariant as an object": (unparsed({"expression": {"expression": "x > 3"}}), "is not JSON"),
    "an invariant of a number": (unparsed('{"expression":{"expression":3}}'), "is not JSON"),
    "a constraint": (
        constrained(X, text="z > 0"),
        "the constraint c names z, which is not a column: 'z > 0'",
    ),
    "a constraint on a field": (constrained(struct(X), text="s.x > 0"), ""),
    "a constraint in backticks": (constrained(X, text="`x z` IS NULL"), "names x z, which is not a column"),
    "a constraint by functions": (constrained(X, text="abs(z) > 0"), "names z, which is not a column"),
    "a constraint in words": (constrained(X, text="NOT (X IS NULL OR x IN (1, 2L) AND x LIKE 'z')"), ""),
    "a constraint by cases": (constrained(X, text="CASE WHEN x > 0 THEN true ELSE current_date END"), ""),
    "a constraint with types": (constrained(X, text="CAST(x AS BIGINT) > 0"), ""),
    "a constraint with a parameter": (constrained(X, text="exists(array(x), v -> v > 0)"), ""),
    "a generated column": (generated("z * 2"), "the generated column y names z, which is not a column"),
    "a generated column of a column": (generated("X * 2"), ""),
    "a generated column by a number": (generated(2), "delta.generationExpression of the column 'y' is not a"),
    "a default that is a number": (described(field("x", CURRENT_DEFAULT=1)), "CURRENT_DEFAULT of the column"),
}


@pytest.mark.parametrize("name", ALONE)
def test_metadata_keep_to_rules_whatever_the_table_has(tmp_path: Path, name: str) -> None:
    made, says = ALONE[name]
    table = Table(tmp_path / "t")
    (result,) = table.fold(table.propose(FEATURES, made), log=log_id(1))
    if not says:
        assert result == Committed(0), result
        return
    assert isinstance(result, Invalid), result
    assert says in result.message
    assert result.hint
    begin(table, described(X))
    (result,) = table.fold(table.propose(made, read=0), log=log_id(3))
    assert isinstance(result, Invalid), result


def begin(table: Table, made: Members, *files: Members) -> None:
    (created,) = table.fold(table.propose(FEATURES, made), log=log_id(1001))
    assert created == Committed(0)
    if files:
        assert isinstance(table.fold(table.propose(*files), log=log_id(1002))[0], Committed)


LIST = {"type": "array", "elementType": "long", "containsNull": True}
LISTS = {"type": "array", "elementType": LIST, "containsNull": True}
MAPPED_TO_3 = MAPPED | {"delta.columnMapping.maxColumnId": "3"}
CHANGES: dict[str, tuple[Members, Members, str]] = {
    "a new default": (described(X), described(X, field("y", CURRENT_DEFAULT="1")), "'y' has CURRENT_DEFAULT"),
    "a default of a column": (described(X), described(field("x", CURRENT_DEFAULT="1")), ""),
    "a column that becomes NOT NULL": (described(X), described(required("x")), "'x' becomes NOT NULL"),
    "elements that become NOT NULL": (
        described(X, field("l", LISTS)),
        described(X, field("l", {**LISTS, "elementType": {**LIST, "containsNull": False}})),
        "'l.element.element' becomes NOT NULL",
    ),
    "elements that may become null": (
        described(X, field("l", {**LIST, "containsNull": False})),
        described(X, field("l", LIST)),
        "",
    ),
    "a column that may be null": (described(required("x")), described(X), ""),
    "a new column, NOT NULL": (described(X), described(X, required("y")), "the new column 'y' is NOT NULL"),
    "a new field, NOT NULL": (
        described(struct(field("a"))),
        described(struct(field("a"), required("b"))),
        "the new column 's.b' is NOT NULL",
    ),
    "a new struct with such a field": (described(X), described(X, struct(required("b"))), ""),
    "the id of a dropped column": (
        described(mapped("x", 1), **MAPPED),
        described(mapped("x", 1), mapped("z", 2), **MAPPED),
        "the new column 'z' has the delta.columnMapping.id 2, which is not above 2",
    ),
    "the name in files of a dropped column": (
        described(mapped("x", 1), mapped("y", 2), **MAPPED),
        described(mapped("x", 1), mapped("z", 3, physical="c2"), **MAPPED_TO_3),
        "the new column 'z' has the delta.columnMapping.physicalName of another one",
    ),
    "a new column with a new id": (
        described(mapped("x", 1), mapped("y", 2), **MAPPED),
        described(mapped("x", 1), mapped("z", 3), **MAPPED_TO_3),
        "",
    ),
    "a dropped column of a constraint": (
        described(mapped("x", 1), mapped("y", 2), **MAPPED, **{"delta.constraints.c": "CAST(x AS INT) > 0"}),
        described(mapped("y", 2), **MAPPED, **{"delta.constraints.c": "CAST(x AS INT) > 0"}),
        "the column 'x' can't go or be renamed: the constraint c uses it",
    ),
    "a renamed column of a constraint": (
        described(mapped("x", 1), **MAPPED, **{"delta.constraints.c": "CAST(x AS INT) > 0"}),
        described(mapped("z", 1), **MAPPED, **{"delta.constraints.c": "CAST(x AS INT) > 0"}),
        "the column 'x' can't go or be renamed",
    ),
    "a renamed column with its constraint": (
        described(mapped("x", 1), **MAPPED, **{"delta.constraints.c": "CAST(x AS INT) > 0"}),
        described(mapped("z", 1), **MAPPED, **{"delta.constraints.c": "CAST(z AS INT) > 0"}),
        "",
    ),
    "a dropped column and its constraint": (
        described(mapped("x", 1), mapped("y", 2), **MAPPED, **{"delta.constraints.c": "CAST(x AS INT) > 0"}),
        described(mapped("y", 2), **MAPPED),
        "",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_table_with_files_changes_only_in_ways_that_fit_its_rows(tmp_path: Path, name: str) -> None:
    before, after, says = CHANGES[name]
    table = Table(tmp_path / "t")
    begin(table, before, data_file(table.path, "a.parquet", 1))
    (result,) = table.fold(table.propose(after, read=1), log=log_id(1))
    if not says:
        assert isinstance(result, Committed), result
        return
    assert isinstance(result, Invalid), result
    assert says in result.message
    replaced = table.propose(after, remove("a.parquet"), read=2)
    assert isinstance(table.fold(replaced, log=log_id(2))[0], Committed)


def test_a_column_gets_no_default_when_it_is_added_to_an_empty_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    begin(table, described(X))
    (result,) = table.fold(table.propose(CHANGES["a new default"][1], read=0), log=log_id(1))
    assert isinstance(result, Invalid)
    assert "CURRENT_DEFAULT" in result.message


UNREADABLE = {
    "delta.checkpointInterval": ["0", "-1", "x", "1.5", "", "9" * 10],
    "delta.appendOnly": ["yes", ""],
    "delta.logRetentionDuration": ["1 month", "-1 day", "7"],
    "delta.dataSkippingNumIndexedCols": ["-2", "all"],
    "delta.isolationLevel": ["snapshot"],
    "delta.checkpointPolicy": ["v3"],
    "delta.inCommitTimestampEnablementVersion": ["-1"],
}
READABLE = {
    "delta.checkpointInterval": ["1", "100"],
    "delta.appendOnly": ["true", "False"],
    "delta.logRetentionDuration": [
        "interval 30 days",
        "2 weeks",
        "1 day 12 hours",
        "INTERVAL 5 Microseconds",
    ],
    "delta.dataSkippingNumIndexedCols": ["-1", "0", "32"],
    "delta.isolationLevel": ["Serializable", "WriteSerializable"],
    "delta.checkpointPolicy": ["classic", "V2"],
    "delta.inCommitTimestampEnablementVersion": ["7"],
    "delta.targetFileSize": ["any"],
    "mine": [""],
}


def test_values_of_properties_can_be_read(tmp_path: Path) -> None:
    kinds = {PROPERTIES[name] for name in UNREADABLE}
    assert kinds == set(PROPERTIES.values())
    for name, texts in UNREADABLE.items():
        for text in texts:
            assert [message for message, _ in value_faults({name: text})] == [
                f"the property {name} is {text!r}, which can't be read"
            ]
    assert [list(value_faults({name: text})) for name, texts in READABLE.items() for text in texts] == [
        []
    ] * sum(map(len, READABLE.values()))
    table = Table(tmp_path / "t")
    begin(table, described(X))
    wrong = described(X, **{"delta.checkpointInterval": "0"})
    (result,) = table.fold(table.propose(wrong, read=0), log=log_id(1))
    assert isinstance(result, Invalid)
    assert "can't be read" in result.message
    assert "a number from 1 on" in result.hint


FEED = {"delta.enableChangeDataFeed": "true"}


class Changed(Rows):
    """A table with the feed of changes, or without it, whose file 0 has ten rows."""

    def __init__(self, path: Path, **more: str) -> None:
        super().__init__(path, 0, protocol=FEATURES, more=more)

    def change(self, operation: str, *actions: Members) -> Result:
        (result,) = self.fold(self.table.propose(*actions, read=1, operation=operation))
        return result

    def change_file(self) -> Members:
        file = self.file("_change_data/c.parquet", [1])
        return changed("_change_data/c.parquet", size=file["add"]["size"])


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "MERGE"])
def test_rows_that_change_are_in_change_data_files(tmp_path: Path, operation: str) -> None:
    rows = Changed(tmp_path / "t", **FEED)
    other = rows.file("b.parquet", range(9))
    refused = rows.change(operation, remove("0.parquet"), other)
    assert isinstance(refused, Invalid)
    assert f"the proposal changes rows ({operation}) without cdc actions" in refused.message
    partly = [remove("0.parquet"), rows.added("0.parquet", [3]), other]
    assert isinstance(rows.change(operation, *partly), Invalid)
    complete = rows.change(operation, remove("0.parquet"), other, rows.change_file())
    assert isinstance(complete, Committed), complete


WHOLE: dict[str, tuple[str, Callable[[Changed], list[Members]]]] = {
    "files that go": ("DELETE", lambda _: [remove("0.parquet")]),
    "rows that a vector deletes": (
        "DELETE",
        lambda rows: [remove("0.parquet"), rows.added("0.parquet", [3])],
    ),
    "inserted rows": ("MERGE", lambda rows: [rows.file("b.parquet", [1])]),
    "files that replace others": ("WRITE", lambda rows: [remove("0.parquet"), rows.file("b.parquet", [1])]),
    "rows that move": (
        "OPTIMIZE",
        lambda rows: [
            {"remove": {**remove("0.parquet")["remove"], "dataChange": False}},
            {"add": {**rows.file("b.parquet", range(10))["add"], "dataChange": False}},
        ],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_changes_that_files_show_need_no_change_data_files(tmp_path: Path, name: str) -> None:
    operation, actions = WHOLE[name]
    rows = Changed(tmp_path / "t", **FEED)
    result = rows.change(operation, *actions(rows))
    assert isinstance(result, Committed), result


def test_change_data_files_have_values_of_the_partition_columns(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    begin(table, described(X, field("p"), by=["p"], **FEED))
    for number, (values, says) in enumerate(
        [({}, "partition columns ()"), ({"p": "z"}, "'z' as the value of the partition"), ({"p": "1"}, "")]
    ):
        file = data_file(tmp_path / "t", f"{number}.parquet", 1)
        file["add"]["partitionValues"] = {"p": "1"}
        change = data_file(tmp_path / "t", f"_change_data/{number}.parquet", 1)["add"]
        cdc = changed(change["path"], size=change["size"], partitionValues=values)
        (result,) = table.fold(table.propose(file, cdc), log=log_id(number))
        assert says and says in result.message if isinstance(result, Invalid) else not says


def test_a_table_without_a_feed_gets_no_change_data_files(tmp_path: Path) -> None:
    rows = Changed(tmp_path / "t")
    update = [remove("0.parquet"), rows.file("b.parquet", range(10))]
    refused = rows.change("UPDATE", *update, rows.change_file())
    assert isinstance(refused, Invalid)
    assert "cdc actions, but delta.enableChangeDataFeed is not true" in refused.message
    assert isinstance(rows.change("UPDATE", *update), Committed)


def test_statistics_of_mapped_columns_have_their_stored_names(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    old = data_file(table.path, "a.parquet", 1)
    old["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": {"c1": 1, "c2": 1}})
    made = described(mapped("x", 1), mapped("y", 2), **MAPPED, **{"delta.enableDeletionVectors": "true"})
    begin(table, made, old)
    new = data_file(table.path, "b.parquet", 1)
    new["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": {"x": 1}})
    (refused,) = table.fold(table.propose(new), log=log_id(1))
    assert isinstance(refused, Invalid)
    assert "'b.parquet' has the column 'x', which is not in the table's schema" in refused.message
    # A column that was dropped is in the statistics of files that were written before.
    dropped = described(mapped("x", 1), **MAPPED, **{"delta.enableDeletionVectors": "true"})
    (result,) = table.fold(table.propose(dropped, read=2), log=log_id(2))
    assert isinstance(result, Committed), result
    more = {"add": {**old["add"], "dataChange": False}}
    (result,) = table.fold(table.propose(more, read=3), log=log_id(3))
    assert isinstance(result, Committed), result
    new["add"]["stats"] = old["add"]["stats"]
    (refused,) = table.fold(table.propose(new), log=log_id(4))
    assert isinstance(refused, Invalid)
    assert "has the column 'c2'" in refused.message


def test_a_removed_file_is_described_as_the_table_does(tmp_path: Path) -> None:
    """Readers of changes take the values of its partition from the action."""
    table = Table(tmp_path / "t")
    begin(table, described(X, field("p"), by=["p"]))
    files = [table.file(name, 1) for name in ("a.parquet", "b.parquet")]
    for file in files:
        file["add"]["partitionValues"] = {"p": "7"}
    table.fold(table.propose(*files), log=log_id(1))
    false = remove("a.parquet", partitionValues={"p": "8"}, size=9, extendedFileMetadata=True)
    (result,) = table.fold(table.propose(false, remove("b.parquet"), read=1), log=log_id(2))
    assert isinstance(result, Committed)
    lines = (table.path / commit_path(2)).read_text().splitlines()
    removed, plain = (action["remove"] for action in map(json.loads, lines) if "remove" in action)
    assert (removed["partitionValues"], removed["size"]) == ({"p": "7"}, files[0]["add"]["size"])
    assert not {"partitionValues", "size"} & plain.keys()
    changes = pa.table(lakefold.changes(table.path, 1).read_all())
    assert changes.select(["p", "_change_type"]).to_pylist() == [{"p": 7, "_change_type": "delete"}] * 2
