"""What Delta's protocol requires of writers: a proposal that breaks a rule is Invalid, and says which."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import lakefold
from lakefold_reader.delta.columns import partition_values
from lakefold_reader.delta.schema import schema_of
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.table_features.checkpoint_protection import PROTECTED
from lakefold_table.delta.table_features.features import FEATURES
from lakefold_table.delta.table_features.metadata_rules import USES, metadata_faults
from lakefold_table.delta.table_features.partition_values import fits_type
from lakefold_table.delta.table_features.row_tracking import MATERIALIZED
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.errors import InvalidError
from tests.delta_logs.actions import (
    PROTOCOL,
    VECTORS,
    Members,
    add,
    data_file,
    metadata,
    protocol_with,
    remove,
    snapshot_in,
    text,
)
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import Rows, log_id

if TYPE_CHECKING:
    from pathlib import Path

Field = dict[str, Any]
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
INVARIANT = json.dumps({"expression": {"expression": "x > 3"}})
WRITABLE = tuple(feature.name for feature in FEATURES if feature.refused_if is None)


def protocol(*names: str) -> Members:
    """A protocol with these features, and those that these need."""
    needed = {"rowTracking": "domainMetadata"}
    listed = sorted({*names, *(needed[name] for name in names if name in needed)})
    return protocol_with(*listed)


def field(name: str, kind: object = "long", **keys: object) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": keys}


def mapped(name: str, number: int, kind: object = "long", physical: str = "") -> Field:
    keys = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": physical or f"c{number}",
    }
    return field(name, kind, **keys)


def described(*fields: Field, by: Any = (), **configuration: str) -> Members:  # noqa: ANN401 - mypy takes `**` for it as well
    action = metadata(json.dumps({"type": "struct", "fields": list(fields)}), **configuration)
    action["metaData"]["partitionColumns"] = list(by)
    return action


def inside(name: str) -> Field:
    """A column with a struct in an array, which has a column of this name twice, in different case."""
    struct = {"type": "struct", "fields": [field(name), field(name.upper())]}
    return field("a", {"type": "array", "elementType": struct, "containsNull": True})


BROKEN: dict[str, tuple[Members, str]] = {
    "appendOnly": (described(field("x"), **{"delta.appendOnly": "true"}), "delta.appendOnly = true needs"),
    "invariants": (
        described(field("x", **{"delta.invariants": INVARIANT})),
        "delta.invariants of the column 'x' needs",
    ),
    "checkConstraints": (
        described(field("x"), **{"delta.constraints.c": "x > 1"}),
        "delta.constraints.c needs",
    ),
    "generatedColumns": (described(field("x", **{"delta.generationExpression": "1"})), "generatedColumns"),
    "allowColumnDefaults": (
        described(field("x", CURRENT_DEFAULT="1")),
        "needs the feature allowColumnDefaults",
    ),
    "changeDataFeed": (described(field("x"), **{"delta.enableChangeDataFeed": "true"}), "changeDataFeed"),
    "columnMapping": (described(mapped("x", 1), **MAPPED), "needs the feature columnMapping"),
    "identityColumns": (described(field("x", **{"delta.identity.start": 1})), "identityColumns"),
    "deletionVectors": (described(field("x"), **VECTORS), "needs the feature deletionVectors"),
    "rowTracking": (described(field("x"), **{"delta.enableRowTracking": "true"}), "feature rowTracking"),
    "inCommitTimestamp": (
        described(field("x"), **{"delta.enableInCommitTimestamps": "true"}),
        "needs the feature inCommitTimestamp",
    ),
    "timestampNtz": (
        described(field("x", {"type": "array", "elementType": "timestamp_ntz", "containsNull": True})),
        "the type timestamp_ntz of the column 'x' needs the feature timestampNtz",
    ),
    "v2Checkpoint": (described(field("x"), **{"delta.checkpointPolicy": "v2"}), "feature v2Checkpoint"),
    "icebergCompatV1": (described(field("x"), **{"delta.enableIcebergCompatV1": "true"}), "icebergCompatV1"),
    "icebergCompatV2": (described(field("x"), **{"delta.enableIcebergCompatV2": "true"}), "icebergCompatV2"),
    "typeWidening": (described(field("x"), **{"delta.enableTypeWidening": "true"}), "typeWidening"),
    "variantType": (described(field("x", "variant")), "needs the feature variantType"),
    "a protected version": (
        described(field("x"), **{PROTECTED: "-1"}),
        "delta.requireCheckpointProtectionBeforeVersion is '-1', which is not a version",
    ),
    "a format": (
        {"metaData": {**described(field("x"))["metaData"], "format": {"provider": "orc"}}},
        "have the format 'orc'",
    ),
    "one name": (described(field("x"), field("X")), "the columns 'x' and 'X' have one name"),
    "one name inside": (described(inside("y")), "'a.y' and 'a.Y' have one name"),
    "an unknown type": (described(field("x", "int64")), "has the type 'int64', which Delta does not have"),
    **{
        f"a type without what it contains: {kind}": (described(field("x", kind)), "which Delta does not have")
        for kind in (
            "array",
            "map",
            "struct",
            {"type": "array"},
            {"type": "struct"},
            {"type": "map", "keyType": "long"},
            {"type": "long"},
            {"type": "array", "elementType": {"type": "array"}, "containsNull": True},
            {"type": "array", "elementType": "long"},
            {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": "true"},
        )
    },
    **{
        f"a column with {members}": (
            described({"name": "x", "type": "long", **members}),
            f"the definition of the column 'x' lacks {lacks}",
        )
        for lacks, members in (
            ("nullable", {"metadata": {}}),
            ("nullable", {"nullable": "true", "metadata": {}}),
            ("metadata", {"nullable": True}),
            ("metadata", {"nullable": True, "metadata": None}),
        )
    },
    "a partition column that is missing": (described(field("x"), by=("p",)), "'p' is not in the schema"),
    "a partition column twice": (described(field("x"), field("p"), by=("p", "p")), "named twice"),
    "a partition of structs": (
        described(field("x"), field("p", {"type": "struct", "fields": []}), by=("p",)),
        "the partition column 'p' has the type struct",
    ),
}
MAPPINGS = {
    "no id": (described(field("x"), **MAPPED), "the column 'x' lacks delta.columnMapping.id"),
    "one id": (
        described(mapped("x", 1), mapped("y", 1, physical="d"), **MAPPED),
        "have one delta.columnMapping.id",
    ),
    "one physical name": (described(mapped("x", 1, physical="c2"), mapped("y", 2), **MAPPED), "physicalName"),
    "a higher id": (described(mapped("x", 3), **MAPPED), "but a column has the id 3"),
    "a large id": (
        described(mapped("x", 1 << 31), **MAPPED | {"delta.columnMapping.maxColumnId": str(1 << 31)}),
        "is 2147483648, beyond 32 bits",
    ),
    "a mode": (described(mapped("x", 1), **MAPPED | {"delta.columnMapping.mode": "names"}), "set it to name"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_metadata_that_break_a_rule_are_invalid_from_the_first_version_on(tmp_path: Path, name: str) -> None:
    table = Table(tmp_path / "t")
    made, says = BROKEN[name]
    features = protocol("domainMetadata", "checkpointProtection")
    (refused,) = table.fold(table.propose(features, made))
    assert isinstance(refused, Invalid)
    assert says in refused.message
    assert refused.hint
    assert not list((tmp_path / "t").glob("_delta_log/*.json"))
    table.fold(table.propose(features, metadata()), log=log_id(2))
    (refused,) = table.fold(table.propose(made, read=0), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert says in refused.message


@pytest.mark.parametrize("name", MAPPINGS)
def test_columns_are_mapped_by_ids_and_names_of_their_own(tmp_path: Path, name: str) -> None:
    table = Table(tmp_path / "t")
    made, says = MAPPINGS[name]
    (refused,) = table.fold(table.propose(protocol("columnMapping"), made))
    assert isinstance(refused, Invalid)
    assert says in f"{refused.message} {refused.hint}"


def test_each_use_of_a_feature_has_a_case_and_is_allowed_with_the_feature(tmp_path: Path) -> None:
    assert {use.features[0] for use in USES} <= BROKEN.keys()
    for number, name in enumerate(BROKEN.keys() & set(WRITABLE)):
        table = Table(tmp_path / str(number))
        made, _ = BROKEN[name]
        columns = {each: f"_{number}" for number, each in enumerate(MATERIALIZED)}
        made["metaData"]["configuration"] |= columns if name == "rowTracking" else {}
        assert table.fold(table.propose(protocol(name), made)) == [Committed(0)], name


def test_what_another_client_did_before_is_no_fault_of_a_proposal(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    made = described(field("x"), **{"delta.constraints.c": "x > 0"})
    (log / f"{0:020}.json").write_bytes(text([protocol("domainMetadata"), made]))
    made["metaData"]["configuration"]["note"] = "1"
    assert table.fold(table.propose(made, read=0)) == [Committed(1)]
    made["metaData"]["configuration"]["delta.appendOnly"] = "true"
    (refused,) = table.fold(table.propose(made, read=1), log=log_id(2))
    assert isinstance(refused, Invalid)
    assert "appendOnly" in refused.message


CHANGES = {
    "a column less": (described(field("x")), "the column 'y' is gone"),
    "another type": (described(field("x"), field("y", "integer")), "gets the type integer instead of long"),
    "partitioned": (described(field("x"), field("y"), by=("x",)), "the partition columns change"),
    "mapped": (described(mapped("x", 1), mapped("y", 2), **MAPPED), "'x' gets another delta.columnMapping"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_metadata_fit_to_the_files_that_the_table_keeps(tmp_path: Path, name: str) -> None:
    changed, says = CHANGES[name]
    table = Table(tmp_path / "t")
    first = data_file(table.path, "a.parquet", 1)
    table.fold(table.propose(protocol("columnMapping"), described(field("x"), field("y"))), log=log_id(1))
    table.fold(table.propose(first), log=log_id(2))
    (refused,) = table.fold(table.propose(changed, read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert says in refused.message
    assert "keeps files" in refused.message
    # Another append came first: built again, the proposal would remove its file as well.
    table.fold(table.propose(data_file(table.path, "b.parquet", 2)), log=log_id(4))
    replaced = table.propose(changed, remove("a.parquet"), read=1)
    (rejected,) = table.fold(replaced, log=log_id(5))
    assert isinstance(rejected, Rejected)
    assert rejected.conflict.retryable
    newest = len(list(table.path.glob("_delta_log/*.json"))) - 1
    replaced = table.propose(changed, remove("a.parquet"), remove("b.parquet"), read=newest)
    assert isinstance(table.fold(replaced, log=log_id(6))[0], Committed)


REQUIRED = {"name": "a", "type": "long", "nullable": False, "metadata": {}}


@pytest.mark.parametrize(
    "whole",
    [
        {"type": "array", "elementType": "long", "containsNull": False},
        {"type": "struct", "fields": [REQUIRED]},
        {"type": "struct", "fields": [field("in", {"type": "struct", "fields": [REQUIRED]})]},
    ],
    ids=["array", "struct", "struct in a struct"],
)
def test_a_column_without_values_gets_any_type(tmp_path: Path, whole: Members) -> None:
    table = Table(tmp_path / "t")
    table.fold(table.propose(PROTOCOL, described(field("x"), field("y", "void"))), log=log_id(1))
    table.fold(table.propose(data_file(table.path, "a.parquet", 1)), log=log_id(2))
    required = described(field("x"), {**field("y", whole), "nullable": False})
    (refused,) = table.fold(table.propose(required, read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert "the column 'y' becomes NOT NULL" in refused.message
    made = described(field("x"), field("y", whole))
    (result,) = table.fold(table.propose(made, read=1), log=log_id(4))
    assert isinstance(result, Committed), result
    assert lakefold.open(table.path).to_arrow()["y"].to_pylist() == [None]


def test_a_mapped_column_may_be_renamed_and_dropped_and_keeps_its_stored_name(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    made = described(mapped("x", 1), mapped("y", 2), **MAPPED)
    table.fold(table.propose(protocol("columnMapping"), made), log=log_id(1))
    table.fold(table.propose(data_file(table.path, "a.parquet", 1)), log=log_id(2))
    moved = described(mapped("x", 1, physical="other"), mapped("y", 2), **MAPPED)
    (refused,) = table.fold(table.propose(moved, read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    lower = described(mapped("x", 1), **MAPPED | {"delta.columnMapping.maxColumnId": "1"})
    (refused,) = table.fold(table.propose(lower, read=1), log=log_id(4))
    assert isinstance(refused, Invalid)
    assert "goes back from 2 to 1" in refused.message
    (result,) = table.fold(table.propose(described(mapped("z", 1), **MAPPED), read=1), log=log_id(5))
    assert isinstance(result, Committed)


def test_an_id_that_is_no_number_is_that_of_no_column(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    made = described(mapped("x", 1), **MAPPED)
    wrong = json.loads(json.dumps(made).replace('columnMapping.id\\": 1', 'columnMapping.id\\": [1]'))
    assert wrong != made
    table.fold(table.propose(protocol("columnMapping"), made), log=log_id(1))
    (refused,) = table.fold(table.propose(wrong, read=0), log=log_id(2))
    assert isinstance(refused, Invalid), refused
    assert "lacks delta.columnMapping.id" in refused.message
    # Another client may have written it: a proposal can correct it.
    newest = snapshot_in(table.path).version + 1
    (table.path / commit_path(newest)).write_bytes(text([wrong]))
    (result,) = table.fold(table.propose(made, read=newest), log=log_id(3))
    assert isinstance(result, Committed), result
    unmapped = metadata(wrong["metaData"]["schemaString"])
    (result,) = table.fold(table.propose(unmapped, read=newest + 1), log=log_id(4))
    assert isinstance(result, Committed), result


MODES = ("none", "name", "id")


@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("after", MODES)
def test_files_that_stay_were_written_for_the_way_in_which_columns_are_mapped(
    tmp_path: Path, before: str, after: str
) -> None:
    """Physical names are those of the schema, so nothing else differs."""

    def mapped_by(mode: str) -> Members:
        number = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "1"}
        return described(mapped("x", 1, physical="x"), **number)

    table = Table(tmp_path / "t")
    file = data_file(table.path, "a.parquet", 1)
    table.fold(table.propose(protocol("columnMapping"), mapped_by(before)), log=log_id(1))
    table.fold(table.propose(file), log=log_id(2))
    (result,) = table.fold(table.propose(mapped_by(after), read=1), log=log_id(3))
    if before == after or (before, after) == ("none", "name"):
        assert isinstance(result, Committed), result
        return
    assert isinstance(result, Invalid), result
    assert f"delta.columnMapping.mode changes from {before} to {after}, but the table keeps" in result.message
    replaced = table.propose(mapped_by(after), remove("a.parquet"), read=2)
    assert isinstance(table.fold(replaced, log=log_id(4))[0], Committed)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        (protocol("rowTracking"), "the feature rowTracking, which needs the feature domainMetadata"),
        (protocol("deletionVectors"), "must know the feature deletionVectors as well"),
    ],
)
def test_a_protocol_has_what_its_features_need(tmp_path: Path, action: Members, says: str) -> None:
    members = json.loads(json.dumps(action))
    if "deletionVectors" in says:
        members["protocol"]["readerFeatures"] = []
    else:
        members["protocol"]["writerFeatures"].remove("domainMetadata")
    table = Table(tmp_path / "t")
    (refused,) = table.fold(table.propose(members, metadata()))
    assert isinstance(refused, Invalid)
    assert says in refused.message


def test_a_deletion_vector_is_made_only_if_the_property_allows_it(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0)
    read = rows.table.propose(metadata(), read=1)
    assert isinstance(rows.fold(read)[0], Committed)
    (refused,) = rows.fold(rows.delete(0, [1], read=2))
    assert isinstance(refused, Invalid)
    assert "delta.enableDeletionVectors is not true" in refused.message


def test_statistics_name_columns_of_the_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    file = data_file(table.path, "a.parquet", 1)
    for member in ("minValues", "maxValues", "nullCount"):
        file["add"]["stats"] = json.dumps({"numRecords": 1, member: {"z": 1}})
        (refused,) = table.fold(table.propose(file), log=log_id(1))
        assert isinstance(refused, Invalid)
        assert "has the column 'z', which is not in the table's schema" in refused.message
    file["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": {"X": 1}})
    assert isinstance(table.fold(table.propose(file), log=log_id(2))[0], Committed)


VALUES: dict[str, tuple[dict[str, object], list[str]]] = {
    "byte": ({"-128": -128, "127": 127, "+1": 1}, ["128", "1.0", "x", " 1", "\u0661"]),
    "long": ({str(2**63 - 1): 2**63 - 1}, [str(2**63), "9" * 5_000]),
    "decimal(5,2)": (
        {
            "123.45": Decimal("123.45"),
            "-1": Decimal("-1.00"),
            "1e2": Decimal("100.00"),
            "+1.500": Decimal("1.50"),
        },
        ["1234.5", "1.234", "NaN", "x", "1e999999999", "1_0", " 1", "\u0661"],
    ),
    "decimal(38,2)": (
        {"9" * 36 + ".90": Decimal("9" * 36 + ".90"), "0e999": Decimal("0.00")},
        ["9" * 35 + ".999", "9" * 37, "0e999999999"],
    ),
    "double": (
        {"1e9": 1e9, "NaN": math.nan, "-Infinity": -math.inf, "1e999": math.inf},
        ["x", "1_0", " 1", "\uff11"],
    ),
    "boolean": ({"true": True, "FALSE": False}, ["yes", "01"]),
    "binary": ({"\u0001\u00ff": "\x01ÿ".encode(), "😈": "😈".encode()}, []),
    "date": (
        {"2026-01-31": dt.date(2026, 1, 31), "2026-1-3": dt.date(2026, 1, 3)},
        ["2026-02-30", "31.1.2026", "2026-01-31T00:00:00"],
    ),
    "timestamp": (
        {
            "2026-01-31 23:59:59": dt.datetime(2026, 1, 31, 23, 59, 59, 0, dt.UTC),
            "2026-01-31T00:00:00.123456789Z": dt.datetime(2026, 1, 31, 0, 0, 0, 123456, dt.UTC),
            "2026-1-31 1:00:00+02:00": dt.datetime(2026, 1, 30, 23, 0, 0, 0, dt.UTC),
            "2026-01-31 00:00:00.5-0130": dt.datetime(2026, 1, 31, 1, 30, 0, 500_000, dt.UTC),
        },
        [
            "2026-01-31 24:00:00",
            "2026-01-31 24",
            "2026-01-31 12:60",
            "2026-01-31 00-0100 ",
            "yesterday",
            "2026-13-01 00:00:00",
            "2026-01-31 00:00:00+99:00",
            "9999-12-31 23:59:59-01:00",
        ],
    ),
    "timestamp_ntz": (
        {"2026-1-31 1:00:00.25": dt.datetime(2026, 1, 31, 1, 0, 0, 250_000)},  # noqa: DTZ001 - it has none
        ["2026-01-31 24:00:00"],
    ),
    "string": ({"": None, "any": "any"}, []),
}
"""Of each type: texts with the values that are read from them, and texts that are none."""
SHORT_TIMES = ("2026-01-31 07:00", "2026-1-31T07:00", "2026-01-31 07", "2026-01-31T7Z")


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_partitions_fit_the_type_of_their_column(tmp_path: Path, kind: str) -> None:
    fitting, others = VALUES[kind]
    assert all(fits_type(text, kind) for text in [None, "", *fitting])
    assert [text for text in others if fits_type(text, kind)] == []
    (column,) = schema_of(json.dumps({"type": "struct", "fields": [field("p", kind)]})).columns
    for text_value, value in fitting.items():
        (read,) = partition_values(text_value, column, 1).to_pylist()
        # NaN is not equal to itself, and a decimal has the digits of its type.
        assert (type(read), str(read)) == (type(value), str(value))
    for text_value in others:
        with pytest.raises(ValueError, match="the value of the partition column 'p' is"):
            partition_values(text_value, column, 1)
    table = Table(tmp_path / "t")
    made = described(field("x"), field("p", kind), by=("p",))
    given = protocol("timestampNtz") if kind == "timestamp_ntz" else PROTOCOL
    assert table.fold(table.propose(given, made)) == [Committed(0)]
    for text_value in others[:1]:
        file = add("a.parquet", partitionValues={"p": text_value})
        (refused,) = table.fold(table.propose(file), log=log_id(1))
        assert isinstance(refused, Invalid)
        assert f"{text_value!r} as the value of the partition column 'p', whose type" in refused.message


READ_ALONE = [
    ("boolean", "0", False),
    ("boolean", "1", True),
    *(("timestamp", text, dt.datetime(2026, 1, 31, 7, tzinfo=dt.UTC)) for text in SHORT_TIMES),
    *(("timestamp_ntz", text, dt.datetime(2026, 1, 31, 7)) for text in SHORT_TIMES),  # noqa: DTZ001 - it has none
    ("timestamp", "2026-01-31 07:30+02:00", dt.datetime(2026, 1, 31, 5, 30, tzinfo=dt.UTC)),
]
"""Values of partitions that Spark casts to the type of their column, and the protocol does not have."""


@pytest.mark.parametrize(("kind", "given", "value"), READ_ALONE)
def test_values_of_partitions_that_spark_casts_are_read_and_not_proposed(
    kind: str, given: str, value: object
) -> None:
    (column,) = schema_of(json.dumps({"type": "struct", "fields": [field("p", kind)]})).columns
    assert partition_values(given, column, 2).to_pylist() == [value, value]
    assert not fits_type(given, kind)


def test_partition_values_of_mapped_columns_have_their_stored_names(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    made = described(mapped("x", 1), mapped("p", 2), by=("p",), **MAPPED)
    table.fold(table.propose(protocol("columnMapping"), made), log=log_id(1))
    file = data_file(table.path, "a.parquet", 1)
    file["add"]["partitionValues"] = {"p": "1"}
    (refused,) = table.fold(table.propose(file), log=log_id(2))
    assert isinstance(refused, Invalid)
    file["add"]["partitionValues"] = {"c2": "1"}
    assert isinstance(table.fold(table.propose(file), log=log_id(3))[0], Committed)


@pytest.mark.parametrize("mapping", [False, True])
def test_columns_that_are_not_null_get_no_nulls(tmp_path: Path, *, mapping: bool) -> None:
    table = Table(tmp_path / "t")
    names = ("c1", "c2") if mapping else ("x", "p")
    fields = [mapped("x", 1), mapped("p", 2)] if mapping else [field("x"), field("p")]
    made = described(*({**each, "nullable": False} for each in fields), by=["p"], **MAPPED if mapping else {})
    begun = table.fold(table.propose(protocol("columnMapping"), made), log=log_id(1))
    assert begun == [Committed(0)]
    cases = [({"x": 1}, "1", "x"), ({"x": 0}, None, "p"), ({"x": 0}, "", "p"), ({"x": 0}, "1", "")]
    for number, (counts, value, lacking) in enumerate(cases):
        file = data_file(tmp_path / "t", f"{number}.parquet", 1)
        stored = {names[0]: counts["x"]}
        file["add"] |= {
            "partitionValues": {names[1]: value},
            "stats": json.dumps({"numRecords": 1, "nullCount": stored}),
        }
        (result,) = table.fold(table.propose(file), log=log_id(number + 2))
        if not lacking:
            assert isinstance(result, Committed)
            continue
        shown = names["xp".index(lacking)]
        assert isinstance(result, Invalid)
        assert f"has nulls in the column {shown!r}, which is NOT NULL" in result.message


def test_a_table_is_replaced_only_as_a_whole(tmp_path: Path) -> None:
    """The metadata of another table come with another id, as those of REPLACE TABLE do."""
    table = Table(tmp_path / "t")
    table.fold(table.propose(protocol("domainMetadata"), described(field("x"))), log=log_id(1))
    table.fold(table.propose(data_file(table.path, "a.parquet", 1)), log=log_id(2))
    other = described(field("w", "string"), field("q"), by=("q",))
    other["metaData"]["id"] = "another"
    new = add("b.parquet", partitionValues={"q": "7"}, stats=None, size=4)
    (table.path / "b.parquet").write_bytes(b"PAR1")
    (refused,) = table.fold(table.propose(other, new, read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert "the table's id changes from" in refused.message
    # Beside it a property is set, which is not merged into what replaces the table, and a file is added.
    replacing = table.propose(other, new, remove("a.parquet"), read=1)
    table.fold(table.propose(described(field("x"), note="1"), read=2), log=log_id(4))
    (late,) = table.fold(replacing, log=log_id(5))
    assert isinstance(late, Rejected)
    assert "the table's metadata" in late.conflict.message
    table.fold(table.propose(data_file(table.path, "c.parquet", 2)), log=log_id(6))
    (kept,) = table.fold(table.propose(other, new, remove("a.parquet"), read=4), log=log_id(7))
    assert isinstance(kept, Rejected)
    assert "the table's id changes from" in kept.conflict.message
    removes = [remove("a.parquet"), remove("c.parquet")]
    (replaced,) = table.fold(table.propose(other, new, *removes, read=6), log=log_id(8))
    assert isinstance(replaced, Committed)
    # What was built before is built again, although its files don't fit the new columns.
    before = table.propose(data_file(table.path, "d.parquet", 3), read=6)
    (rejected,) = table.fold(before, log=log_id(9))
    assert isinstance(rejected, Rejected)
    assert rejected.conflict.retryable
    (invalid,) = table.fold(table.propose(data_file(table.path, "d.parquet", 3)), log=log_id(10))
    assert isinstance(invalid, Invalid)
    assert snapshot_in(table.path).metadata.id == "another"


def test_the_protected_version_never_goes_back(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    made = [described(field("x"), **{PROTECTED: text}) for text in ("7", "6", "8", "9" * 19, "9" * 20)]
    table.fold(table.propose(protocol("checkpointProtection"), made[0]), log=log_id(1))
    (refused,) = table.fold(table.propose(made[1], read=0), log=log_id(2))
    assert isinstance(refused, Invalid)
    assert f"{PROTECTED} goes back from 7 to 6" in refused.message
    (refused,) = table.fold(table.propose(described(field("x")), read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    for number, value in enumerate(made[2:]):
        (result,) = table.fold(table.propose(value, read=2 + number), log=log_id(4 + number))
        assert isinstance(result, Committed if number < 2 else Invalid)


REFUSED = {
    **{feature.name: {} for feature in FEATURES if feature.name not in WRITABLE},
    "icebergCompatV1": {"delta.enableIcebergCompatV1": "true"},
    "icebergCompatV2": {"delta.enableIcebergCompatV2": "true"},
    "identityColumns": {},
    "zebra": {},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_needs_a_refused_feature_is_never_written_to(tmp_path: Path, name: str) -> None:
    """The proposal is not answered: another release may commit it."""
    table = Table(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    listed = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": [name, "domainMetadata", "columnMapping"],
    }
    kind = "variant" if name == "variantType" else "long"
    keys = {"delta.identity.start": 1, "delta.typeChanges": [{"fromType": "string", "toType": "long"}]}
    made = described(field("x", kind, **keys), **REFUSED[name])
    (log / f"{0:020}.json").write_bytes(text([{"protocol": listed}, made]))
    file = data_file(table.path, "a.parquet", 1)
    with pytest.raises(InvalidError, match=f"feature {name}"):
        table.fold(table.propose(file))
    assert [path.name for path in log.iterdir()] == [f"{0:020}.json"]


def test_rules_of_metadata_are_read_from_any_table() -> None:
    assert (
        list(metadata_faults(TableMetadata("id", metadata()["metaData"]["schemaString"]), frozenset())) == []
    )
