"""Upserts and deletes through the log change the same rows as pylance's own merge_insert and delete do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.merge.clauses import (
    Clause,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
)
from lakefold_ingest.merge.lance import candidates
from lakefold_ingest.operations.delete import DeleteWhere, delete_keys
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError
from tests.merging import Folding, people, row_ids
from tests.oracle.operations import version_of

if TYPE_CHECKING:
    from pathlib import Path

Storage = Literal["legacy", "2.0", "2.1", "2.2"]
STORAGE: tuple[Storage, ...] = ("2.0", "2.1", "2.2")


def table(path: Path, *, stable: bool = False, version: Storage = "2.1", index: bool = False) -> Folding:
    """40 rows in fragments of 10, of which two are deleted."""
    data = people(list(range(40)))
    dataset = lance.write_dataset(
        data, str(path), max_rows_per_file=10, enable_stable_row_ids=stable, data_storage_version=version
    )
    if index:
        dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id in (2, 17)")
    return Folding(path)


def both(
    folding: Folding, theirs: Callable[[lance.LanceDataset], object], *ours: UpsertRows | DeleteWhere
) -> None:
    """Has pylance change a copy, and us the table: the rows must be the same."""
    copy = folding.path.with_name("theirs")
    shutil.copytree(folding.path, copy)
    theirs(lance.dataset(str(copy)))
    for operation in ours:
        folding.put(operation)
    assert folding.rows() == Folding(copy).rows()


# What a merge_insert of pylance's does, which is published without types.
Build = Callable[[Any], Any]
MERGES: dict[str, tuple[tuple[Clause, ...], Build]] = {
    "upsert": (
        (MatchedUpdate(), NotMatchedInsert()),
        lambda merge: merge.when_matched_update_all().when_not_matched_insert_all(),
    ),
    "insert if new": ((NotMatchedInsert(),), lambda merge: merge.when_not_matched_insert_all()),
    "update only": ((MatchedUpdate(),), lambda merge: merge.when_matched_update_all()),
    "delete": ((MatchedDelete(),), lambda merge: merge.when_matched_delete()),
    "update on a condition": (
        (MatchedUpdate(condition="source.n > target.n and target.name like '%2%'"), NotMatchedInsert()),
        lambda merge: merge.when_matched_update_all(
            "source.n > target.n and target.name like '%2%'"
        ).when_not_matched_insert_all(),
    ),
    "replace all": (
        (MatchedUpdate(), NotMatchedInsert(), NotMatchedBySourceDelete()),
        lambda merge: (
            merge.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete()
        ),
    ),
    "replace a part": (
        (MatchedUpdate(), NotMatchedInsert(), NotMatchedBySourceDelete("target.id >= 10 and target.id < 30")),
        lambda merge: (
            merge.when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete("id >= 10 and id < 30")
        ),
    ),
}
BATCHES = {
    "some of both": [1, 3, 12, 100, 101],
    "new rows": [100, 101],
    "known rows": [0, 39, 20],
    "a whole fragment and more": [*range(9, 21), 200],
    "deleted rows": [2, 17],
}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("ids", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("clauses", "build"), MERGES.values(), ids=MERGES)
def test_a_merge_leaves_the_rows_that_pylance_leaves(
    tmp_path: Path,
    clauses: tuple[Clause, ...],
    build: Build,
    ids: list[int],
    *,
    stable: bool,
) -> None:
    folding = table(tmp_path / "t", stable=stable)
    batch = people(ids, "second").set_column(2, "n", pa.array([n * 10 + n % 2 for n in ids], pa.int32()))
    both(
        folding,
        lambda dataset: build(dataset.merge_insert("id")).execute(batch),
        UpsertRows(batch, Merge(("id",), clauses=clauses)),
    )


@pytest.mark.parametrize("version", STORAGE)
@pytest.mark.parametrize("index", [False, True], ids=["no index", "index"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_upserts_on_each_kind_of_table(
    tmp_path: Path, version: Storage, *, index: bool, stable: bool
) -> None:
    folding = table(tmp_path / "t", stable=stable, version=version, index=index)
    batches = [people([1, 3, 12, 100], "second"), people([3, 100, 101, 2], "third")]

    def theirs(dataset: lance.LanceDataset) -> None:
        for batch in batches:
            dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(batch)

    both(folding, theirs, *(UpsertRows(batch, Merge(("id",))) for batch in batches))
    assert lance.dataset(str(folding.path)).to_table(filter="id = 100").num_rows == 1


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    "where", ["id < 25", "true", "name = 'first 3' or n is null", "id between 10 and 19"]
)
def test_a_delete_leaves_the_rows_that_pylance_leaves(tmp_path: Path, where: str, *, stable: bool) -> None:
    folding = table(tmp_path / "t", stable=stable)
    both(folding, lambda dataset: dataset.delete(where), DeleteWhere(where))


def test_deletes_by_keys_take_each_key_once_or_several_times(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    keys = pa.table({"id": pa.array([1, 5, 1, 77], pa.int32())})
    done = folding.put(delete_keys(keys, ["id"]))
    assert done is not None
    assert (done.rows_added, done.rows_deleted) == (0, 2)
    assert {row["id"] for row in folding.rows()} == set(range(40)) - {1, 2, 5, 17}


def test_what_changes_nothing_is_not_proposed(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    assert folding.build(DeleteWhere("id = 2")) is None
    assert folding.build(delete_keys(people([2, 77]), ["id"])) is None
    assert folding.build(UpsertRows(people([77]), Merge(("id",), clauses=(MatchedUpdate(),)))) is None
    assert folding.build(UpsertRows(people([]), Merge(("id",)))) is None


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    folding = table(tmp_path / "t", stable=True)
    before = row_ids(folding.path)
    folding.put(UpsertRows(people([31, 5, 100, 6, 0], "second"), Merge(("id",))), max_rows_per_file=2)
    after = row_ids(folding.path)
    assert {key: after[key] for key in before} == before
    assert after[100] not in before.values()
    folding.put(UpsertRows(people([100, 5], "third"), Merge(("id",))))
    assert row_ids(folding.path) == after


def test_updated_columns_are_those_of_the_batch_and_others_stay(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    batch = pa.table({"n": pa.array([-1, -2], pa.int32()), "id": pa.array([3, 500])})
    folding.put(UpsertRows(batch, Merge(("id",))))
    rows = {row["id"]: (row["name"], row["n"]) for row in folding.rows()}
    assert rows[3] == ("first 3", -1)
    assert rows[500] == (None, -2)
    assert rows[4] == ("first 4", 40)


def test_clauses_with_conditions_are_tried_in_their_order(tmp_path: Path) -> None:
    """By a column that the table need not have."""
    folding = table(tmp_path / "t")
    batch = people([1, 3, 5, 100, 101], "second").append_column("op", pa.array(["d", "n", "u", "d", "u"]))
    clauses = (
        MatchedDelete("source.op = 'd'"),
        MatchedUpdate(["n"], "source.op = 'n'"),
        MatchedUpdate(["name"]),
        NotMatchedInsert("source.op <> 'd'"),
    )
    folding.put(
        UpsertRows(batch.set_column(2, "n", pa.array([-1] * 5, pa.int32())), Merge(("id",), clauses=clauses))
    )
    rows = {row["id"]: (row["name"], row["n"]) for row in folding.rows()}
    assert {key: rows.get(key) for key in (1, 3, 5, 7, 100, 101)} == {
        1: None,
        3: ("first 3", -1),
        5: ("second 5", 50),
        7: ("first 7", 70),
        100: None,
        101: ("second 101", -1),
    }


def test_rows_that_the_batch_does_not_have_are_updated_by_expressions(tmp_path: Path) -> None:
    folding = table(tmp_path / "t", stable=True)
    before = row_ids(folding.path)
    clauses = (
        MatchedUpdate(),
        NotMatchedBySourceDelete("target.id >= 20"),
        NotMatchedBySourceUpdate({"n": "target.n + target.id", "name": "'gone'"}, "target.id > 15"),
    )
    folding.put(UpsertRows(people([0, 16, 30], "second"), Merge(("id",), clauses=clauses)))
    rows = {row["id"]: (row["name"], row["n"]) for row in folding.rows()}
    assert rows.keys() == (set(range(20)) | {30}) - {2, 17}
    assert rows[16] == ("second 16", 160)
    assert rows[18] == ("gone", 198)
    assert rows[3] == ("first 3", 30)
    after = row_ids(folding.path)
    assert after == {key: before[key] for key in after}


def test_matched_rows_get_values_of_expressions(tmp_path: Path) -> None:
    """Of their old values and of the batch's, which may have columns that the table lacks."""
    folding = table(tmp_path / "t")
    batch = people([3, 5, 100], "second").append_column("more", pa.array([1, None, 7], pa.int32()))
    columns = {"n": "target.n + source.more", "name": "concat(target.name, '/', source.name)"}
    folding.put(UpsertRows(batch.select(["id", "name", "n", "more"]), assigning(columns)))
    rows = {row["id"]: (row["name"], row["n"]) for row in folding.rows()}
    assert [rows[3], rows[5], rows[7]] == [
        ("first 3/second 3", 31),
        ("first 5/second 5", None),
        ("first 7", 70),
    ]
    assert rows[100] == ("second 100", 1000)
    only = MatchedUpdate((), "source.id = 3", {"n": "-target.n"})
    folding.put(UpsertRows(people([3, 7], "third"), Merge(("id",), clauses=(only,))))
    after = {row["id"]: (row["name"], row["n"]) for row in folding.rows()}
    assert after == rows | {3: ("first 3/second 3", -31)}
    for wrong, reason in (
        ({"id": "source.id"}, "the update names id, which is a key"),
        ({"nope": "1"}, "the update names nope, which is not in the table"),
        ({"n": "source.nope"}, "'source.nope' can't be evaluated"),
        ({"n": "target.n + 1, name = 'x'"}, "can't be evaluated"),
    ):
        with pytest.raises(InvalidError, match=reason):
            folding.build(UpsertRows(people([3]), assigning(wrong)))


def assigning(assignments: dict[str, str]) -> Merge:
    """An upsert of which the update assigns these values."""
    return Merge(("id",), clauses=(MatchedUpdate(assignments=assignments), NotMatchedInsert()))


def test_values_and_conditions_may_be_constants(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    assigned = NotMatchedBySourceUpdate({"name": "'other'", "n": "0"}, "1 = 1")
    folding.put(UpsertRows(people([3]), Merge(("id",), clauses=(MatchedDelete("true"), assigned))))
    rows = lance.dataset(str(folding.path)).to_table()
    assert rows.num_rows == 37
    assert set(rows["name"].to_pylist()) == {"other"}
    assert 3 not in rows["id"].to_pylist()


def test_the_last_row_of_a_key_wins_by_a_column_that_the_table_may_lack(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    batch = people([3, 3, 3], "x").set_column(1, "name", pa.array(["a", "b", "c"]))
    batch = batch.append_column("at", pa.array([2, 9, 5]))
    folding.put(UpsertRows(batch, Merge(("id",), ("at",))))
    assert {row["name"] for row in folding.rows() if row["id"] == 3} == {"b"}


def test_a_key_that_several_rows_of_the_table_have_changes_all_of_them(tmp_path: Path) -> None:
    folding = Folding(tmp_path / "t")
    lance.write_dataset(people([1, 1, 2]), str(folding.path))
    folding.put(UpsertRows(people([1], "second"), Merge(("id",))))
    assert [row["name"] for row in folding.rows()] == ["second 1", "second 1", "first 2"]


def test_nulls_of_the_table_are_no_keys(tmp_path: Path) -> None:
    folding = Folding(tmp_path / "t")
    lance.write_dataset(
        pa.table({"id": pa.array([None, 1.5, float("nan"), -0.0]), "v": list("abcd")}), str(folding.path)
    )
    folding.put(UpsertRows(pa.table({"id": [0.0, 1.5], "v": ["x", "y"]}), Merge(("id",))))
    assert [row["v"] for row in folding.rows("v")] == ["a", "c", "x", "y"]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    folding = Folding(tmp_path / "t")
    rows = pa.table({"a": ["x", "x", "y"], "b": pa.array([1, 2, 1], pa.int16()), "v": [1, 2, 3]})
    lance.write_dataset(rows, str(folding.path))
    folding.put(
        UpsertRows(
            pa.table({"b": pa.array([2, 9], pa.int16()), "a": ["x", "y"], "v": [20, 90]}), Merge(("b", "a"))
        )
    )
    assert {row["v"] for row in folding.rows()} == {1, 3, 20, 90}


def test_files_are_split_and_ids_follow(tmp_path: Path) -> None:
    folding = table(tmp_path / "t", stable=True)
    before = row_ids(folding.path)
    clauses = (MatchedUpdate(["n"], "source.id % 2 = 0"), MatchedUpdate(["name"]), NotMatchedInsert())
    ids = [7, 4, 38, 9, 100, 11, 20]
    folding.put(UpsertRows(people(ids, "second"), Merge(("id",), clauses=clauses)), max_rows_per_file=3)
    after = row_ids(folding.path)
    assert {key: after[key] for key in before} == before
    assert len(set(after.values())) == len(after)


def test_an_upsert_is_folded_once(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    key = Key("app", 7)
    operation = UpsertRows(people([3, 100], "second"), Merge(("id",)))
    first, again = folding.build(operation, key), folding.build(operation, key)
    assert first is not None
    assert again is not None
    assert first.lance.uuid == again.lance.uuid
    results = [*folding.fold(first), *folding.fold(again)]
    assert [type(result) for result in results] == [Committed, Duplicate]


def test_two_upserts_that_insert_one_key_are_a_conflict(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    single = folding.build(UpsertRows(people([3, 100], "one"), Merge(("id",))))
    other = folding.build(UpsertRows(people([101, 102], "other"), Merge(("id",))))
    same = folding.build(UpsertRows(people([102, 7], "same"), Merge(("id",))))
    assert single is not None
    assert other is not None
    assert same is not None
    assert [type(result) for result in (*folding.fold(single), *folding.fold(other))] == [
        Committed,
        Committed,
    ]
    refusal = folding.refused(same)
    assert refusal.conflict.field_ids == (0,)
    folding.put(UpsertRows(people([102, 7], "same"), Merge(("id",))))
    names = {row["id"]: row["name"] for row in folding.rows()}
    assert (names[100], names[101], names[102], names[7]) == ("one 100", "other 101", "same 102", "same 7")


def test_two_updates_of_one_row_are_a_conflict_and_of_neighbours_none(tmp_path: Path) -> None:
    folding = table(tmp_path / "t", stable=True)
    before = row_ids(folding.path)
    update = Merge(("id",), clauses=(MatchedUpdate(),))
    built = [
        folding.build(UpsertRows(people(ids, name), update))
        for ids, name in (([3, 4], "a"), ([5], "b"), ([4], "c"))
    ]
    first, neighbour, same = (envelope for envelope in built if envelope is not None)
    folding.fold(first)
    (result,) = folding.fold(neighbour)
    assert isinstance(result, Committed)
    assert result.rebased
    assert folding.refused(same).conflict.row_addresses == (4,)
    names = {row["id"]: row["name"] for row in folding.rows()}
    assert (names[3], names[4], names[5]) == ("a 3", "a 4", "b 5")
    assert row_ids(folding.path) == before


def test_an_append_beside_an_upsert_that_inserts_is_a_conflict(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    inserts = folding.build(UpsertRows(people([100], "one"), Merge(("id",))))
    updates = folding.build(UpsertRows(people([5], "one"), Merge(("id",))))
    assert inserts is not None
    assert updates is not None
    lance.write_dataset(people([100], "appended"), str(folding.path), mode="append")
    folding.refused(inserts)
    (result,) = folding.fold(updates)
    assert isinstance(result, Committed)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_an_upsert_is_carried_over_a_compaction(tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter
    folding = table(tmp_path / "t", stable=stable)
    upsert = folding.build(UpsertRows(people([5, 200], "one"), Merge(("id",))))
    assert upsert is not None
    lance.dataset(str(folding.path)).optimize.compact_files()
    (result,) = folding.fold(upsert)
    assert isinstance(result, Committed)
    rows = {row["id"]: row["name"] for row in folding.rows()}
    assert (len(rows), len(folding.rows())) == (39, 39)
    assert (rows[5], rows[200]) == ("one 5", "one 200")


def test_pylance_upserts_after_us_and_we_after_pylance(tmp_path: Path) -> None:
    folding = table(tmp_path / "t", stable=True, index=True)
    for step, ids in enumerate([[1, 2, 3], [3, 4, 300], [300, 301, 1]]):
        batch = people(ids, f"step {step}")
        merge = lance.dataset(str(folding.path)).merge_insert("id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute(batch)
        folding.put(UpsertRows(people([ids[0], 400 + step], "ours"), Merge(("id",))))
    rows = {row["id"]: row["name"] for row in folding.rows()}
    assert len(rows) == len(folding.rows())
    assert (rows[1], rows[3], rows[300], rows[402]) == ("step 2 1", "ours 3", "ours 300", "ours 402")


def test_an_index_on_the_key_finds_rows_after_upserts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "SPARSE", 1)
    monkeypatch.setattr(candidates, "AT_ONCE", 2)
    folding = Folding(tmp_path / "t")
    dataset = lance.write_dataset(people(list(range(5000))), str(folding.path), max_rows_per_file=1000)
    dataset.create_scalar_index("id", "BTREE")
    lance.write_dataset(people([6000, 6001]), str(folding.path), mode="append")
    folding.put(UpsertRows(people([17, 4999, 6000, 7000], "second"), Merge(("id",))))
    # In no order, so that the rows that several look-ups find are not ascending.
    folding.put(
        UpsertRows(people([7000, 4000, 17, 7001, 6001, 3], "third").drop_columns(["n"]), Merge(("id",)))
    )
    names = {row["id"]: row["name"] for row in folding.rows()}
    assert [row["n"] for row in folding.rows() if row["id"] in {3, 4000}] == [30, 40_000]
    assert len(names) == len(folding.rows()) == 5004
    assert (names[17], names[4999], names[6000], names[7000]) == (
        "third 17",
        "second 4999",
        "second 6000",
        "third 7000",
    )


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ((MatchedUpdate(condition="source.nope > 1"),), "source.nope > 1"),
        ((MatchedUpdate(condition="target.n >"),), "target.n >"),
        ((MatchedDelete("source.n + 1"),), "not a boolean"),
        ((NotMatchedInsert("target.n > 1"),), "target.n > 1"),
        ((NotMatchedBySourceDelete("source.n > 1"),), "source.n > 1"),
        ((NotMatchedBySourceUpdate({"n": "target.n +"}),), r"target.n \+"),
    ],
)
def test_a_condition_that_can_not_be_evaluated_is_named(
    tmp_path: Path, clauses: tuple[Clause, ...], words: str
) -> None:
    folding = table(tmp_path / "t")
    files = sorted((folding.path / "data").iterdir())
    with pytest.raises(InvalidError, match=words):
        folding.build(UpsertRows(people([1, 100]), Merge(("id",), clauses=clauses)))
    assert sorted((folding.path / "data").iterdir()) == files


@pytest.mark.parametrize("where", ["nope = 1", "id >", "id + 1", "  "])
def test_a_predicate_that_can_not_be_evaluated_is_refused(tmp_path: Path, where: str) -> None:
    folding = table(tmp_path / "t")
    with pytest.raises(InvalidError, match=re.escape(repr(where)) if where.strip() else "is empty"):
        folding.build(DeleteWhere(where))


def test_a_batch_that_does_not_fit_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    folding = table(tmp_path / "t")
    files = sorted((folding.path / "data").iterdir())
    for batch, words in (
        (people([1]).append_column("more", pa.array([1])), "more .* is not in the table"),
        (people([1]).set_column(1, "name", pa.array([1])), "name is int64 in the batch"),
        (people([1, 1]), "keys that are in several rows of the batch: 1"),
        (people([1]).set_column(0, "id", pa.array([None], pa.int64())), "key column id has no value"),
    ):
        with pytest.raises(InvalidError, match=words):
            folding.build(UpsertRows(batch, Merge(("id",))))
    assert sorted((folding.path / "data").iterdir()) == files


def test_legacy_data_files_are_refused(tmp_path: Path) -> None:
    folding = table(tmp_path / "t", version="legacy")
    with pytest.raises(InvalidError, match="data files of version"):
        folding.build(DeleteWhere("id = 1"))


def test_deleted_rows_are_named_to_the_committer(tmp_path: Path) -> None:
    """The envelope names exactly the rows that the new deletion files add."""
    folding = table(tmp_path / "t")
    envelope = folding.build(UpsertRows(people([1, 3, 12, 10, 11, *range(20, 30)], "x"), Merge(("id",))))
    assert envelope is not None
    assert sorted(envelope.affected_rows) == [0, 1, 2]
    assert list(envelope.lance.update.removed_fragment_ids) == [2]
    folding.fold(envelope)
    transaction = version_of(folding.path).transaction
    assert transaction is not None
    assert transaction.WhichOneof("operation") == "update"


EXTENDED: dict[str, tuple[pa.DataType, pa.Array]] = {
    "uuid": (pa.uuid(), pa.array([b"a" * 16, b"b" * 16, b"c" * 16], pa.binary(16))),
    "json": (pa.json_(), pa.array(['{"n":1}', '"two"', "3"])),
    "string view": (pa.string_view(), pa.array(["a", "b", "c"])),
}


@pytest.mark.parametrize(("kind", "stored"), EXTENDED.values(), ids=EXTENDED)
def test_keys_of_types_that_lance_stores_as_others(
    kind: pa.DataType, stored: pa.Array, tmp_path: Path
) -> None:
    is_view = not isinstance(kind, pa.BaseExtensionType)
    keys = stored.cast(kind) if is_view else pa.ExtensionArray.from_storage(kind, stored)
    rows = pa.table({"k": keys, "n": [1, 2, 3]})
    lance.write_dataset(rows.slice(0, 2), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    folding.put(UpsertRows(pa.table({"k": keys, "n": [7, 8, 9]}).slice(1), Merge(("k",))))
    assert [row["n"] for row in folding.rows("n")] == [1, 8, 9]
    folding.put(delete_keys(rows.slice(2), ["k"]))
    assert [row["n"] for row in folding.rows("n")] == [1, 8]
    folding.put(UpsertRows(pa.table({"k": stored, "n": [5, 6, 7]}).slice(1, 1), Merge(("k",))))
    assert [row["n"] for row in folding.rows("n")] == [1, 6]
