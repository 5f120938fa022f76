"""Checkpoints with statistics as columns, as JSON, both or neither, by the table's properties."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.delta.checkpoints.new_checkpoint import INTERVAL, checkpoint_files
from lakefold_table.delta.checkpoints.parquet_actions import parquet_actions
from lakefold_table.delta.checkpoints.sidecars import v2_checkpoint
from lakefold_table.delta.checkpoints.statistics_columns import AS_COLUMNS, AS_JSON
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed
from tests.delta_logs.actions import (
    LISTED,
    PRIMITIVES,
    PROTOCOL,
    add,
    commits,
    data_file,
    metadata,
    snapshot_in,
    snapshot_of,
    text,
)
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_written_checkpoints import log_id

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

BOTH = {AS_COLUMNS: "true"}
COLUMNS = {AS_COLUMNS: "true", AS_JSON: "false"}
KINDS = [*PRIMITIVES, "decimal(5,2)"]
LEAST = {
    "byte": -128,
    "short": -32768,
    "integer": -(2**31),
    "long": -(2**63),
    "float": 0.5,
    "double": "-Infinity",
    "string": "ä",
    "boolean": False,
    "binary": "x",
    "date": "2020-01-02",
    "timestamp": "2020-01-02T03:04:05.678+01:00",
    "timestamp_ntz": "2020-01-02T03:04:05.678",
    "decimal(5,2)": 12.5,
    "s": {"i": 1, "other": 2},
    "unknown": 1,
}
UNFIT = {
    "byte": 128,
    "short": 2**15,
    "integer": 2**31,
    "long": 2.5,
    "float": "1",
    "double": True,
    "string": 1,
    "date": "99999-01-02",
    "timestamp": "then",
    "timestamp_ntz": 5,
    "decimal(5,2)": 12345,
    "s": 7,
}


def fields(*names: str, **physical: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": name,
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": physical[name]} if name in physical else {},
        }
        for name in names
    ]


def schema(*columns: dict[str, Any]) -> str:
    struct = {"type": "struct", "fields": [{**fields("integer")[0], "name": "i"}]}
    listed = {"type": "array", "elementType": "long", "containsNull": True}
    more = [
        {**fields("long")[0], "name": name, "type": kind} for name, kind in (("s", struct), ("l", listed))
    ]
    return json.dumps({"type": "struct", "fields": [*columns, *more]})


def added(snapshot: DeltaSnapshot) -> list[dict[str, Any]]:
    """The files of a version as its checkpoint has them."""
    (file,), *_ = checkpoint_files(snapshot, 0)
    rows = pq.read_table(pa.BufferReader(file.data)).column("add").to_pylist()
    return [row for row in rows if row is not None]


def version(table_schema: str, *stats: object, **configuration: str) -> DeltaSnapshot:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in stats]
    files = [add(f"{number}", stats=text) for number, text in enumerate(texts)]
    return snapshot_of(commits([PROTOCOL, metadata(table_schema, **configuration), *files]))


def test_statistics_are_columns_in_the_types_of_the_table() -> None:
    nulls = {"long": 1, "s": {"i": 2}, "l": 3}
    bounds = {"minValues": LEAST, "maxValues": UNFIT}
    stats = {"numRecords": 3, **bounds, "nullCount": nulls, "tightBounds": False}
    (file,) = added(version(schema(*fields(*KINDS)), stats, **BOTH))
    assert json.loads(file["stats"]) == stats
    parsed = file["stats_parsed"]
    assert (parsed["numRecords"], parsed["tightBounds"]) == (3, False)
    assert parsed["minValues"] == {
        "byte": -128,
        "short": -32768,
        "integer": -(2**31),
        "long": -(2**63),
        "float": 0.5,
        "double": -math.inf,
        "string": "ä",
        "date": dt.date(2020, 1, 2),
        "timestamp": dt.datetime(2020, 1, 2, 2, 4, 5, 678_000, tzinfo=dt.UTC),
        "timestamp_ntz": dt.datetime(2020, 1, 2, 3, 4, 5, 678_000),  # noqa: DTZ001 - a time without a zone
        "decimal(5,2)": Decimal("12.50"),
        "s": {"i": 1},
    }
    assert parsed["maxValues"] == {**dict.fromkeys(parsed["minValues"]), "s": None}
    counts = dict.fromkeys(KINDS)
    assert parsed["nullCount"] == {**counts, **nulls}


def test_a_number_that_json_may_have_rounded_is_no_bound() -> None:
    stats = '{"minValues":{"decimal(20,2)":1234567890123456.8,"x":1},"maxValues":{"decimal(20,2)":9999}}'
    (file,) = added(version(schema(*fields("decimal(20,2)")), stats, **BOTH))
    assert file["stats_parsed"]["minValues"]["decimal(20,2)"] is None
    assert file["stats_parsed"]["maxValues"]["decimal(20,2)"] == Decimal("9999.00")


@pytest.mark.parametrize("bound", ["99999999999999999.99", "100000000000000000.01", "123456789012345678.25"])
def test_a_bound_with_more_digits_than_a_float_keeps_them(bound: str) -> None:
    """As a float the first two are 1e17, which is above one and below the other."""
    bounds = f'{{"decimal(20,2)":{bound},"double":{bound}}}'
    snapshot = version(schema(*fields("decimal(20,2)", "double")), f'{{"minValues":{bounds}}}', **COLUMNS)
    (file,) = added(snapshot)
    assert file["stats_parsed"]["minValues"]["decimal(20,2)"] == Decimal(bound)
    assert file["stats_parsed"]["minValues"]["double"] == float(bound)
    (checkpoint,), *_ = checkpoint_files(snapshot, 0)
    (read,) = (each for each in parquet_actions(checkpoint.data, "") if isinstance(each, AddFile))
    assert f'"minValues":{{"decimal(20,2)":{bound},' in str(read.stats)


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("double", "1" + "0" * 400),
        ("float", "1e300"),
        ("timestamp", '"0001-01-01T00:00:00+14:00"'),
        ("timestamp", '"9999-12-31T23:59:59-14:00"'),
        ("date", '"-0001-01-01"'),
    ],
)
def test_a_bound_that_the_column_can_not_hold_is_null(tmp_path: Path, kind: str, least: str) -> None:
    """A commit is published before its checkpoint is made, so it must not end there.

    Another client has written the bounds.
    """
    table = Table(tmp_path / "t")
    created = table.propose(PROTOCOL, metadata(schema(*fields(kind)), **BOTH, **{INTERVAL: "1"}))
    assert table.fold(created, log=log_id(1)) == [Committed(0)]
    files = [data_file(table.path, name, 1) for name in "ab"]
    files[0]["add"]["stats"] = f'{{"numRecords":1,"minValues":{{"{kind}":{least}}}}}'
    files[1]["add"]["stats"] = f'{{"numRecords":1,"minValues":{{"{kind}":"no bound"}}}}'
    (table.path / commit_path(1)).write_bytes(text(files))
    (stored,) = table.fold(table.propose(data_file(table.path, "c", 1)), log=log_id(2))
    assert isinstance(stored, Committed)
    (checkpoint,) = (table.path / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint).column("add").to_pylist()
    parsed = {row["path"]: row["stats_parsed"]["minValues"] for row in rows if row is not None}
    assert [parsed["a"][kind], parsed["b"][kind], parsed["c"]] == [None, None, None]


def test_statistics_that_are_malformed_or_absent_are_null() -> None:
    snapshot = version(schema(*fields("long")), "[1", '{"numRecords":"x"}', **BOTH)
    files = snapshot_of(commits([PROTOCOL, metadata(snapshot.metadata.schema_text, **BOTH), add("a")]))
    assert [file["stats_parsed"]["numRecords"] for file in added(snapshot)] == [None, None]
    assert [file["stats_parsed"] for file in added(files)] == [None]


@pytest.mark.parametrize(
    ("configuration", "names"),
    [
        ({}, {"stats"}),
        ({AS_COLUMNS: "TRUE"}, {"stats", "stats_parsed"}),
        (COLUMNS, {"stats_parsed"}),
        ({AS_JSON: "false"}, set()),
    ],
)
def test_the_properties_say_which_columns_there_are(configuration: dict[str, str], names: set[str]) -> None:
    (file,) = added(version(schema(*fields("long")), '{"numRecords":1}', **configuration))
    assert {name for name in file if "stats" in name} == names
    assert "partitionValues_parsed" not in file


def test_partition_values_are_columns_by_their_names_in_files() -> None:
    text = schema(
        *fields("long", "date", "boolean", "string", "double", "decimal(5,2)", "binary", long="col-1")
    )
    table = metadata(text, **BOTH, **{"delta.columnMapping.mode": "name"})
    names = ["long", "date", "boolean", "string", "double", "decimal(5,2)", "binary"]
    table["metaData"]["partitionColumns"] = names
    physical = ["col-1", *names[1:]]
    given = dict(zip(physical, ["5", "2020-01-02", "true", "x", "0.5", "1.50", "é"], strict=True))
    files = [add("a", partitionValues=given), add("b", partitionValues=dict.fromkeys(physical))]
    files.append(add("c", partitionValues=dict.fromkeys(physical, "")))
    first, second, third = added(snapshot_of(commits([PROTOCOL, table, *files])))
    values = [5, dt.date(2020, 1, 2), True, "x", 0.5, Decimal("1.50"), "é".encode()]
    assert first["partitionValues_parsed"] == dict(zip(physical, values, strict=True))
    assert second["partitionValues_parsed"] == third["partitionValues_parsed"] == dict.fromkeys(physical)
    assert dict(first["partitionValues"]) == given


@pytest.mark.parametrize(
    ("kind", "text", "parsed"),
    [
        ("date", "2020-1-2", dt.date(2020, 1, 2)),
        ("timestamp", "2020-01-02 3:04:05.5", dt.datetime(2020, 1, 2, 3, 4, 5, 500_000, tzinfo=dt.UTC)),
        (
            "timestamp",
            "2020-01-02T03:04:05.123456Z",
            dt.datetime(2020, 1, 2, 3, 4, 5, 123_456, tzinfo=dt.UTC),
        ),
        ("timestamp_ntz", "2020-01-02 03:04:05", dt.datetime(2020, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - as above
        ("long", "+07", 7),
        ("byte", "300", None),
    ],
)
def test_each_form_of_a_partition_value_is_parsed(kind: str, text: str, parsed: object) -> None:
    table = metadata(schema(*fields(kind)), **BOTH)
    table["metaData"]["partitionColumns"] = [kind]
    (file,) = added(snapshot_of(commits([PROTOCOL, table, add("a", partitionValues={kind: text})])))
    assert file["partitionValues_parsed"] == {kind: parsed}


def test_sidecars_are_written_anew_if_the_properties_changed() -> None:
    before, after = (
        snapshot_of(commits([LISTED, metadata(**configuration), add("a", stats='{"numRecords":1}')]))
        for configuration in ({}, BOTH)
    )
    (sidecar, *_), runs = v2_checkpoint(before, 0, {})
    (again, *_), _ = v2_checkpoint(after, 0, runs)
    assert sidecar.path != again.path
    assert "stats_parsed" in str(pq.read_schema(pa.BufferReader(again.data)))
    assert len(v2_checkpoint(before, 0, runs)[0]) == 2


@pytest.mark.parametrize("configuration", [BOTH, COLUMNS, {AS_JSON: "false"}], ids=str)
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_delta_rs_and_lakefold_open_such_a_checkpoint(
    tmp_path: Path, configuration: dict[str, str], policy: str
) -> None:
    table = Table(tmp_path / "t")
    protocol = LISTED if policy == "v2" else PROTOCOL
    given = metadata(**configuration, **{INTERVAL: "3", "delta.checkpointPolicy": policy})
    table.fold(table.propose(protocol, given), log=log_id(0))
    stats = []
    for number in range(1, 4):
        file = table.file(f"{number}.parquet", number)
        stats.append(
            {"numRecords": 1, "minValues": {"x": number}, "maxValues": {"x": number}, "nullCount": {"x": 0}}
        )
        file["add"]["stats"] = json.dumps(stats[-1])
        table.fold(table.propose(file), log=log_id(number))
    for number in range(3):
        (table.path / "_delta_log" / f"{number:020}.json").unlink()
    (table.path / "_delta_log" / f"{3:020}.crc").unlink()
    theirs = QueryBuilder().register("t", DeltaTable(str(table.path)))
    for least in (0, 1, 2, 3):
        rows = pa.table(theirs.execute(f"select x from t where x > {least} order by x").read_all())  # noqa: S608 - a number
        assert rows["x"].to_pylist() == list(range(least + 1, 4))
        ours = lakefold.open(str(table.path)).to_arrow(filter=f"x > {least}")
        assert sorted(pa.table(ours)["x"].to_pylist()) == list(range(least + 1, 4))
    read = [file.stats for file in snapshot_in(table.path).files.values()]
    expected = [None] * 3 if configuration == {AS_JSON: "false"} else stats
    assert [None if text is None else json.loads(text) for text in read] == expected
