"""Rows of Delta tables are replaced or deleted, all or by partitions; delta-rs judges."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold_ingest.delta.schemas import new_fields, schema_text, with_physical_names
from lakefold_ingest.formats import FORMATS
from lakefold_ingest.merge.delta.format import ReplaceDelta
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.task_files import collect_files
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import WritePlan, plan_write
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.table_features.clustering import DOMAIN
from lakefold_table.delta.table_features.columns import MAPPED_ID, all_columns
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError, RetryError
from tests.delta_logs.actions import snapshot_in, text
from tests.delta_merging import FEATURES, DeltaFolding
from tests.oracle.test_delta_writing import Written, field, log_of

if TYPE_CHECKING:
    from pathlib import Path

OLD = pa.table({"day": ["x", "y", None], "id": [1, 2, 3], "n": pa.array([1, 2, 3], pa.int32())})
NEW = pa.table({"id": ["a", "b"], "place": [{"x": 1.5}, None]})


def table_with(path: Path, properties: dict[str, str] | None = None) -> DeltaFolding:
    """A table that is partitioned by `day`."""
    table = DeltaFolding(path)
    settings = table.settings(table_properties=properties or {}, partition_by=("day",))
    (created,) = table.fold(FORMATS["delta"].creation(settings, Key("app", 0), OLD.schema))
    assert isinstance(created, Committed), created
    table.append(OLD)
    return table


def planned(table: DeltaFolding, rows: pa.Table, options: dict[str, str], **settings: Any) -> WritePlan:  # noqa: ANN401 - the test names the field
    given = read_write_options({"path": str(table.path), **options})
    chosen = table.settings(**settings)
    return plan_write(given, chosen, rows.schema, Key("app", 7), use=WriteUse.BATCH, overwrite=True)


def operation(plan: WritePlan, rows: pa.Table) -> ReplaceDelta:
    files = collect_files(plan.target, plan.with_few([plan.run(rows.to_batches())]))
    made = plan.operation.with_files(files, pa.table({}))
    assert isinstance(made, ReplaceDelta)
    return made


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.columnMapping.mode": "name"},
        {"delta.enableTypeWidening": "true", "delta.enableRowTracking": "true"},
        {"delta.enableChangeDataFeed": "true", "delta.constraints.some": "id IS NOT NULL"},
    ],
    ids=lambda given: ",".join(given) or "none",
)
def test_a_table_gets_the_columns_of_the_rows(tmp_path: Path, properties: dict[str, str]) -> None:
    table = table_with(tmp_path / "t", properties)
    before = table.properties
    plan = planned(table, NEW, {"overwriteSchema": "true"}, partition_by=("id",))
    table.put(operation(plan, NEW))
    assert lakefold.open(table.path).to_arrow().sort_by("id").to_pylist() == NEW.to_pylist()
    theirs = DeltaTable(str(table.path))
    assert theirs.metadata().partition_columns == ["id"]
    parameters = theirs.history(1)[0]["operationParameters"]
    assert (parameters["mode"], parameters["partitionBy"]) == ("Overwrite", '["id"]')
    if "delta.enableTypeWidening" not in properties:
        assert sorted(row["id"] for row in table.rows()) == ["a", "b"]
    changed = {name for name, text in before.items() if table.properties[name] != text}
    assert changed <= {"delta.columnMapping.maxColumnId"}
    # The versions before are as they were, and readers follow over the change.
    assert lakefold.open(table.path, 1).to_arrow().sort_by("id").to_pylist() == OLD.to_pylist()
    changes = lakefold.changes(table.path, 1).read_all()
    assert sorted(changes.filter(pa.compute.equal(changes["_change_type"], "insert"))["id"].to_pylist()) == [
        "a",
        "b",
    ]
    # The same columns again change no metadata.
    again = operation(planned(table, NEW, {"overwriteSchema": "true"}), NEW)
    assert again.metadata == b""
    table.put(again)
    assert not any("metaData" in action for action in table.actions())


def test_a_table_keeps_its_partitions_if_no_others_are_given(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t")
    rows = pa.table({"day": ["z"], "other": [1.5]})
    table.put(operation(planned(table, rows, {"overwriteSchema": "true"}), rows))
    assert DeltaTable(str(table.path)).metadata().partition_columns == ["day"]
    assert table.rows() == rows.to_pylist()
    with pytest.raises(InvalidError, match="partitioned by day, which the rows don't have"):
        planned(table, NEW, {"overwriteSchema": "true"})
    with pytest.raises(InvalidError, match=r"partition columns \(day\), not \(id\)"):
        planned(table, NEW, {}, partition_by=("id",))
    times = pa.table({"day": ["z"], "at": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(InvalidError, match="at have times without a zone"):
        planned(table, times, {"overwriteSchema": "true"})


def test_columns_that_a_constraint_needs_stay(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t", {"delta.constraints.positive": "n > 0"})
    rows = pa.table({"day": ["z"], "id": [1]})
    with pytest.raises(InvalidError, match="the constraint positive"):
        planned(table, rows, {"overwriteSchema": "true"})


def test_rows_that_others_add_meanwhile_are_replaced_by_another_attempt(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t")
    made = operation(planned(table, NEW, {"overwriteSchema": "true"}, partition_by=("id",)), NEW)
    envelope = table.build(made)
    table.append(OLD)
    table.refused(envelope)
    table.put(made)
    assert sorted(row["id"] for row in table.rows()) == ["a", "b"]
    with pytest.raises(RetryError, match="columns were changed"):
        table.build(made)


@pytest.mark.parametrize("options", [{}, {"replaceWhere": "day = 'x'"}, {"replaceWhere": "id = 50"}])
def test_rows_that_were_written_before_a_constraint_are_written_again(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Another client may add it, or divide the table into other partitions, while tasks write."""
    table = table_with(tmp_path / "t", {"delta.constraints.some": "id > 0"})
    rows = pa.table({"day": ["x"], "id": [50], "n": pa.array([-7], pa.int32())})
    made = operation(planned(table, rows, options), rows)
    assert table.build(made) is not None
    DeltaTable(str(table.path)).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(RetryError, match="columns or rules were changed"):
        table.build(made)
    with pytest.raises(InvalidError, match="1 rows don't meet the constraint positive"):
        operation(planned(table, rows, options), rows)
    good = rows.set_column(2, "n", pa.array([7], pa.int32()))
    made = operation(planned(table, good, options), good)
    table.put(operation(planned(table, OLD, {"overwriteSchema": "true"}, partition_by=("id",)), OLD))
    with pytest.raises(RetryError, match="columns or rules were changed"):
        table.build(made)


def test_other_columns_are_written_again_if_a_constraint_was_added(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t", {"delta.constraints.some": "id > 0"})
    rows = pa.table({"day": ["x"], "id": [50], "n": pa.array([-7], pa.int32()), "more": [1]})
    made = operation(planned(table, rows, {"overwriteSchema": "true"}), rows)
    assert table.build(made) is not None
    DeltaTable(str(table.path)).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(RetryError, match="columns or rules were changed"):
        table.build(made)


def clustered_by(path: Path, schema: pa.Schema, mapping: str, *columns: list[str]) -> DeltaFolding:
    """A table that another client has clustered by these columns, named as in SQL."""
    table = DeltaFolding(path)
    features = (*FEATURES, "clustering", "columnMapping")
    mapped = {} if mapping == "none" else {"delta.columnMapping.maxColumnId": "9"}
    fields, _ = with_physical_names(new_fields(schema), 0, "t") if mapped else (new_fields(schema), 0)
    table.create(schema, {"delta.columnMapping.mode": mapping, **mapped}, (), features, fields)
    metadata = TableMetadata("id", schema_text(fields))
    stored = {each.path: each.physical if mapped else each.path[-1] for each in all_columns(metadata)}
    named = [[stored[tuple(column[:length])] for length in range(1, len(column) + 1)] for column in columns]
    domain = {
        "domain": DOMAIN,
        "configuration": json.dumps({"clusteringColumns": named}),
        "removed": False,
    }
    (path / commit_path(1)).write_bytes(text([{"domainMetadata": domain}]))
    return table


PLACES = pa.schema({"id": pa.int64(), "n": pa.int64(), "place": pa.struct([("x", pa.float64())])})


def test_a_name_that_files_can_not_have_is_refused_before_they_are_written(tmp_path: Path) -> None:
    table = table_with(tmp_path / "t")
    rows = pa.table({"day": ["z"], "a b": [1]})
    with pytest.raises(InvalidError, match="the name of the column 'a b' has one of the characters"):
        planned(table, rows, {"overwriteSchema": "true"})
    # Mapped columns have other names in files.
    mapped = table_with(tmp_path / "mapped", {"delta.columnMapping.mode": "name"})
    mapped.put(operation(planned(mapped, rows, {"overwriteSchema": "true"}), rows))
    assert mapped.rows() == rows.to_pylist()


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize(
    ("rows", "partition_by", "says"),
    [
        (pa.table({"id": [1], "place": [{"x": 1.0}]}), (), "the clustering column 'n' is not in the schema"),
        (
            pa.table({"id": [1], "n": [1], "place": [{"y": 1.0}]}),
            (),
            "the clustering column 'place.x' is not",
        ),
        (pa.table({"id": [1], "n": [True], "place": [{"x": 1.0}]}), (), "the clustering column 'n' "),
        (pa.table({"id": [1], "n": [1], "place": [{"x": 1.0}]}), ("id",), "the table has partition columns"),
    ],
    ids=["gone", "gone in a struct", "another type", "partitions"],
)
def test_clustering_columns_that_go_are_named_before_anything_is_written(
    tmp_path: Path, mapping: str, rows: pa.Table, partition_by: tuple[str, ...], says: str
) -> None:
    table = clustered_by(tmp_path / "t", PLACES, mapping, ["n"], ["place", "x"])
    with pytest.raises(InvalidError, match=says):
        planned(table, rows, {"overwriteSchema": "true"}, partition_by=partition_by)


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_a_clustered_table_gets_more_columns_beside_those_that_stay(tmp_path: Path, mapping: str) -> None:
    table = clustered_by(tmp_path / "t", PLACES, mapping, ["n"], ["place", "x"])
    first = pa.Table.from_pylist([{"id": 1, "n": 2, "place": {"x": 3.0}}], PLACES)
    table.append(first)
    more = pa.struct([("y", pa.string()), ("x", pa.float64())])
    rows = pa.table({"n": [5], "id": ["text"], "place": pa.array([{"y": "q", "x": 6.0}], more), "z": [7]})
    table.put(operation(planned(table, rows, {"overwriteSchema": "true"}), rows))
    assert lakefold.open(table.path).to_arrow().to_pylist() == rows.to_pylist()
    assert lakefold.open(table.path, 2).to_arrow().to_pylist() == first.to_pylist()
    if mapping == "none":
        return
    (before, after) = (
        {column.name: (column.keys[MAPPED_ID], column.physical) for column in all_columns(metadata)}
        for metadata in (snapshot_in(table.path, version).metadata for version in (2, 3))
    )
    kept = {"n", "place", "place.x"}
    assert {name for name in before if before[name] == after[name]} == kept
    assert set(before.values()).isdisjoint(ids for name, ids in after.items() if name not in kept)


@pytest.mark.parametrize("where", ["", "a = 'x'", "a IS NULL OR a = 'y'"])
def test_rows_are_replaced_all_or_by_partitions(tmp_path: Path, where: str) -> None:
    table = Written(tmp_path / "t", ("a",))
    table.create(pa.schema([("a", pa.string()), ("id", pa.int64())]))
    table.append(pa.table({"a": ["x", "y", None], "id": [1, 2, 3]}))
    new = {"": ["x", "z"], "a = 'x'": ["x", "x"]}.get(where, ["y", None])
    rows = pa.table({"a": new, "id": [8, 9]})
    options = {"replaceWhere": where} if where else {}
    given = read_write_options({"path": str(table.path), **options})
    key = Key("app", 7)
    plan = plan_write(given, table.settings(), rows.schema, key, use=WriteUse.BATCH, overwrite=True)
    files = collect_files(plan.target, plan.with_few([plan.run(rows.to_batches())]))
    operation = ReplaceDelta(files, table.view().metadata.schema_text, where)
    envelope = operation.build(table.view(), key, table.settings())
    assert envelope is not None
    (result,) = table.fold(envelope)
    assert isinstance(result, Committed)
    kept = {"": [], "a = 'x'": [2, 3]}.get(where, [1])
    read = DeltaTable(str(table.path)).to_pyarrow_table()
    assert sorted(pa.table(read)["id"].to_pylist()) == [*kept, 8, 9]
    assert DeltaTable(str(table.path)).history(1)[0]["operationParameters"]["mode"] == "Overwrite"
    # Another one that was built before it is refused, and may be built again.
    (again,) = table.fold(envelope)
    assert not isinstance(again, Committed)
    assert (
        ReplaceDelta([], table.view().metadata.schema_text, "a = 'none'").build(
            table.view(), key, table.settings()
        )
        is None
    )


def test_rows_that_can_not_be_replaced_are_named(tmp_path: Path) -> None:
    table = Written(tmp_path / "t", ("a",))
    table.create(pa.schema([("a", pa.string()), ("id", pa.int64())]))
    rows = pa.table({"a": ["x"], "id": [1]})
    for options, message in (
        ({"replaceWhere": "ident = 1"}, "there is no column"),
        ({"replaceWhere": "upper(a"}, "can't be read"),
    ):
        given = read_write_options({"path": str(table.path), **options})
        with pytest.raises(InvalidError, match=f"^replaceWhere: .*{message}"):
            plan_write(given, table.settings(), rows.schema, Key("a", 1), use=WriteUse.BATCH, overwrite=True)
    with pytest.raises(RetryError, match="columns were changed"):
        ReplaceDelta([], "{}").build(table.view(), Key("a", 1), table.settings())
    only = log_of(tmp_path / "only", [field("x")], ["appendOnly"], **{"delta.appendOnly": "true"})
    with pytest.raises(InvalidError, match="append-only"):
        ReplaceDelta([], only.view().metadata.schema_text).build(only.view(), Key("a", 1), only.settings())


def test_partitions_are_deleted(tmp_path: Path) -> None:
    table = Written(tmp_path / "t", ("day",))
    table.create(pa.schema([("day", pa.date32()), ("id", pa.int64())]))
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None]
    table.append(pa.table({"day": days, "id": [1, 2, 3]}))

    def deleted(where: str) -> list[int]:
        envelope = DeleteWhere(where).build(table.view(), Key("app", table.batch), table.settings())
        if envelope is not None:
            (result,) = table.fold(envelope)
            assert isinstance(result, Committed), result
            assert result.rows_deleted == 1
        return sorted(pa.table(DeltaTable(str(table.path)).to_pyarrow_table())["id"].to_pylist())

    assert deleted("day < DATE '2026-01-02'") == [2, 3]
    assert deleted("day < DATE '2026-01-02'") == [2, 3]
    assert deleted("id = 3") == [2]
    with pytest.raises(InvalidError, match="no column"):
        deleted("nothing = 2")
    assert deleted("true") == []


@pytest.mark.parametrize("level", [None, "WriteSerializable", "Serializable"])
@pytest.mark.parametrize("where", ["day = 'x'", "n = 1"])
def test_rows_that_others_append_while_rows_are_deleted_stay_unless_the_table_is_serializable(
    tmp_path: Path, where: str, level: str | None
) -> None:
    table = table_with(tmp_path / "t", {} if level is None else {"delta.isolationLevel": level})
    built = table.build(DeleteWhere(where))
    assert built is not None
    table.append(OLD.slice(0, 1))
    (result,) = table.fold(built)
    is_refused = level == "Serializable"
    assert isinstance(result, Committed) is not is_refused, result
    left = pa.table(DeltaTable(str(table.path)).to_pyarrow_table())["n"].to_pylist()
    assert sorted(left) == ([1, 1, 2, 3] if is_refused else [1, 2, 3])
