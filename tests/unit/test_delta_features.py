"""Which features of Delta tables are read and committed to, by the table of them."""

from __future__ import annotations

import json

import pytest

from lakefold_table.delta.actions.table_actions import TableMetadata, TableProtocol
from lakefold_table.delta.table_features.features import BY_NAME, FEATURES
from lakefold_table.delta.table_features.protocol_check import (
    check_committable,
    check_readable,
    check_types,
    reader_features,
    writer_features,
)
from lakefold_table.errors import DamagedError, InvalidError
from tests.delta_logs.actions import SCHEMA

METADATA = TableMetadata("id", SCHEMA)
NAMED_BY_THE_SPECIFICATION = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "allowColumnDefaults",
    "changeDataFeed",
    "columnMapping",
    "identityColumns",
    "deletionVectors",
    "rowTracking",
    "timestampNtz",
    "domainMetadata",
    "v2Checkpoint",
    "icebergCompatV1",
    "icebergCompatV2",
    "clustering",
    "vacuumProtocolCheck",
    "checkpointProtection",
    "inCommitTimestamps",
}


def listed(*names: str) -> TableProtocol:
    readers = tuple(name for name in names if name not in BY_NAME or BY_NAME[name].readers)
    return TableProtocol(3, 7, readers, names)


def with_column(**keys: object) -> TableMetadata:
    inner = {"name": "y", "type": "long", "nullable": True, "metadata": keys}
    array = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    column = {"name": "x", "type": array, "nullable": True, "metadata": {}}
    return TableMetadata("id", json.dumps({"type": "struct", "fields": [column]}))


def test_every_feature_of_the_specification_has_a_row() -> None:
    assert BY_NAME.keys() >= NAMED_BY_THE_SPECIFICATION
    assert all(feature.read and feature.write for feature in FEATURES)


def test_the_features_of_protocol_versions() -> None:
    assert writer_features(TableProtocol(1, 1)) == set()
    assert writer_features(TableProtocol(1, 2)) == {"appendOnly", "invariants"}
    assert writer_features(TableProtocol(1, 4)) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "generatedColumns",
        "changeDataFeed",
    }
    assert reader_features(TableProtocol(2, 5)) == {"columnMapping"}
    assert writer_features(TableProtocol(2, 6)) - writer_features(TableProtocol(1, 4)) == {
        "columnMapping",
        "identityColumns",
    }
    assert writer_features(TableProtocol(2, 7, None, ("identityColumns",))) == {
        "identityColumns",
        "columnMapping",
    }


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_each_feature_is_read_or_refused_as_the_table_says(name: str) -> None:
    if BY_NAME[name].read_refused:
        with pytest.raises(InvalidError, match=f"the feature {name}: refused"):
            check_readable(listed(name))
    else:
        check_readable(listed(name))


@pytest.mark.parametrize("name", ["catalogManaged", "catalogOwned-preview"])
def test_features_that_are_refused_wherever_they_are_listed(name: str) -> None:
    with pytest.raises(InvalidError, match=f"the feature {name}: ") as caught:
        check_committable(listed(name), METADATA, "s3://b/t")
    assert caught.value.where == "s3://b/t"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "property_name"),
    [
        ("icebergCompatV1", "delta.enableIcebergCompatV1"),
        ("icebergCompatV2", "delta.enableIcebergCompatV2"),
    ],
)
def test_features_that_are_refused_if_they_are_enabled(name: str, property_name: str) -> None:
    check_committable(listed(name), METADATA)
    enabled = TableMetadata("id", SCHEMA, configuration={property_name: "true"})
    check_committable(listed(), enabled)
    with pytest.raises(InvalidError, match=name):
        check_committable(listed(name), enabled)


@pytest.mark.parametrize("name", ["variantType", "variantType-preview"])
def test_variants_are_refused_if_a_column_has_the_type(name: str) -> None:
    check_committable(listed(name), METADATA)
    kind = {"type": "array", "elementType": "variant", "containsNull": True}
    column = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
    with pytest.raises(InvalidError, match=name):
        check_committable(
            listed(name), TableMetadata("id", json.dumps({"type": "struct", "fields": [column]}))
        )


CHANGES: dict[str, tuple[object, bool]] = {
    "none": ([], True),
    "two": (
        [{"fromType": "byte", "toType": "short"}, {"fromType": "short", "toType": "long", "tableVersion": 7}],
        True,
    ),
    "in a map": ([{"fromType": "date", "toType": "timestamp_ntz", "fieldPath": "value.key"}], True),
    "to a decimal": ([{"fromType": "integer", "toType": "decimal(12, 2)"}], True),
    "too few digits": ([{"fromType": "long", "toType": "decimal(20,2)"}], False),
    "too many digits": ([{"fromType": "long", "toType": "decimal(50,1)"}], False),
    "a decimal": ([{"fromType": "decimal(5,2)", "toType": "decimal(7,3)"}], True),
    "a decimal with fewer digits": ([{"fromType": "decimal(5,2)", "toType": "decimal(5,3)"}], False),
    "narrower": ([{"fromType": "long", "toType": "integer"}], False),
    "rounded": ([{"fromType": "long", "toType": "double"}], False),
    "to text": ([{"fromType": "integer", "toType": "string"}], False),
    "the same": ([{"fromType": "decimal(5,2)", "toType": "decimal(5,2)"}], False),
    "no list": ({"fromType": "byte", "toType": "long"}, False),
    "no object": (["long"], False),
    "a struct": ([{"fromType": {"type": "struct", "fields": []}, "toType": "long"}], False),
    "no type": ([{"toType": "long"}], False),
    "a path that is none": ([{"fromType": "byte", "toType": "long", "fieldPath": 7}], False),
    "null": (None, False),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_a_change_of_a_type_is_read_and_committed_if_it_is_known(feature: str, name: str) -> None:
    listing, is_known = CHANGES[name]
    changed = with_column(**{"delta.typeChanges": listing})
    if is_known:
        check_committable(listed(feature), changed)
        check_types(changed)
        return
    with pytest.raises(InvalidError, match=feature):
        check_committable(listed(feature), changed)
    with pytest.raises(InvalidError, match=r"the column 'x\.y' list a change of its type that is unknown"):
        check_types(changed, "s3://b/t")


def test_identity_columns_are_refused_if_there_is_one() -> None:
    check_committable(TableProtocol(1, 6), METADATA)
    check_committable(TableProtocol(1, 5), with_column(**{"delta.identity.start": 1}))
    with pytest.raises(InvalidError, match="identityColumns"):
        check_committable(TableProtocol(1, 6), with_column(**{"delta.identity.start": 1}))


@pytest.mark.parametrize(
    "name",
    ["appendOnly", "invariants", "columnMapping", "deletionVectors", "v2Checkpoint"],
)
def test_features_that_a_commit_follows(name: str) -> None:
    check_committable(listed(name), METADATA)


def test_what_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidError, match="feature zebra: unknown to this release"):
        check_readable(listed("zebra"))
    writers_only = TableProtocol(1, 7, None, ("zebra",))
    check_readable(writers_only)
    with pytest.raises(InvalidError, match="feature zebra: unknown to this release"):
        check_committable(writers_only, METADATA)
    with pytest.raises(InvalidError, match="reader version 4"):
        check_readable(TableProtocol(4, 7, (), ()))
    with pytest.raises(InvalidError, match="writer version 8"):
        check_committable(TableProtocol(1, 8), METADATA)


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        (TableProtocol(0, 1), "begin with 1"),
        (TableProtocol(3, 7, None, ()), "needs readerFeatures"),
        (TableProtocol(1, 7), "needs writerFeatures"),
        (TableProtocol(3, 6, (), None), "needs writer version 7"),
        (TableProtocol(2, 5, ("columnMapping",), None), "readerFeatures need"),
        (TableProtocol(1, 5, None, ("columnMapping",)), "writerFeatures need"),
        (TableProtocol(3, 7, ("columnMapping",), ()), "columnMapping must be in writerFeatures"),
    ],
)
def test_a_protocol_that_no_table_may_have(protocol: TableProtocol, says: str) -> None:
    with pytest.raises(DamagedError, match=says):
        check_readable(protocol)


@pytest.mark.parametrize("schema", ["", "[]", '{"type":"long"}', '{"type":"struct","fields":[1]}'])
def test_a_schema_that_is_none_is_damaged(schema: str) -> None:
    with pytest.raises(DamagedError):
        check_committable(TableProtocol(1, 6), TableMetadata("id", schema))
