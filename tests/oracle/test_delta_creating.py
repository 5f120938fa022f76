"""Delta tables that are created with properties, judged by delta-rs: their protocol and their rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold.cli import run
from lakefold_ingest.delta.replacement import with_other_columns
from lakefold_ingest.delta.view import delta_view
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.view import BatchColumns
from lakefold_ingest.writing.batch import check_kind
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError
from tests.delta_merging import DeltaFolding, delta_rs_rows
from tests.merging import people

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = people([0]).schema


def created(path: Path, properties: dict[str, str], **changes: Any) -> DeltaFolding:  # noqa: ANN401 - the test names the field
    table = DeltaFolding(path)
    settings = table.settings(table_properties=properties, **changes)
    (result,) = table.fold(FORMATS["delta"].creation(settings, Key("app", 0), SCHEMA))
    assert isinstance(result, Committed), result
    return table


def added(path: Path, version: int) -> list[dict[str, Any]]:
    lines = (path / commit_path(version)).read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


@pytest.mark.parametrize(
    ("properties", "readers", "writers"),
    [
        ({}, None, None),
        ({"delta.appendOnly": "true", "delta.checkpointInterval": "3"}, None, None),
        ({"delta.enableDeletionVectors": "true"}, {"deletionVectors"}, {"deletionVectors"}),
        ({"delta.enableDeletionVectors": "false"}, None, None),
        ({"DELTA.enablechangedatafeed": "TRUE"}, None, {"changeDataFeed"}),
        ({"delta.enableTypeWidening": "true"}, {"typeWidening"}, {"typeWidening"}),
        ({"delta.columnMapping.mode": "name"}, None, {"columnMapping"}),
        ({"delta.enableRowTracking": "true"}, None, {"rowTracking", "domainMetadata"}),
        ({"delta.enableInCommitTimestamps": "true"}, None, {"inCommitTimestamp"}),
        ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}, {"v2Checkpoint"}),
        ({"delta.constraints.small": "id < 1000"}, None, {"checkConstraints"}),
        ({"delta.feature.clustering": "supported"}, None, {"clustering", "domainMetadata"}),
    ],
    ids=lambda each: ",".join(sorted(each)) if isinstance(each, dict | set) else str(each),
)
def test_a_table_has_the_features_that_its_properties_need(
    tmp_path: Path, properties: dict[str, str], readers: set[str] | None, writers: set[str] | None
) -> None:
    table = created(tmp_path / "t", properties)
    table.append(people([1, 2]))
    protocol = DeltaTable(str(table.path)).protocol()
    basic = {"appendOnly", "invariants"}
    if writers is None:
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    else:
        assert protocol.min_writer_version == 7
        assert set(protocol.writer_features or ()) == writers | basic
        assert set(protocol.reader_features or ()) == (readers or set())
    theirs = DeltaTable(str(table.path))
    # delta-rs reads no table with type widening.
    if readers != {"typeWidening"}:
        assert delta_rs_rows(table.path) == sorted(people([1, 2]).to_pylist(), key=repr)
    assert sorted(lakefold.open(table.path).to_arrow()["id"].to_pylist()) == [1, 2]
    kept = theirs.metadata().configuration
    given = {name.lower(): text for name, text in properties.items() if ".feature." not in name}
    assert {name.lower(): text for name, text in kept.items()}.items() >= given.items()


def test_rows_are_deleted_by_vectors_changes_are_recorded_and_ids_stay(tmp_path: Path) -> None:
    """What no table of `append`, `sink` or `Writer` could have: see the page of Delta's features."""
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    table = created(tmp_path / "t", properties, stable_row_ids=True)
    table.append(people(list(range(6))))
    (file,) = added(table.path, 1)
    table.put(DeleteWhere("id = 4"))
    table.put(UpsertRows(people([1], "new"), Merge(("id",))))
    vectors = [
        each["deletionVector"]["cardinality"]
        for each in (*added(table.path, 2), *added(table.path, 3))
        if each["path"] == file["path"]
    ]
    assert vectors == [1, 2]
    changes = lakefold.changes(table.path, 1).read_all().to_pylist()
    assert {(row["_change_type"], row["id"]) for row in changes} == {
        ("delete", 4),
        ("update_preimage", 1),
        ("update_postimage", 1),
    }
    assert DeltaTable(str(table.path)).metadata().configuration["delta.enableRowTracking"] == "true"
    assert file["baseRowId"] == 0


def test_a_column_becomes_wider_in_a_table_that_allows_it(tmp_path: Path) -> None:
    table = DeltaFolding(tmp_path / "t")
    settings = table.settings(table_properties={"delta.enableTypeWidening": "true"})
    narrow, wide = (pa.schema([("n", kind)]) for kind in (pa.int32(), pa.int64()))
    (_,) = table.fold(FORMATS["delta"].creation(settings, Key("app", 0), narrow))
    change = delta_view(table.view(), "a test").addition(BatchColumns(wide))
    assert change is not None
    assert change.text == "the wider types of n"


@pytest.mark.parametrize("name", ["_rowid", "_rowaddr"])
def test_no_column_gets_a_name_by_which_rows_are_found(tmp_path: Path, name: str) -> None:
    """As in Lance. A table would have rows that no upsert and no delete finds; a field of a struct may."""
    table, given = DeltaFolding(tmp_path / "t"), pa.schema([("id", pa.int64()), (name, pa.int64())])
    for kind in ("delta", "lance"):
        with pytest.raises(InvalidError, match="this name is reserved"):
            FORMATS[kind].creation(table.settings(), Key("app", 0), given)
    inner = pa.schema([("id", pa.int64()), ("s", pa.struct([(name, pa.int64())]))])
    (_,) = table.fold(FORMATS["delta"].creation(table.settings(), Key("app", 0), inner))
    with pytest.raises(InvalidError, match="this name is reserved"):
        delta_view(table.view(), "a test").addition(BatchColumns(given))
    with pytest.raises(InvalidError, match="this name is reserved"):
        with_other_columns(delta_view(table.view(), "a test"), given, ())
    row = {"id": 1, "s": {name: 2}}
    table.put(UpsertRows(pa.Table.from_pylist([row]), Merge(("id",))))
    assert lakefold.open(table.path).to_arrow().to_pylist() == [row]


def test_a_creation_that_is_repeated_is_the_same(tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "id", "delta.enableRowTracking": "true"}
    settings = DeltaFolding(tmp_path / "t").settings(table_properties=properties)
    first, second = (FORMATS["delta"].creation(settings, Key("app", 0), SCHEMA) for _ in range(2))
    assert first == second
    (line,) = (json.loads(line) for line in first.delta.actions.splitlines() if b"metaData" in line)
    assert line["metaData"]["configuration"]["delta.columnMapping.maxColumnId"] == str(len(SCHEMA))


@pytest.mark.parametrize(
    ("properties", "message", "hint"),
    [
        ({"delta.enableDeletionVector": "true"}, "no such property", "mean delta.enableDeletionVectors"),
        ({"delta.enableDeletionVectors": "yes"}, "'yes' is none of its values", "give true or false"),
        ({"delta.checkpointInterval": "0"}, "'0' is none", "a whole number from 1"),
        ({"delta.logRetentionDuration": "interval 1 month"}, "is none", "a duration"),
        ({"delta.targetFileSize": "big"}, "is none of its values", "100mb"),
        ({"delta.minReaderVersion": "3"}, "does not set this property", "leave it out"),
        (
            {"delta.feature.deletionVector": "supported"},
            "no such property",
            "mean delta.feature.deletionVectors",
        ),
        ({"delta.feature.deletionVectors": "on"}, "'on' is none", "give supported"),
        ({"delta.feature.catalogManaged": "supported"}, "the table needs the feature", "newer release"),
        ({"delta.constraints.odd": "id % 2 = 1"}, "the constraint odd", "another client"),
        ({"delta.constraints.gone": "gone > 2"}, "the constraint gone", "another client"),
        ({"delta.zzz": "1"}, "no such property", "the known ones are delta.appendOnly"),
    ],
    ids=lambda each: ",".join(sorted(each)) if isinstance(each, dict | set) else str(each),
)
def test_properties_that_a_table_can_not_have_are_refused_by_name(
    tmp_path: Path, properties: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(InvalidError) as raised:
        created(tmp_path / "t", properties)
    assert message in str(raised.value)
    assert hint in raised.value.hint
    assert not list(tmp_path.glob("t/**/*.json"))


def test_row_ids_are_stable_or_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"stable_row_ids enables delta\.enableRowTracking"):
        created(tmp_path / "t", {"delta.enableRowTracking": "false"}, stable_row_ids=True)


def test_a_table_keeps_the_properties_that_it_has(tmp_path: Path) -> None:
    """As with delta-spark, which only checks those of a write to a table that exists."""
    table = created(tmp_path / "t", {"delta.checkpointInterval": "7"})
    settings = table.settings(table_properties={"delta.checkpointInterval": "8"})
    check_kind(settings, table.view())
    assert DeltaTable(str(table.path)).metadata().configuration == {"delta.checkpointInterval": "7"}
    with pytest.raises(InvalidError, match=r"delta\.x: Delta tables have no such property"):
        lakefold.append(table.path, people([1]), table_properties={"delta.x": 8})


def test_lance_tables_have_no_properties_of_delta(tmp_path: Path) -> None:
    settings = DeltaFolding(tmp_path / "t").settings(table_properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidError, match=r"delta\.appendOnly: Lance tables have no such properties"):
        FORMATS["lance"].creation(replace(settings, format="lance"), Key("app", 0), SCHEMA)


def test_a_version_records_what_its_writer_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As delta-spark's userMetadata: a text, or JSON. Such a batch is alone in its version."""
    table = created(tmp_path / "t", {})
    written = [table.build(append_source(RowSource(people([number])))) for number in range(4)]
    assert all(written)
    for envelope, properties in zip(
        written, ({}, {"userMetadata": "by hand, à la main"}, {"team": "search", "run": "4"}, {}), strict=True
    ):
        if properties:
            FORMATS["delta"].record(envelope, properties)  # type: ignore[arg-type] # it is built
    versions = [result.version for result in table.fold(*written)]  # type: ignore[arg-type, union-attr] # they are committed
    assert versions == [1, 2, 3, 4]
    theirs = {entry["version"]: entry.get("userMetadata") for entry in DeltaTable(str(table.path)).history()}
    as_json = '{"team":"search","run":"4"}'
    assert theirs == {4: None, 3: as_json, 2: "by hand, à la main", 1: None, 0: None}
    assert run(["log", str(table.path)]) == 0
    out = capsys.readouterr().out
    assert "userMetadata=by hand, à la main" in out
    assert f"userMetadata={as_json}" in out
    assert run(["log", str(table.path), "--to", "1"]) == 0
    assert "properties" not in capsys.readouterr().out
    assert run(["show", str(table.path), "--version", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commit_properties"] == {"userMetadata": "by hand, à la main"}


def test_a_file_ends_at_the_size_that_the_table_names(tmp_path: Path) -> None:
    """In bytes of the store, which are fewer than those in memory; a partition's files are not cut for it."""
    size = 64 * 1024
    table = created(tmp_path / "t", {"delta.targetFileSize": "64kb"})
    digits = pa.array([f"{number * 7919 % 100_003:030}" for number in range(40_000)])
    numbers = list(range(40_000))
    rows = pa.table({"id": numbers, "name": digits, "n": pa.array(numbers, pa.int32())})
    table.append(rows)
    sizes = [file["size"] for file in added(table.path, 1)]
    assert len(sizes) > 3
    assert all(size <= each < 2 * size for each in sizes[:-1])
    assert sum(json.loads(file["stats"])["numRecords"] for file in added(table.path, 1)) == 40_000
    table.append(rows, max_rows_per_file=1000)
    assert len(added(table.path, 2)) == 40


@pytest.mark.parametrize("length", [0, 2, 5])
def test_files_are_in_folders_with_random_names_if_the_table_wants_that(tmp_path: Path, length: int) -> None:
    properties = {"delta.randomizeFilePrefixes": "true" if length else "false"}
    if length != 2:
        properties["delta.randomPrefixLength"] = str(length or 4)
    table = created(tmp_path / "t", properties, partition_by=("n",))
    table.append(people([1, 2, 3]))
    paths = [file["path"] for file in added(table.path, 1)]
    assert len(paths) == 3
    wanted = rf"[a-z0-9]{{{length}}}/part-[^/]*" if length else r"n=\d+/part-[^/]*"
    assert all(re.fullmatch(wanted, path) for path in paths), paths
    assert delta_rs_rows(table.path) == sorted(people([1, 2, 3]).to_pylist(), key=repr)
