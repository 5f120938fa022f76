"""A batch with new columns extends the schema first, then its rows are added; pylance reads each version."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.clauses import UPSERT, MatchedUpdate, Merge, NotMatchedInsert
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_faults import BadRowsError
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.spark import write_plan
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import WritePlan, plan_write
from lakefold_ingest.writing import batch
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.evolution import ATTEMPTS, changed_schema, with_columns_of
from lakefold_ingest.writing.log_client import Answer
from lakefold_table.entry import Committed, Outcome, RefusedError
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.position import LogId, Position
from lakefold_table.uri import canonical
from tests.delta_merging import DeltaFolding
from tests.merging import Folding, people

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakefold_ingest.merge.clauses import Clause
    from lakefold_ingest.view import BatchColumns, View
    from lakefold_ingest.writing.operation import Operation
    from lakefold_protos.lakefold.log_pb2 import Envelope

Storage = Literal["2.0", "2.1", "2.2"]


@dataclass
class FoldedLog:
    """A log whose entries are folded when they are sent, `before` which something else may happen.

    `is_heard`: whether the outcome is reported in time.
    """

    folding: Folding | DeltaFolding
    before: list[Callable[[], object]] = field(default_factory=list)
    is_heard: bool = True
    asked: int = 0

    def check_binding(self, bound: Position | None, table: str) -> None:
        assert bound is None or bound.log.partition == 0
        assert table == canonical(self.folding.path)

    def ask(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Answer:
        assert partition in {0, None}
        assert timeout_s
        assert storage_options is not None or partition is None
        self.asked += 1
        if self.before:
            self.before.pop(0)()
        (result,) = self.folding.fold(envelope)
        position = Position(LogId("cluster", "topic", 0), self.asked)
        return Answer(position, Outcome(position, envelope.table, result) if self.is_heard else None, 0, 0)


def made(path: Path, rows: pa.Table, **options: Any) -> Folding:  # noqa: ANN401 - pylance's options
    lance.write_dataset(rows, str(path), **options)
    return Folding(path)


def appending(rows: pa.Table) -> Operation:
    return append_source(RowSource(rows))


def columns_of(operation: Operation) -> BatchColumns:
    assert operation.batch_columns is not None
    return operation.batch_columns


def evolve(folding: Folding, operation: Operation, log: FoldedLog | None = None) -> View:
    view = read_view(canonical(folding.path), {}, afresh=True)
    assert view is not None
    return with_columns_of(view, columns_of(operation), folding.settings(), log or FoldedLog(folding))


def put(folding: Folding, operation: Operation) -> Committed | None:
    evolve(folding, operation)
    return folding.put(operation)


def rows_of(folding: Folding, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a version by pylance, which the reader must read as well."""
    dataset = lance.dataset(str(folding.path), version=version)
    dataset.validate()
    rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
    ours = lakefold.open(folding.path, version=version).to_arrow()
    assert ours.to_pylist() == rows
    assert ours.schema.equals(dataset.schema)
    return rows


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_each_version_has_the_columns_and_rows_of_its_time(
    tmp_path: Path, version: Storage, *, stable: bool
) -> None:
    folding = made(tmp_path / "t", people([1, 2]), data_storage_version=version, enable_stable_row_ids=stable)
    put(folding, appending(people([3], city=["Rome"], tags=[["a", "b"]])))
    assert rows_of(folding, 1) == people([1, 2]).to_pylist()
    assert rows_of(folding, 2) == [row | {"city": None, "tags": None} for row in people([1, 2]).to_pylist()]
    assert rows_of(folding)[2] == people([3], city=["Rome"], tags=[["a", "b"]]).to_pylist()[0]
    # The next batch lacks them, and has others.
    put(folding, appending(people([4], zip=[12345])))
    assert [row["zip"] for row in rows_of(folding)] == [None, None, None, 12345]
    dataset = lance.dataset(str(folding.path))
    dataset.optimize.compact_files()
    dataset.create_scalar_index("zip", "BTREE")
    assert lance.dataset(str(folding.path)).to_table(filter="zip = 12345")["id"].to_pylist() == [4]
    rows_of(folding)


SMALL = pa.struct([("x", pa.int64())])


def test_a_batch_without_a_struct_is_refused_if_the_files_hold_no_null_structs(tmp_path: Path) -> None:
    """Rows that pylance appends so are read, and it can neither update nor compact them afterwards."""
    first = pa.table({"id": [1], "c": pa.array([{"x": 1}], SMALL)})
    folding = made(tmp_path / "t", first, data_storage_version="2.0")
    with pytest.raises(InvalidError, match="c is not in the batch, so it would be null"):
        folding.put(appending(first.select(["id"])))
    with pytest.raises(InvalidError, match="more can't be added, because it is a struct"):
        evolve(folding, appending(first.append_column("more", first["c"])))
    put(folding, appending(pa.table({"id": [2], "c": pa.array([{"x": None}], SMALL)})))
    lance.dataset(str(folding.path)).optimize.compact_files()
    assert [row["c"] for row in rows_of(folding)] == [{"x": 1}, {"x": None}]


WIDE = pa.struct([("x", pa.int64()), ("y", pa.struct([("deep", pa.list_(pa.string()))]))])
NESTED: dict[str, tuple[pa.DataType, pa.DataType, object, object, object]] = {
    "a struct": (SMALL, WIDE, {"x": 1}, {"x": 2, "y": {"deep": ["q"]}}, {"x": 1, "y": None}),
    "a struct in a struct": (
        pa.struct([("s", SMALL)]),
        pa.struct([("s", WIDE)]),
        {"s": {"x": 1}},
        {"s": {"x": 2, "y": {"deep": []}}},
        {"s": {"x": 1, "y": None}},
    ),
    "structs in a list": (
        pa.list_(SMALL),
        pa.list_(WIDE),
        [{"x": 1}, {"x": 5}],
        [{"x": 2, "y": {"deep": ["q", None]}}],
        [{"x": 1, "y": None}, {"x": 5, "y": None}],
    ),
}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(("small", "wide", "old", "new", "shown"), NESTED.values(), ids=NESTED)
def test_fields_of_structs_are_added(
    tmp_path: Path,
    version: Storage,
    small: pa.DataType,
    wide: pa.DataType,
    old: object,
    new: object,
    shown: object,
) -> None:
    first = pa.table({"id": [1, 2], "c": pa.array([old, None], small)})
    folding = made(tmp_path / "t", first, data_storage_version=version)
    put(folding, appending(pa.table({"id": [3, 4], "c": pa.array([new, None], wide)})))
    rows = rows_of(folding)
    assert [row["c"] for row in rows[:2]] == [shown, None]
    assert rows[3]["c"] is None
    # Deep structs whose values are all null may be shown as null or as a struct of nulls: compare the leaf.
    assert rows[2]["c"] == pa.array([new], wide).to_pylist()[0]
    # A batch without the field still fits.
    put(folding, appending(first))
    assert [row["c"] for row in rows_of(folding)[4:]] == [shown, None]
    lance.dataset(str(folding.path)).optimize.compact_files()
    assert [row["c"] for row in rows_of(folding)[4:]] == [shown, None]


def test_what_the_table_says_of_its_columns_stays(tmp_path: Path) -> None:
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=key),
            pa.field("text", pa.string(), metadata={"lance-encoding:compression": "zstd", "note": "x"}),
            pa.field("json", pa.string(), metadata={"ARROW:extension:name": "arrow.json"}),
            pa.field("vector", pa.list_(pa.float32(), 2)),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        ],
        metadata={"made": "by hand"},
    )
    row = {"id": 1, "text": "t", "json": "{}", "vector": [1.0, 2.0], "d": "a"}
    folding = made(tmp_path / "t", pa.Table.from_pylist([row], schema))
    before = lance.dataset(str(folding.path)).schema
    more = pa.field("v", pa.list_(pa.float32(), 3), metadata={"note": "y"})
    wider = pa.Table.from_pylist([row | {"id": 2, "v": [1.0, 2.0, 3.0]}], schema.append(more))
    put(folding, appending(wider))
    after = lance.dataset(str(folding.path)).schema
    assert after.metadata == before.metadata
    assert [after.field(name) for name in before.names] == list(before)
    assert all(after.field(name).metadata == before.field(name).metadata for name in before.names)
    assert after.field("v").type == more.type
    assert after.field("v").metadata[b"note"] == b"y"
    assert [each["v"] for each in rows_of(folding)] == [None, [1.0, 2.0, 3.0]]


def test_an_upsert_adds_the_columns_of_its_rows(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1, 2]), enable_stable_row_ids=True)
    put(folding, UpsertRows(people([2, 3], "second", at=[7, 8]), Merge(("id",), ("at",))))
    rows = {row["id"]: (row["name"], row["at"]) for row in rows_of(folding)}
    assert rows == {1: ("first 1", None), 2: ("second 2", 7), 3: ("second 3", 8)}


def test_a_key_that_the_table_lacks_is_not_added(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    log = FoldedLog(folding)
    with pytest.raises(InvalidError, match="the table doesn't have the keys code"):
        evolve(folding, UpsertRows(people([2], code=[1]), Merge(("code",))), log)
    assert log.asked == 0


def test_two_writers_that_add_columns_at_once_end_in_one_schema(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    mine = appending(people([2], a=[1], both=[1]))
    theirs = appending(people([3], b=[2], both=[2]))
    log = FoldedLog(folding, [lambda: put(folding, theirs)])
    evolve(folding, mine, log)
    assert log.asked == 2
    folding.put(mine)
    rows = rows_of(folding)
    assert [(row["a"], row["b"], row["both"]) for row in rows] == [
        (None, None, None),
        (None, 2, 2),
        (1, None, 1),
    ]
    assert lance.dataset(str(folding.path)).schema.names == ["id", "name", "n", "b", "both", "a"]


def test_a_column_that_another_writer_added_meanwhile_is_not_added_again(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    same = appending(people([2], a=[1]))
    log = FoldedLog(folding, [lambda: put(folding, appending(people([3], a=[2])))])
    view = evolve(folding, same, log)
    assert (log.asked, view.schema.names) == (1, ["id", "name", "n", "a"])


def test_a_writer_of_rows_is_not_disturbed_by_new_columns(tmp_path: Path) -> None:
    """Rows that were written for the schema before are added after the columns."""
    folding = made(tmp_path / "t", people([1]))
    late = folding.build(appending(people([2])))
    assert late is not None
    evolve(folding, appending(people([3], a=[1])))
    (result,) = folding.fold(late)
    assert isinstance(result, Committed)
    assert [row["a"] for row in rows_of(folding)] == [None, None]


def test_a_batch_that_is_run_again_after_the_schema_finds_its_columns(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    batch = appending(people([2], a=[1]))
    evolve(folding, batch)
    log = FoldedLog(folding)
    view = evolve(folding, batch, log)
    assert (log.asked, view.version) == (0, 2)


def test_an_outcome_that_is_not_reported_is_found_in_the_table(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    view = evolve(folding, appending(people([2], a=[1])), FoldedLog(folding, is_heard=False))
    assert view.schema.names == ["id", "name", "n", "a"]
    # A Merge that is refused unheard leaves the column out.
    other = FoldedLog(folding, [lambda: folding.put(appending(people([9])))], is_heard=False)
    with pytest.raises(RetryError, match="no outcome within 60 s for the new columns b at"):
        evolve(folding, appending(people([2], b=[1])), other)


def test_new_columns_that_are_always_refused_end_in_an_error(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))
    busy = FoldedLog(folding, [lambda: folding.put(appending(people([9])))] * ATTEMPTS)
    with pytest.raises(RetryError, match=f"the changed columns were refused {ATTEMPTS} times"):
        evolve(folding, appending(people([2], a=[1])), busy)


def test_a_merge_that_the_committer_can_not_fold_is_refused_for_good(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1]))

    class Damaging(FoldedLog):
        def ask(self, envelope: Envelope, *args: Any, **options: Any) -> Answer:  # noqa: ANN401 - passed on
            envelope.lance.merge.schema[-1].id = 0
            return super().ask(envelope, *args, **options)

    with pytest.raises(RefusedError, match=r"can't change columns: .* field id 0 is in the"):
        evolve(folding, appending(people([2], a=[1])), Damaging(folding))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (people([2], a=[1]).set_column(2, "n", pa.array([1.5])), "n is double in the batch, int32"),
        (people([2], a=[1]).set_column(1, "name", pa.array([1])), "name is int64 in the batch, string in"),
        (people([2], a=[1]).drop_columns(["id"]), r"id \(int64\) is missing, and the table's column is not"),
        (people([2], Name=["x"]), "Name can't be added, because the table has name"),
        (people([2], a=[None]), "a can't be added, because it has no type, only nulls"),
    ],
)
def test_a_batch_that_would_not_fit_changes_nothing(tmp_path: Path, rows: pa.Table, message: str) -> None:
    schema = people([1]).schema.set(0, pa.field("id", pa.int64(), nullable=False))
    folding = made(tmp_path / "t", people([1]).cast(schema))
    log = FoldedLog(folding)
    with pytest.raises(InvalidError, match=message) as caught:
        evolve(folding, appending(rows), log)
    assert caught.value.hint
    assert log.asked == 0
    assert lance.dataset(str(folding.path)).version == 1


def test_new_ids_come_after_those_of_columns_that_were_dropped(tmp_path: Path) -> None:
    folding = made(tmp_path / "t", people([1], gone=[5]))
    lance.dataset(str(folding.path)).drop_columns(["gone"])
    put(folding, appending(people([2], back=["text"])))
    assert [row["back"] for row in rows_of(folding)] == [None, "text"]


def upserting(rows: pa.Table, *clauses: Clause) -> UpsertRows:
    return UpsertRows(rows, Merge(("n",), clauses=clauses or UPSERT))


NO_UPSERTS: dict[str, tuple[UpsertRows | ApplyChanges, type[InvalidError], str]] = {
    "twice": (upserting(pa.table({"n": [1, 1], "a": ["x", "y"]})), BadKeysError, "n"),
    "no key": (upserting(pa.table({"n": pa.array([None], pa.int64()), "a": ["x"]})), BadKeysError, "n"),
    "condition": (
        upserting(pa.table({"n": [1], "a": ["x"]}), NotMatchedInsert("source.a ="), MatchedUpdate()),
        InvalidError,
        "can't be evaluated",
    ),
    "unknown column": (
        upserting(pa.table({"n": [1], "a": ["x"]}), NotMatchedInsert("source.b > 1"), MatchedUpdate()),
        InvalidError,
        "can't be evaluated",
    ),
    "event": (
        ApplyChanges(
            pa.table({"n": [1], "a": ["x"], "op": ["what"]}), change_format("n", operation_column="op")
        ),
        BadRowsError,
        "op in 1",
    ),
}


@pytest.mark.parametrize("fault", NO_UPSERTS)
def test_a_batch_that_can_not_be_merged_changes_no_columns_and_creates_no_table(
    tmp_path: Path, fault: str
) -> None:
    """No broker is needed to say so."""
    operation, kind, words = NO_UPSERTS[fault]
    folding, log = made(tmp_path / "t", pa.table({"n": [0]})), FoldedLog(made(tmp_path / "u", pa.table({})))
    view = read_view(canonical(folding.path), {}, afresh=True)
    assert view is not None
    with pytest.raises(kind, match=words):
        with_columns_of(view, columns_of(operation), folding.settings(), log, operation.check)
    assert log.asked == 0
    settings = replace(folding.settings(), table=canonical(tmp_path / "new"), timeout_s=1.0)
    with pytest.raises(kind, match=words):
        put_batch(settings, Key("app", 0), operation)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("table_format", ["", "delta"])
def test_a_condition_of_replaced_rows_that_can_not_be_evaluated_creates_no_table(
    tmp_path: Path, table_format: str
) -> None:
    settings = replace(Folding(tmp_path / "t").settings(), timeout_s=1.0, format=table_format)
    given = read_write_options({"path": settings.table, "replaceWhere": "n >>> 'x'"})
    with pytest.raises(InvalidError, match="can't be evaluated"):
        plan_write(
            given,
            settings,
            pa.schema({"n": pa.int64()}),
            Key("app", 0),
            use=WriteUse.BATCH,
            overwrite=True,
        )
    assert not (tmp_path / "t").exists()


SOME_FIELDS = pa.struct([("a", pa.int64()), ("c", pa.int64())])
OTHER_FIELDS = pa.struct([("a", pa.int64()), ("b", pa.int64())])
GROWN = {
    "struct": (SOME_FIELDS, OTHER_FIELDS, {"a": 1, "c": 2}, {"a": 1, "b": 3}, "s.c > 0"),
    "list": (
        pa.list_(SOME_FIELDS),
        pa.list_(OTHER_FIELDS),
        [{"a": 1, "c": 2}],
        [{"a": 1, "b": 3}],
        "s[1].c > 0",
    ),
    "deeper": (
        pa.struct([("d", SOME_FIELDS)]),
        pa.struct([("d", OTHER_FIELDS)]),
        {"d": {"a": 1, "c": 2}},
        {"d": {"a": 1, "b": 3}},
        "s.d.c > 0",
    ),
}


@pytest.mark.parametrize(("old", "new", "value", "more", "condition"), GROWN.values(), ids=GROWN)
def test_a_condition_may_name_a_field_that_the_structs_of_a_batch_lack(
    tmp_path: Path, old: pa.DataType, new: pa.DataType, value: object, more: object, condition: str
) -> None:
    folding = made(
        tmp_path / "t", pa.table({"n": [1], "s": pa.array([value], old)}), enable_stable_row_ids=True
    )
    rows = pa.table({"n": [1], "s": pa.array([more], new), "new": ["x"]})
    operation = upserting(rows, MatchedUpdate(condition=f"target.{condition}"))
    with_columns_of(
        folding_view(folding), columns_of(operation), folding.settings(), FoldedLog(folding), operation.check
    )
    folding.put(operation)
    (row,) = rows_of(folding)
    assert row["new"] == "x"


def test_the_fields_of_maps_are_those_of_the_table_and_of_the_batch() -> None:
    def columns(values: pa.DataType) -> pa.Schema:
        return pa.schema([pa.field("m", pa.map_(pa.string(), values)), pa.field("n", pa.int32())])

    both = pa.struct([*SOME_FIELDS, OTHER_FIELDS.field("b")])
    wider = pa.schema([pa.field("n", pa.int64()), pa.field("m", columns(OTHER_FIELDS).field("m").type)])
    merged = changed_schema(columns(SOME_FIELDS), wider)
    assert merged == pa.schema([columns(both).field("m"), pa.field("n", pa.int64())])


def folding_view(folding: Folding | DeltaFolding) -> View:
    view = read_view(canonical(folding.path), {}, afresh=True)
    assert view is not None
    return view


@pytest.mark.parametrize("table_format", ["lance", "delta"])
def test_replaced_rows_may_be_chosen_by_a_field_that_the_batch_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    first = pa.table({"n": [1], "s": pa.array([{"a": 1, "c": 2}], SOME_FIELDS)})
    folding: Folding | DeltaFolding
    if table_format == "delta":
        folding = DeltaFolding(tmp_path / "t")
        folding.create(first.schema, {})
    else:
        folding = made(tmp_path / "t", first)
    monkeypatch.setattr(write_plan, "open_client", lambda *_: FoldedLog(folding))
    rows = pa.schema({"n": pa.int64(), "s": OTHER_FIELDS})
    given = read_write_options({"path": str(folding.path), "replaceWhere": "s.c > 1", "mergeSchema": "true"})
    settings = replace(folding.settings(), merge_schema=True)
    plan = plan_write(given, settings, rows, Key("app", 0), use=WriteUse.BATCH, overwrite=True)
    assert plan.condition is not None
    assert folding_view(folding).schema.field("s").type == pa.struct([*SOME_FIELDS, OTHER_FIELDS.field("b")])


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_condition_on_partitions_is_checked_as_the_write_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapping: str
) -> None:
    """Texts aren't compared with numbers, whether partition columns alone decide or (mapped ones) never."""
    folding = DeltaFolding(tmp_path / "t")
    log = FoldedLog(folding)
    for module in (write_plan, batch):
        monkeypatch.setattr(module, "open_client", lambda *_: log)
    properties = {"delta.columnMapping.mode": mapping}
    settings = folding.settings(partition_by=("x",), merge_schema=True, table_properties=properties)

    def planned(columns: pa.Schema, where: str) -> WritePlan:
        given = read_write_options({"path": str(folding.path), "replaceWhere": where, "mergeSchema": "true"})
        return plan_write(given, settings, columns, Key("app", 0), use=WriteUse.BATCH, overwrite=True)

    columns = pa.schema({"x": pa.string(), "n": pa.int64()})
    for asked, schema in enumerate((columns, columns.append(pa.field("more", pa.int64())))):
        with pytest.raises(InvalidError, match="no kernel matching input types"):
            planned(schema, "x IN (1, 2)")
        assert log.asked == asked
        planned(schema, "x IN ('1', '2')")
        assert folding.view().schema.names == schema.names
        assert log.asked == asked + 1
