"""A branch is promoted: what was written to it is on the main branch afterwards, and its batches count there.

Promise: a-promote-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold.branching.promote import promoted_branch
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.revert.conflicts import PromoteConflictError
from lakefold_ingest.rows.row_source import RowSource
from lakefold_reader.formats import open_source
from lakefold_table.entry import Committed, Duplicate, Rejected
from lakefold_table.errors import PreconditionError, VersionExpiredError
from tests.merging import row_ids
from tests.promoting import Branched
from tests.reverting import LanceBatches, Tables, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = pytest.mark.parametrize("kind", ["lance", "lance-ids"])


def begun(kind: str, path: Path) -> Branched:
    """A table with the rows 0 to 9, and a branch of it."""
    main = Tables.made(kind, path / "t")
    main.append(words(*range(10)))
    return Branched.begun(main)


@KINDS
def test_what_was_written_is_on_the_main_branch_beside_what_that_got(kind: str, tmp_path: Path) -> None:
    table = begun(kind, tmp_path)
    table.branch.append(words(20, 21, word="new"), Key("loader", 1))
    table.branch.upsert(words(3, 22, word="changed"), Key("loader", 2))
    table.branch.delete("id = 4", Key("loader", 5))
    table.branch.compact()
    table.main.append(words(30))
    table.main.delete("id = 9")
    table.main.compact()
    result = table.promote()
    assert isinstance(result, Committed)
    assert (result.rows_added, result.rows_deleted) == (4, 2)
    expected = {n: f"first {n}" for n in (0, 1, 2, 5, 6, 7, 8, 30)}
    expected |= {20: "new 20", 21: "new 21", 3: "changed 3", 22: "changed 22"}
    assert table.main.rows() == sorted(expected.items(), key=repr)
    assert table.promote() is None


@KINDS
def test_later_promotes_put_what_came_since_and_follow_rows_that_were_promoted(
    kind: str, tmp_path: Path
) -> None:
    table = begun(kind, tmp_path)
    for number in range(1, 5):
        table.branch.upsert(words(number, 20 + number, 20, word=f"round {number}"), Key("loader", number))
        table.branch.delete(
            f"id = {18 + number}" if number > 2 else f"id = {6 + number}", Key("loader", 10 + number)
        )
        if number == 2:
            table.branch.compact()
        if number == 3:
            table.main.compact()
        result = table.promote()
        assert isinstance(result, Committed), result
        assert table.main.rows() == table.branch.rows()
        assert table.promote() is None
    ids = lance.dataset(str(tmp_path / "t")).to_table(with_row_id=True).column("_rowid").to_pylist()
    assert len(set(ids)) == len(ids)


def test_batches_of_the_branch_count_on_the_main_branch(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    for batch in (0, 1, 2, 7):
        table.branch.append(words(20 + batch), Key("loader", batch))
    table.branch.put(table.branch.operation(batches=(("loader", 2),)))
    result = table.promote()
    assert isinstance(result, Committed)
    version, envelopes = result.version, []
    for batch in (0, 1, 2, 3, 7):
        envelope = table.main.batches.build(append_source(RowSource(words(90))), Key("loader", batch))
        assert envelope is not None
        envelopes.append(envelope)
    answers = table.main.batches.fold(*envelopes)
    assert [type(each) for each in answers] == [Duplicate, Duplicate, Duplicate, Committed, Duplicate]
    assert answers[0] == Duplicate(version)
    assert answers[2] == Duplicate(version, version), "its rows were undone on the branch"


def test_a_batch_that_both_branches_have_is_refused(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    for each in (table.main, table.branch):
        each.append(words(20), Key("loader", 3))
    table.branch.append(words(21), Key("loader", 4))
    refusal = table.promote()
    assert isinstance(refusal, Rejected)
    assert (refusal.conflict.keys, refusal.conflict.retryable) == (("loader:3",), False)
    table.branch.revert(batches=(("loader", 3),))
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == sorted([(n, f"first {n}") for n in (*range(10), 20, 21)], key=repr)


@KINDS
def test_rows_that_both_branches_changed_are_named(kind: str, tmp_path: Path) -> None:
    table = begun(kind, tmp_path)
    table.branch.upsert(words(1, 2, 3, 40, word="branch"), Key("loader", 1))
    table.main.upsert(words(2, 40, word="main"), Key("svc", 5))
    table.main.delete("id = 3", Key("svc", 6))
    table.main.compact()
    before = table.main.rows()
    with pytest.raises(PromoteConflictError) as raised:
        table.promote()
    conflicts = {each.row: each for each in raised.value.conflicts}
    assert {row: each.change for row, each in conflicts.items()} == {
        "id=2": "changed",
        "id=3": "deleted",
        "id=40": "inserted again",
    }
    assert conflicts["id=2"].later_entry == "svc:5"
    assert table.main.rows() == before


@pytest.mark.parametrize("how", ["delete", "upsert"])
def test_what_is_committed_after_the_plan_is_judged_by_the_committer(how: str, tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    table.branch.upsert(words(1, 40, word="branch"), Key("loader", 1))
    envelope = table.main.batches.build(table.operation(), new_key())
    if how == "delete":
        table.main.delete("id = 1")
    else:
        table.main.upsert(words(40, word="main"))
    refusal = table.main.batches.refused(envelope)
    assert refusal.conflict.retryable
    with pytest.raises(PromoteConflictError):
        table.promote()


def test_two_promotes_at_once_put_the_rows_once(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    lance.write_dataset(words(20), str(tmp_path / "t/tree/audit"), mode="append")
    first, second = (table.main.batches.build(table.operation(), new_key()) for _ in range(2))
    assert first is not None
    (result,) = table.main.batches.fold(first)
    assert isinstance(result, Committed)
    assert table.main.batches.refused(second).conflict.other_version == result.version
    assert table.promote() is None


def test_a_promote_of_an_older_version_takes_nothing_back(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    table.branch.append(words(20))
    older = table.operation()
    table.branch.append(words(21))
    assert isinstance(table.promote(), Committed)
    assert table.main.batches.build(older, new_key()) is None


def test_versions_of_other_clients_are_promoted_too(tmp_path: Path) -> None:
    table = begun("lance-ids", tmp_path)
    audit = lance.dataset(str(tmp_path / "t/tree/audit"))
    audit.insert(words(20, 21))
    audit.update({"word": "'theirs'"}, where="id in (1, 20)")
    audit.delete("id = 2")
    lance.dataset(str(tmp_path / "t")).optimize.compact_files()
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == table.branch.rows()
    assert dict(table.main.rows())[1] == "theirs"


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    table = begun("lance-ids", tmp_path)
    before = row_ids(tmp_path / "t")
    table.branch.append(words(32, 33))
    table.branch.upsert(words(1, 5, 30, word="changed"))
    table.main.append(words(31))
    table.promote()
    table.branch.upsert(words(30, 1, 7, word="again"))
    table.branch.delete("id = 33")
    added = row_ids(tmp_path / "t")
    table.promote()
    after = row_ids(tmp_path / "t")
    assert {n: after[n] for n in range(10)} == {n: before[n] for n in range(10)}
    assert (after[30], after[32]) == (added[30], added[32])
    assert len(set(after.values())) == len(after)
    assert after.keys() == {*range(10), 30, 31, 32}
    assert dict(table.main.rows()) == {**dict(table.branch.rows()), 31: "first 31"}


def test_after_a_restore_or_a_revert_of_it_a_branch_is_promoted_again(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    before = table.main.version
    table.branch.append(words(20), Key("loader", 1))
    table.branch.append(words(21), Key("loader", 2))
    first = table.promote()
    assert isinstance(first, Committed)
    with pytest.raises(PreconditionError, match="promoted together"):
        table.main.revert(batches=(("loader", 1),))
    undone = table.main.revert(version=first.version)
    assert len(table.main.rows()) == 10
    again = table.main.batches.build(append_source(RowSource(words(20))), Key("loader", 2))
    assert again is not None
    (answer,) = table.main.batches.fold(again)
    assert answer == Duplicate(first.version, undone)
    assert isinstance(table.promote(), Committed)
    assert len(table.main.rows()) == 12
    table.main.restore(before)
    assert len(table.main.rows()) == 10
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == table.branch.rows()


def test_columns_have_to_be_those_of_the_main_branch(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    table.branch.evolve()
    table.branch.append(words(20).append_column("more", [["more"]]))
    with pytest.raises(PreconditionError, match="lacks or has in another type: more"):
        table.promote()
    table.main.evolve()
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == table.branch.rows()
    lance.dataset(str(tmp_path / "t/tree/audit")).add_columns({"n": "id + 1"})
    table.branch.append(words(22))
    lance.dataset(str(tmp_path / "t")).add_columns({"n": "id + 1"})
    with pytest.raises(PreconditionError, match="with values for rows of the main branch: n"):
        table.promote()


TITLED: Any = {"path": "word", "name": "title"}
MOVES: dict[str, Callable[[lance.LanceDataset], object]] = {
    "dropped, and added again": lambda main: (
        main.drop_columns(["word"]),
        main.add_columns({"word": "cast(id as string)"}),
    ),
    "renamed, and another takes its name": lambda main: (
        main.alter_columns(TITLED),
        main.add_columns({"word": "cast(id as string)"}),
    ),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("kind", ["lance", "lance-ids"])
def test_columns_that_the_main_branch_wrote_anew_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    table = begun(kind, tmp_path)
    table.branch.upsert(words(1, word="new"))
    MOVES[name](lance.dataset(str(tmp_path / "t")))
    with pytest.raises(PreconditionError, match="renamed or wrote anew: word"):
        table.promote()


@pytest.mark.parametrize("kind", ["lance", "lance-ids"])
def test_values_of_columns_that_the_main_branch_got_since_are_not_lost(tmp_path: Path, kind: str) -> None:
    table = begun(kind, tmp_path)
    table.branch.upsert(words(1, word="new"))
    lance.dataset(str(tmp_path / "t")).add_columns({"k": "id + 100"})
    table.main.compact()
    with pytest.raises(PreconditionError, match="in columns that the main branch got since: k"):
        table.promote()


def test_a_column_that_both_branches_renamed_is_no_obstacle(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    for path in ("t", "t/tree/audit"):
        lance.dataset(str(tmp_path / path)).alter_columns(TITLED)
    table.branch.append(words(20).rename_columns(["id", "title"]))
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == table.branch.rows()


def test_columns_that_the_branch_dropped_are_refused(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    lance.dataset(str(tmp_path / "t/tree/audit")).drop_columns(["word"])
    lance.write_dataset(words(20).select(["id"]), str(tmp_path / "t/tree/audit"), mode="append")
    with pytest.raises(PreconditionError, match="dropped on the branch: word"):
        table.promote()


def test_a_branch_that_was_overwritten_replaces_all_rows_unless_main_got_others(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    lance.write_dataset(words(1, 50, word="new"), str(tmp_path / "t/tree/audit"), mode="overwrite")
    envelope = table.main.batches.build(table.operation(), new_key())
    table.main.append(words(30))
    table.main.batches.refused(envelope)
    with pytest.raises(PreconditionError, match="rows of the branch were replaced"):
        table.promote()
    table.main.delete("id = 30")
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == table.branch.rows() == [(1, "new 1"), (50, "new 50")]


def test_a_main_branch_that_was_overwritten_or_restored_since_is_refused(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    table.branch.append(words(20))
    table.main.restore(1)
    with pytest.raises(PreconditionError, match="restored an earlier version"):
        table.promote()


def test_a_serializable_table_refuses_changes_beside_others(tmp_path: Path) -> None:
    main = Tables.made("lance", tmp_path / "t")
    main.append(words(*range(10)))
    lance.dataset(str(tmp_path / "t")).update_config({"lakefold.isolation": "serializable"})
    table = Branched.begun(main)
    table.branch.append(words(20))
    table.main.append(words(30))
    assert isinstance(table.promote(), Committed)
    table.branch.delete("id = 1")
    table.main.append(words(31))
    with pytest.raises(PreconditionError, match="serializable"):
        table.promote()


def test_a_batch_without_rows_counts_as_well(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    table.branch.batches.fold(table.branch.batches.view().nothing(Key("loader", 1)))
    result = table.promote()
    assert isinstance(result, Committed)
    assert (result.rows_added, result.rows_deleted) == (0, 0)
    assert table.promote() is None


def test_a_branch_of_another_branch_is_refused(tmp_path: Path) -> None:
    begun("lance", tmp_path)
    lance.dataset(str(tmp_path / "t")).checkout_version(("audit", None)).create_branch("deeper")
    with pytest.raises(PreconditionError, match="began at the branch audit"):
        promoted_branch(open_source(str(tmp_path / "t")), "deeper")


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_values_of_any_type_are_promoted(version: Literal["2.0", "2.1", "2.2"], tmp_path: Path) -> None:
    blob = {} if version == "2.2" else {"lance-encoding:blob": "true"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), 2)),
            pa.field("place", pa.struct([pa.field("x", pa.int32()), pa.field("name", pa.string())])),
            pa.field("words", pa.list_(pa.string())),
            pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("image", pa.large_binary(), metadata=blob),
        ]
    )

    def rows(*ids: int) -> pa.Table:
        shared = {
            "place": {"x": 1, "name": "here"},
            "words": ["a", None],
            "kind": "k",
            "price": Decimal("1.50"),
        }
        return pa.Table.from_pylist(
            [{**shared, "id": n, "vector": [n, 1], "image": b"image %d" % n} for n in ids], schema=schema
        )

    path, audit = tmp_path / "t", str(tmp_path / "t/tree/audit")
    lance.write_dataset(rows(*range(6)), str(path), data_storage_version=version)
    table = Branched.begun(Tables(LanceBatches(path), "lance"))
    lance.write_dataset(rows(20, 21), audit, mode="append")
    merge = lance.dataset(audit).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(3, 30))
    lance.dataset(audit).delete("id = 20")
    lance.dataset(audit).optimize.compact_files()
    assert isinstance(table.promote(), Committed)

    difference = lakefold.diff(path, "main", "audit")
    assert (difference.rows_added, difference.rows_removed) == (0, 0)
    assert lakefold.open(path).count_rows() == 8
    lance.dataset(str(path)).validate()


def test_a_branch_without_the_versions_that_show_what_was_done_is_refused(tmp_path: Path) -> None:
    table = begun("lance", tmp_path)
    table.branch.append(words(20))
    table.branch.append(words(21))
    (tmp_path / "t/tree/audit/_versions" / f"{2**64 - 1 - 2}.manifest").unlink()
    with pytest.raises(VersionExpiredError, match="a new branch that begins at its newest version"):
        table.promote()


def test_a_serializable_table_takes_several_promotes_if_main_got_nothing_else(tmp_path: Path) -> None:
    main = Tables.made("lance", tmp_path / "t")
    main.append(words(*range(10)))
    lance.dataset(str(tmp_path / "t")).update_config({"lakefold.isolation": "serializable"})
    table = Branched.begun(main)
    for number in range(3):
        table.branch.append(words(20 + number))
        table.branch.delete(f"id = {number}")
        assert isinstance(table.promote(), Committed)
        table.main.compact()
    assert table.main.rows() == table.branch.rows()


@KINDS
def test_what_a_restore_left_out_of_the_branch_goes_from_the_main_branch_too(
    kind: str, tmp_path: Path
) -> None:
    table = begun(kind, tmp_path)
    kept = table.branch.append(words(20), Key("loader", 1))
    table.branch.delete("id = 1", Key("loader", 2))
    table.branch.restore(kept)
    assert isinstance(table.promote(), Committed)
    assert table.main.rows() == table.branch.rows()
    table.branch.append(words(21), Key("loader", 3))
    table.branch.compact()
    table.branch.upsert(words(2, 21, word="changed"), Key("loader", 4))
    assert isinstance(table.promote(), Committed)
    table.main.append(words(30))
    table.branch.restore(kept)
    result = table.promote()
    assert isinstance(result, Committed), result
    assert dict(table.main.rows()) == {**dict(table.branch.rows()), 30: "first 30"}
    marks = lakefold.open(tmp_path / "t").marks
    assert marks is not None
    assert [marks.rolled_back_by("loader", batch, "") for batch in (1, 3, 4)] == [0, *[result.version] * 2]
    assert marks.rolled_back_by("loader", 2, "") > 0
