"""Clustered tables: each file has statistics of the columns by which another client clusters it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_table.delta.actions.table_actions import DomainMetadata
from lakefold_table.delta.proposal import proposal_in
from lakefold_table.delta.table_features.clustering import DOMAIN, FEATURE, clustering_columns
from lakefold_table.delta.validity import TableRules, proposal_fault, table_rules
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.errors import DamagedError
from tests.delta_logs.actions import Members, data_file, metadata, protocol_with, remove, snapshot_in
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

PROTOCOL: Members = {
    "protocol": {
        "minReaderVersion": 2,
        "minWriterVersion": 7,
        "writerFeatures": ["clustering", "domainMetadata", "columnMapping"],
    }
}

RESTORE: dict[str, Any] = {"operation": "RESTORE", "read_whole_table": True}


def column(name: str, kind: Any = "long", physical: str = "") -> dict[str, Any]:  # noqa: ANN401 - a JSON value
    keys = {"delta.columnMapping.physicalName": physical} if physical else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": keys}


S = {"type": "struct", "fields": [column("y")]}
COLUMNS = [column("x"), column("s", S), column("flag", "boolean"), column("d", "decimal(5,2)")]


def described(*columns: dict[str, Any], by: tuple[str, ...] = ()) -> Members:
    action = metadata(json.dumps({"type": "struct", "fields": list(columns or COLUMNS)}))
    action["metaData"]["partitionColumns"] = list(by)
    return action


def clustered(*columns: object, **more: object) -> Members:
    configuration = json.dumps({"clusteringColumns": list(columns), "domainName": DOMAIN})
    return {"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": False, **more}}


def stored(table: Table, name: str, **counts: object) -> Members:
    action = data_file(table.path, name, 1)
    action["add"]["stats"] = json.dumps({"numRecords": 1, "nullCount": counts})
    return action


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path / "t")
    created = made.propose(PROTOCOL, described(), clustered(["x"]))
    assert made.fold(created, log=log_id(1)) == [Committed(0)]
    return made


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ('{"clusteringColumns":["col-1","a.b"]}', (("col-1",), ("a.b",))),
        ('{"clusteringColumns":[["s","y"],["x"]]}', (("s", "y"), ("x",))),
        ('{"clusteringColumns":[]}', ()),
    ],
)
def test_columns_are_named_as_the_specification_or_delta_spark_names_them(
    configuration: str, expected: tuple[tuple[str, ...], ...]
) -> None:
    older = DomainMetadata(DOMAIN, '{"clusteringColumns":["z"]}')
    assert clustering_columns([older, DomainMetadata(DOMAIN, configuration)], [FEATURE]) == expected
    assert clustering_columns([DomainMetadata(DOMAIN, configuration, removed=True)], [FEATURE]) == ()
    assert clustering_columns([DomainMetadata("other", configuration)], [FEATURE]) == ()
    assert clustering_columns([DomainMetadata(DOMAIN, configuration)], ["domainMetadata"]) == ()


@pytest.mark.parametrize(
    "configuration", ["", "[]", "{}", '{"clusteringColumns":[1]}', '{"clusteringColumns":[[]]}']
)
def test_a_configuration_that_names_no_columns_is_damaged(configuration: str) -> None:
    with pytest.raises(DamagedError):
        clustering_columns([DomainMetadata(DOMAIN, configuration)], [FEATURE])


def test_a_file_without_statistics_of_a_clustering_column_is_invalid(table: Table) -> None:
    good, bad = stored(table, "a.parquet", x=1), stored(table, "b.parquet", s={"y": 0})
    bare = data_file(table.path, "c.parquet", 1)
    bare["add"].pop("stats")
    results = table.fold(*(table.propose(each) for each in (good, bad, bare)), log=log_id(2))
    assert isinstance(results[0], Committed)
    for refused in results[1:]:
        assert isinstance(refused, Invalid)
        assert "has no statistics of the clustering column 'x'" in refused.message


def test_all_files_need_statistics_of_a_column_that_is_added(table: Table) -> None:
    table.fold(table.propose(stored(table, "a.parquet", x=0)), log=log_id(2))
    by_both = clustered(["x"], ["s", "y"])
    (refused,) = table.fold(table.propose(by_both, read=1), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert "'a.parquet' has no statistics of the clustering column 's.y'" in refused.message
    again = stored(table, "b.parquet", x=0, s={"y": 1})
    (made,) = table.fold(table.propose(by_both, remove("a.parquet"), again, read=2), log=log_id(4))
    assert isinstance(made, Committed), made
    # A file that was written for the columns before is written again for these.
    late = stored(table, "c.parquet", x=0)
    (result,) = table.fold(table.propose(late, read=2), log=log_id(5))
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    (result,) = table.fold(table.propose(late, read=4), log=log_id(6))
    assert isinstance(result, Invalid)
    # Fewer columns need nothing of files.
    (made,) = table.fold(table.propose(clustered(), read=5), log=log_id(7))
    assert isinstance(made, Committed), made
    (made,) = table.fold(table.propose(data_file(table.path, "d.parquet", 1)), log=log_id(8))
    assert isinstance(made, Committed), made
    assert snapshot_in(table.path).domains[DOMAIN].configuration == by_both["domainMetadata"][
        "configuration"
    ].replace('["x"], ["s", "y"]', "")


def test_a_column_is_added_together_with_statistics_of_it(table: Table) -> None:
    table.fold(table.propose(stored(table, "a.parquet", x=0)), log=log_id(2))
    again = stored(table, "a.parquet", x=0, s={"y": 1})
    again["add"]["dataChange"] = False
    (made,) = table.fold(table.propose(clustered(["x"], ["s", "y"]), again, read=1), log=log_id(3))
    assert isinstance(made, Committed), made


def test_a_table_with_partitions_does_not_get_the_feature(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    partitioned, features = described(by=("x",)), protocol_with("clustering", "domainMetadata")
    (refused,) = table.fold(table.propose(features, partitioned), log=log_id(1))
    assert isinstance(refused, Invalid)
    assert "has partition columns and the feature clustering" in refused.message
    table.fold(table.propose(protocol_with("domainMetadata"), partitioned), log=log_id(2))
    (refused,) = table.fold(table.propose(features, read=0), log=log_id(3))
    assert isinstance(refused, Invalid)
    assert "has partition columns and the feature clustering" in refused.message


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ([clustered(["z"])], "the clustering column 'z' is not in the schema"),
        ([clustered(["s"])], "'s' has the type struct, of which statistics have no bounds"),
        ([clustered(["flag"])], "'flag' has the type boolean"),
        ([clustered(["d"], 1)], "a clustering column has no name"),
        ([described(*COLUMNS[1:])], "the clustering column 'x' is not in the schema"),
        ([described(by=("x",))], "has partition columns"),
        ([clustered(["d"]), described(by=("x",))], "has partition columns"),
    ],
)
def test_what_a_table_can_not_be_clustered_by_is_invalid(
    table: Table, actions: list[Members], says: str
) -> None:
    (refused,) = table.fold(table.propose(*actions, read=0), log=log_id(2))
    assert isinstance(refused, Invalid), refused
    assert says in refused.message


def test_columns_are_named_by_their_physical_names(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    numbered = [
        {**each, "metadata": {**each["metadata"], "delta.columnMapping.id": number}}
        for number, each in enumerate([column("x", physical="col-1")], start=1)
    ]
    schema = described(*numbered)
    schema["metaData"]["configuration"] = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "1",
    }
    (refused,) = table.fold(table.propose(PROTOCOL, schema, clustered(["x"])), log=log_id(1))
    assert isinstance(refused, Invalid)
    (made,) = table.fold(table.propose(PROTOCOL, schema, clustered("col-1")), log=log_id(2))
    assert isinstance(made, Committed), made


def test_a_file_that_the_table_has_needs_no_statistics_to_lose_rows(table: Table) -> None:
    """Another client may have written it without them."""
    bare = stored(table, "a.parquet")
    for actions, reads in (([remove("a.parquet"), bare], {}), ([bare], RESTORE)):
        proposal = proposal_in(table.propose(*actions, read=0, **reads))
        assert proposal is not None
        fault = proposal_fault(proposal, rules_of(table))
        assert fault is None or "statistics" not in fault.message, fault
    new = proposal_in(table.propose(bare, read=0))
    assert new is not None
    refused = proposal_fault(new, rules_of(table))
    assert refused is not None
    assert "has no statistics of the clustering column 'x'" in refused.message


def rules_of(table: Table) -> TableRules:
    snapshot = snapshot_in(table.path)
    return table_rules(snapshot.protocol, snapshot.metadata, snapshot.domains.values())
