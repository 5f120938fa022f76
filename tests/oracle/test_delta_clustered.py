"""Clustered tables are written to and compacted: all files keep statistics of the clustering columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_ingest.delta.view import DeltaView
from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.table_features.clustering import DOMAIN
from lakefold_table.uri import canonical
from tests.delta_logs.actions import snapshot_in, text
from tests.delta_merging import VECTORS, DeltaFolding
from tests.oracle.delta_maintenance import DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = ("clustering", "domainMetadata", "deletionVectors", "appendOnly", "invariants")
SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64(), "place": pa.struct([("x", pa.float64())])})
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}


def cluster(path: Path, version: int, *columns: list[str]) -> None:
    """The commit of another client."""
    configuration = json.dumps({"clusteringColumns": list(columns)})
    domain = {"domain": DOMAIN, "configuration": configuration, "removed": False}
    (path / commit_path(version)).write_bytes(text([{"domainMetadata": domain}]))


def created(path: Path, **configuration: str) -> DeltaFolding:
    folding = DeltaFolding(path)
    folding.create(SCHEMA, {**NO_STATISTICS, **configuration}, (), FEATURES)
    cluster(path, 1, ["n"], ["place", "x"])
    return folding


def rows(*given: dict[str, Any]) -> pa.Table:
    names = [name for name in SCHEMA.names if any(name in row for row in given)]
    return pa.Table.from_pylist(list(given), pa.schema([SCHEMA.field(name) for name in names]))


def statistics(path: Path) -> list[dict[str, Any]]:
    files = snapshot_in(path).files.values()
    return sorted((json.loads(file.stats or "{}") for file in files), key=json.dumps)


FIRST = {
    "numRecords": 2,
    "minValues": {"n": 5, "place": {"x": 0.5}},
    "maxValues": {"n": 7, "place": {"x": 0.5}},
    "nullCount": {"n": 0, "place": {"x": 1}},
}


def test_new_files_have_statistics_of_the_clustering_columns_alone(tmp_path: Path) -> None:
    folding = created(tmp_path / "t")
    folding.append(rows({"id": 1, "n": 7, "place": {"x": 0.5}}, {"id": 2, "n": 5, "place": None}))
    assert statistics(folding.path) == [FIRST]
    # Of a column that the batch lacks it is known that all values are null.
    folding.append(rows({"id": 3, "place": {"x": float("inf")}}))
    (second,) = (each for each in statistics(folding.path) if each != FIRST)
    assert second["nullCount"] == {"n": 1, "place": {"x": 0}}
    assert second["minValues"] == second["maxValues"] == {}
    assert len(folding.rows()) == 3
    assert lakefold.open(folding.path).to_arrow(filter="n is null")["id"].to_pylist() == [3]


def test_a_writer_follows_a_change_of_the_clustering_columns(tmp_path: Path) -> None:
    folding = created(tmp_path / "t")
    uri = canonical(folding.path)
    before = read_view(uri, {}, afresh=True)
    assert isinstance(before, DeltaView)
    assert before.clustering == (("n",), ("place", "x"))
    cluster(folding.path, 2, ["id"])
    followed = read_view(uri, {}, afresh=False)
    assert isinstance(followed, DeltaView)
    assert followed.clustering == (("id",),)
    assert followed == read_view(uri, {}, afresh=True)
    late = append_source(RowSource(rows({"id": 1, "n": 7}))).build(before, Key("a", 1), folding.settings())
    assert "clustering column 'id'" in folding.refused(late).conflict.message
    folding.append(rows({"id": 1, "n": 7}))
    assert [each["nullCount"] for each in statistics(folding.path)] == [{"id": 0}]


@pytest.mark.parametrize("configuration", [{}, VECTORS], ids=["copies", "vectors"])
def test_merges_keep_the_statistics(tmp_path: Path, configuration: dict[str, str]) -> None:
    folding = created(tmp_path / "t", **configuration)
    folding.append(rows(*({"id": number, "n": number, "place": {"x": 0.5}} for number in range(9))))
    batch = rows({"id": 3, "n": 30, "place": None}, {"id": 90, "n": 90, "place": None})
    assert folding.put(UpsertRows(batch, Merge(("id",)))) is not None
    assert len(folding.rows()) == 10
    assert all(each["nullCount"].keys() == {"n", "place"} for each in statistics(folding.path))


def test_a_compaction_leaves_clustered_files_as_they_are(tmp_path: Path) -> None:
    folding = created(tmp_path / "t")
    for number in range(3):
        folding.append(rows({"id": number, "n": number, "place": {"x": float(number)}}))
    path, file = next(iter(snapshot_in(folding.path).files.items()))
    version = DeltaTable(str(folding.path)).version() + 1
    by_liquid = {**members_of(file), "clusteringProvider": "liquid", "dataChange": False}
    (folding.path / commit_path(version)).write_bytes(text([{"add": by_liquid}]))
    world = DeltaWorld(folding.path, logs=100)
    report = world.compaction().run(full=True)
    assert (report.fragments_before, report.fragments_after) == (3, 2)
    files = snapshot_in(folding.path).files
    assert files[path].clustering_provider == "liquid"
    (joined,) = (each for each in files.values() if each.path != path)
    assert joined.clustering_provider is None
    assert json.loads(joined.stats or "")["nullCount"] == {"n": 0, "place": {"x": 0}}
    assert len(folding.rows()) == 3
