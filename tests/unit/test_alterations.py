"""What a user may change of a table, and what a Delta table's metadata and protocol become."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefold.tables.schema_texts import field_of, read_schema, schema_from, type_of
from lakefold_ingest.alteration import Alteration
from lakefold_ingest.delta.alteration import altered
from lakefold_ingest.delta.new_table import new_table, protocol_with
from lakefold_ingest.delta.table_schema import table_schema
from lakefold_ingest.delta.view import DeltaView
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.marks.marks import Marks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = Key("job", 1)
MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
PLACE = pa.struct([("city", pa.string()), pa.field("zips", pa.list_(pa.struct([("zip", pa.int32())])))])
SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("place", PLACE)])


def view(properties: Mapping[str, str] | None = None, protocol: TableProtocol | None = None) -> DeltaView:
    settings = WriteSettings(
        "file:///t", KafkaConfig("b:1"), Topics(), table_properties=properties or {}, format="delta"
    )
    own, metadata = new_table(settings, KEY, SCHEMA)
    schema = table_schema(metadata)
    return DeltaView("file:///t", 3, schema, Marks(), Marks(), None, metadata, protocol or own)


def actions(of: DeltaView, **changes: Any) -> tuple[TableProtocol | None, TableMetadata]:  # noqa: ANN401 - see `Alteration`
    """The actions that alter a table: its new protocol, and its metadata."""
    envelope = altered(of, KEY, Alteration(**changes))
    assert envelope is not None
    assert (envelope.app_id, envelope.batch_id, envelope.delta.read_version) == ("job", 1, 3)
    made = list(parse_actions(envelope.delta.actions))
    (metadata,) = (each for each in made if isinstance(each, TableMetadata))
    return next((each for each in made if isinstance(each, TableProtocol)), None), metadata


def fields(metadata: TableMetadata) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(metadata.schema_text)["fields"]
    return listed


def test_columns_of_a_table_that_gets_mapped_keep_their_names_in_files() -> None:
    protocol, metadata = actions(view(), properties=MAPPED)
    assert protocol == TableProtocol(2, 7, None, ("appendOnly", "columnMapping", "invariants"))
    inner = fields(metadata)[1]["type"]["fields"]
    named = [*fields(metadata), *inner, *inner[1]["type"]["elementType"]["fields"]]
    for number, field in enumerate(
        sorted(named, key=lambda each: int(each["metadata"]["delta.columnMapping.id"])), 1
    ):
        assert field["metadata"] == {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
    assert metadata.configuration == MAPPED | {"delta.columnMapping.maxColumnId": "5"}


def test_a_new_column_of_a_mapped_table_never_has_the_name_of_one_that_went() -> None:
    of = view(MAPPED)
    with pytest.raises(InvalidError, match="the column is dropped and added"):
        actions(of, drop=("place",), add=(pa.field("place", pa.string()),))
    _, dropped = actions(of, drop=("place",), rename={"id": "key"})
    without = replace(of, metadata=dropped, schema=table_schema(dropped))
    _, metadata = actions(without, add=(pa.field("place", pa.string()),))
    before, after = fields(of.metadata), fields(metadata)
    assert [each["name"] for each in after] == ["key", "place"]
    assert after[0]["metadata"] == before[0]["metadata"]
    assert after[1]["metadata"]["delta.columnMapping.id"] == 6
    assert after[1]["metadata"]["delta.columnMapping.physicalName"].startswith("col-")


def test_changes_of_types_are_listed_one_after_another() -> None:
    protocol, metadata = actions(view(), properties=WIDENING, widen={"id": pa.int64()})
    assert protocol == TableProtocol(3, 7, ("typeWidening",), ("appendOnly", "invariants", "typeWidening"))
    assert fields(metadata)[0]["metadata"] == {
        "delta.typeChanges": [{"fromType": "integer", "toType": "long"}]
    }
    later = replace(view(), metadata=metadata, protocol=protocol)
    protocol, metadata = actions(later, widen={"id": pa.decimal128(20, 0)})
    assert protocol is None
    assert [each["toType"] for each in fields(metadata)[0]["metadata"]["delta.typeChanges"]] == [
        "long",
        "decimal(20,0)",
    ]


def listing(reader: int, *features: str) -> TableProtocol:
    """A protocol with these features and the oldest ones; those for readers are listed from version 3 on."""
    listed = tuple(each for each in features if each == "columnMapping") if reader == 3 else None
    return TableProtocol(reader, 7, listed, ("appendOnly", "invariants", *features))


@pytest.mark.parametrize(
    ("before", "properties", "after"),
    [
        (TableProtocol(1, 2), {"delta.enableChangeDataFeed": "true"}, listing(1, "changeDataFeed")),
        (TableProtocol(3, 7, (), ()), MAPPED, listing(3, "columnMapping")),
        (TableProtocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",)), WIDENING, None),
        (TableProtocol(1, 4), {"delta.enableChangeDataFeed": "true"}, None),
        (
            TableProtocol(1, 2),
            {"delta.feature.rowTracking": "supported"},
            listing(1, "rowTracking", "domainMetadata"),
        ),
    ],
)
def test_a_protocol_grows_by_what_is_needed(
    before: TableProtocol, properties: dict[str, str], after: TableProtocol | None
) -> None:
    protocol, _ = actions(view(protocol=before), properties=properties)
    assert protocol == after


def test_a_table_without_features_keeps_the_oldest_protocol() -> None:
    assert protocol_with(frozenset({"appendOnly"})) == TableProtocol(1, 2)


def test_rows_are_tracked_in_columns_that_the_table_names() -> None:
    _, metadata = actions(view(), properties={"delta.enableRowTracking": "true"})
    named = metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
    assert str(named).startswith("_row-id-col-")
    assert altered(replace(view(), metadata=metadata), KEY, Alteration(properties=WIDENING)) is not None


@pytest.mark.parametrize(
    ("properties", "changes", "message"),
    [
        (MAPPED, {"drop": ("id", "place")}, "all columns would be dropped"),
        (MAPPED, {"rename": {"id": "place"}}, "two columns 'place'"),
        (MAPPED | {"delta.dataSkippingStatsColumns": "place.city, id"}, {"drop": ("place",)}, "names it"),
        (WIDENING, {"widen": {"place": pa.string()}}, "can't get the type string"),
        (WIDENING, {"widen": {"id": pa.int16()}}, "short instead of integer"),
        (
            {},
            {"widen": {"id": pa.int64()}, "properties": {"delta.enableTypeWidening": "false"}},
            "is not set",
        ),
        (MAPPED, {"properties": {"delta.columnMapping.mode": None}}, "don't fit"),
        ({}, {"rename": {"id": "x"}, "properties": MAPPED}, "columnMapping.mode is not set"),
        ({}, {"add": (pa.field("_rowid", pa.int64()),)}, "reserved"),
        (MAPPED, {"rename": {"id": "_rowid"}}, "reserved"),
        ({}, {"add": (pa.field("x", pa.duration("s")),)}, "no type for duration"),
        ({}, {"properties": {"delta.columnMapping.maxColumnId": "7"}}, "does not set this property"),
        ({}, {"properties": {"delta.enableDeletionVectors": "perhaps"}}, "none of its values"),
        ({}, {"properties": {"delta.enableIcebergCompatV2": "true"}}, "no such property"),
    ],
)
def test_what_makes_no_sense_is_refused(
    properties: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        altered(view(properties), KEY, Alteration(**changes))


def test_what_a_table_has_already_is_not_sent() -> None:
    assert altered(view(MAPPED), KEY, Alteration(properties=MAPPED)) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("BIGINT", pa.int64()),
        ("int64", pa.int64()),
        ("int", pa.int32()),
        ("float", pa.float32()),
        ("date", pa.date32()),
        ("date64", pa.date64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("string[]", pa.list_(pa.string())),
        ("float[768]", pa.list_(pa.float32(), 768)),
        ("int[][2]", pa.list_(pa.list_(pa.int32()), 2)),
    ],
)
def test_names_of_types(text: str, kind: pa.DataType) -> None:
    assert type_of(text) == kind


@pytest.mark.parametrize("text", ["", "lnog", "void", "null", "decimal(39,1)", "[3]", "struct"])
def test_names_of_no_type(text: str) -> None:
    with pytest.raises(InvalidError):
        type_of(text)


def test_a_column_by_its_type_or_as_a_field() -> None:
    assert field_of("x", "int64 NOT  NULL") == pa.field("x", pa.int64(), nullable=False)
    given = pa.field("y", pa.int64(), metadata={"a": "b"})
    assert field_of("x", given).equals(given.with_name("x"), check_metadata=True)
    with pytest.raises(InvalidError, match="3 is no type"):
        field_of("x", 3)


def test_files_with_a_schema(tmp_path: Path) -> None:
    _, metadata = new_table(WriteSettings("file:///t", KafkaConfig("b:1"), Topics()), KEY, SCHEMA)
    spark, short, parquet = tmp_path / "spark.JSON", tmp_path / "short.json", tmp_path / "rows.parquet"
    spark.write_text(metadata.schema_text)
    short.write_text('{"id": "int not null", "tags": "string[]"}')
    pq.write_table(SCHEMA.empty_table(), parquet)
    assert read_schema(spark) == read_schema(parquet) == SCHEMA
    assert read_schema(short) == schema_from({"id": "int not null", "tags": "string[]"})
    for text in ("", "[]", "{}", '{"id": "lnog"}', '{"fields": [3]}', '{"id": 3}'):
        short.write_text(text)
        with pytest.raises(LakefoldError, match=r"short\.json"):
            read_schema(short)
