"""Deleted rows of a proposal that met deleted rows of others: pylance's rebase, and ours (Lance fact 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Invalid, Rejected
from tests.oracle.committing import fold, owned
from tests.oracle.operations import version_of
from tests.oracle.rebasing import built, rebased_both_ways, send
from tests.oracle.test_deletes import agree, rows_of, table_of, values

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.oracle.operations import Act


def delete(where: str) -> Act:
    """Delete these rows."""
    return lambda dataset: dataset.delete(where)


def update(where: str, value: str = "x") -> Act:
    """Give these rows another text."""
    return lambda dataset: dataset.update({"s": f"'{value}'"}, where=where)


def merge(*ids: int) -> Act:
    """Give these rows another text, insert those that aren't there."""

    def act(dataset: lance.LanceDataset) -> object:
        builder = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
        return builder.execute(rows_of(ids, "merged"))

    return act


ACTS = {
    "delete": (delete("a in (1, 2, 15)"), 3),
    "update": (update("a in (1, 2, 15)"), 3),
    "merge_insert": (merge(1, 2, 15, 500), 3),
    "delete of rows and of a fragment": (delete("a in (1, 2) or (a >= 10 and a < 20)"), 11),
}
BETWEEN = {
    "a delete of other rows": delete("a in (3, 4, 33)"),
    "an update of other rows": update("a in (3, 33)", "y"),
    "a merge_insert": merge(3, 33, 900),
    "a delete elsewhere": delete("a = 25"),
    "a fragment that goes": delete("a >= 30"),
    "an index by ids": lambda dataset: dataset.create_scalar_index("a", "BITMAP", name="late"),
    "an append": lambda dataset: lance.write_dataset(rows_of([700, 701]), dataset.uri, mode="append"),
}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_deleted_rows_are_joined_as_pylance_does(
    tmp_path: Path, act: tuple[Act, int], between: Act, *, stable: bool
) -> None:
    table = table_of(tmp_path / "t", stable=stable, indices=True)
    lance.dataset(str(table)).delete("a in (0, 11, 39)")
    done = agree(rebased_both_ways(table, act[0], between))
    assert done.rebased
    assert done.rows_deleted == act[1]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    "act", [delete("a >= 5 and a < 10"), update("a >= 5 and a < 10")], ids=["del", "upd"]
)
def test_a_fragment_of_which_both_leave_nothing_goes(tmp_path: Path, act: Act, *, stable: bool) -> None:
    table = table_of(tmp_path / "t", stable=stable)
    both = rebased_both_ways(table, act, delete("a < 5"))
    for made in (version_of(both.theirs).transaction, version_of(both.ours).transaction):
        assert made is not None
        operation = made.delete if made.HasField("delete") else made.update
        assert [fragment.id for fragment in operation.updated_fragments] == [0]
        assert [*made.delete.deleted_fragment_ids, *made.update.removed_fragment_ids] == [0]
    done = agree(both)
    assert done.rows_deleted == 5
    assert 0 not in [fragment.id for fragment in version_of(both.ours).manifest.fragments]


def test_the_joined_file_is_a_bitmap_named_by_the_newest_version_and_its_content(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    both = rebased_both_ways(table, delete("a in (1, 2)"), delete("a = 3"))
    agree(both)
    file = version_of(both.ours).manifest.fragments[0].deletion_file
    assert (file.file_type, file.read_version, file.num_deleted_rows) == (DeletionFile.BITMAP, 2, 3)
    (made,) = (both.ours / "_deletions").glob(f"0-2-{file.id}.bin")
    assert made.read_bytes() == encode_bitmap(Bitmap([1, 2, 3]))


@pytest.mark.parametrize("act", [delete("a in (1, 2)"), update("a in (1, 2)")], ids=["delete", "update"])
@pytest.mark.parametrize("between", [delete("a in (2, 3)"), update("a in (2, 3)")], ids=["delete", "update"])
def test_a_row_that_both_took_is_named(tmp_path: Path, act: Act, between: Act) -> None:
    table = table_of(tmp_path / "t")
    sent = built(table, act)
    between(lance.dataset(str(table)))
    (result,) = fold(owned(table), send(table, sent), 0)
    assert isinstance(result, Rejected)
    conflict = result.conflict
    assert (conflict.retryable, conflict.fragment_ids, conflict.row_addresses) == (True, (0,), (2,))
    made = lance.dataset(str(table)).read_transaction(2)
    assert made is not None
    assert (conflict.other_version, conflict.other_operation) == (2, type(made.operation).__name__.lower())
    assert "rows [2] of fragment 0" in conflict.message
    assert values(table) == values(table)


def test_rows_are_named_by_their_address(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    sent = built(table, delete("a in (1, 32, 35)"))
    lance.dataset(str(table)).delete("a in (35, 32)")
    (result,) = fold(owned(table), send(table, sent), 0)
    assert isinstance(result, Rejected)
    assert result.conflict.row_addresses == ((3 << 32) + 2, (3 << 32) + 5)


def test_without_affected_rows_a_shared_fragment_is_a_conflict(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    envelope, files = built(table, delete("a in (1, 2)"))
    envelope.affected_rows.clear()
    lance.dataset(str(table)).delete("a = 3")
    (result,) = fold(owned(table), send(table, (envelope, files)), 0)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert values(table) == [a for a in range(40) if a != 3]


def test_a_whole_fragment_of_which_rows_went_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    sent = built(table, delete("a < 10 or a = 15"))
    lance.dataset(str(table)).delete("a = 3")
    (result,) = fold(owned(table), send(table, sent), 0)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert result.conflict.fragment_ids == (0,)


WRONG = {
    "fewer": (Bitmap([1]), "differ in rows"),
    "others": (Bitmap([1, 2, 7]), "differ in rows"),
    "none": (Bitmap(), "differ in rows"),
    "beyond": (Bitmap([1, 2, 10]), "beyond their last row"),
}


@pytest.mark.parametrize("between", [None, delete("a = 3")], ids=["newest", "stale"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_affected_rows_that_contradict_the_file_are_invalid(
    tmp_path: Path, wrong: tuple[Bitmap, str], between: Act | None
) -> None:
    table = table_of(tmp_path / "t")
    envelope, files = built(table, delete("a in (1, 2)"))
    envelope.affected_rows[0] = encode_bitmap(wrong[0])
    if between is not None:
        between(lance.dataset(str(table)))
    (result,) = fold(owned(table), send(table, (envelope, files)), 0)
    assert isinstance(result, Invalid)
    assert wrong[1] in result.message


def test_affected_rows_of_other_fragments_are_invalid(tmp_path: Path) -> None:
    def change(envelope: Envelope) -> None:
        envelope.affected_rows[3] = encode_bitmap(Bitmap([1]))

    table = table_of(tmp_path / "t")
    both = rebased_both_ways(table, delete("a in (1, 2)"), delete("a = 25"), change)
    assert isinstance(both.result, Invalid)
    assert "fragments [3]" in both.result.message
