"""What is wrong with a Delete, and what it does beside others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.rows.deletions import ARRAY, BITMAP, deletion_path
from tests.changing import MemoryRows
from tests.folding import fold_at, opened

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment

Change = Callable[["DataFragment"], object]
Delete = Callable[["Envelope"], object]


@pytest.fixture
def table() -> MemoryRows:
    return MemoryRows()


def test_rows_of_some_fragments_and_whole_ones_are_deleted(table: MemoryRows) -> None:
    (result,) = table.fold(table.delete({0: [1, 2]}, removed=[2]))
    assert result == Committed(3, rows_deleted=12)
    assert list(table.deleted(0)) == [1, 2]
    assert list(table.state.fragments.ids()) == [0, 1]


def test_rows_deleted_before_stay_deleted_and_are_not_counted(table: MemoryRows) -> None:
    table.fold(table.delete({0: [1, 2]}))
    (result,) = table.fold(table.delete({0: [1, 5]}, names_rows=False))
    assert result == Committed(4, rows_deleted=1)
    assert list(table.deleted(0)) == [1, 2, 5]
    (result,) = table.fold(table.delete({}, removed=[0], names_rows=False))
    assert result == Committed(5, rows_deleted=7)


def test_a_file_that_counts_nothing_is_counted(table: MemoryRows) -> None:
    envelope = table.delete({0: [1, 2]})
    envelope.lance.delete.updated_fragments[0].deletion_file.num_deleted_rows = 0
    (result,) = table.fold(envelope)
    assert result == Committed(3, rows_deleted=2)
    (result,) = table.fold(table.delete({}, removed=[0], names_rows=False))
    assert result == Committed(4, rows_deleted=8)


def file(**changes: object) -> Change:
    def change(fragment: DataFragment) -> None:
        for name, value in changes.items():
            setattr(fragment.deletion_file, name, value)

    return change


REFUSED: dict[str, tuple[Change, str, str]] = {
    "not there": (
        lambda fragment: setattr(fragment, "id", 7),
        "fragments [7] are not in the table",
        "that was read",
    ),
    "other rows": (
        lambda fragment: setattr(fragment, "physical_rows", 9),
        "has 10 rows in the table, not 9",
        "use",
    ),
    "other path": (
        lambda fragment: setattr(fragment.files[0], "path", "x.lance"),
        "other data files",
        "no data file",
    ),
    "another file": (lambda fragment: fragment.files.add(path="x.lance"), "other data files", "no data file"),
    "row ids": (
        lambda fragment: setattr(fragment, "inline_row_ids", b"\n\x04\n\x02\x10\n"),
        "other row ids",
        "never",
    ),
    "overlay": (lambda fragment: fragment.overlays.add(), "must not add overlays", "DataOverlay"),
    "no file": (
        lambda fragment: fragment.ClearField("deletion_file"),
        "differ in rows [1, 2]",
        "affected rows are",
    ),
    "missing file": (file(id=99), "is missing or too large", "write the file before"),
    "other kind": (file(file_type=ARRAY), "is missing", "write the file before"),
    "other count": (
        file(num_deleted_rows=3),
        "the file has 2 deleted rows, its fragment claims 3",
        "write the file",
    ),
    "base": (
        file(base_id=4),
        "the kind or the base of the deletion file is unknown",
        "write the file before",
    ),
}


@pytest.mark.parametrize(("change", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_with_a_fragment(table: MemoryRows, change: Change, message: str, hint: str) -> None:
    envelope = table.delete({0: [1, 2]})
    change(envelope.lance.delete.updated_fragments[0])
    before = table.state.fragments
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert message in result.message
    assert hint in result.hint
    assert table.state.fragments.get([0, 1, 2]) == before.get([0, 1, 2])


def test_a_delete_of_nothing_leaves_the_joined_file_of_those_before_it(table: MemoryRows) -> None:
    some, others, none = table.delete({0: [1]}), table.delete({0: [2]}), table.delete({0: []})
    assert table.fold(some, others, none) == [
        Committed(3, rows_deleted=1),
        Committed(3, rebased=False, rows_deleted=1),
        Committed(3),
    ]
    assert list(table.deleted(0)) == [1, 2]


def test_more_fragments_than_there_ever_were_are_not_looked_up(table: MemoryRows) -> None:
    envelope = table.delete({})
    envelope.lance.delete.deleted_fragment_ids.extend(range(7))
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert result.message == "the transaction names 7 fragments, but the table never had more than 3"
    (result,) = table.fold(table.delete({0: [1]}, removed=[2]))
    assert isinstance(result, Committed)


def test_a_fragment_may_be_listed_once(table: MemoryRows) -> None:
    envelope = table.delete({0: [1]}, names_rows=False)
    envelope.lance.delete.updated_fragments.append(envelope.lance.delete.updated_fragments[0])
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert "updated twice" in result.message


def test_rows_never_come_back(table: MemoryRows) -> None:
    table.fold(table.delete({0: [1, 2, 3]}))
    envelope = table.delete({}, names_rows=False)
    envelope.lance.delete.updated_fragments.append(table.without(0, [5], also=[1]))
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert "rows [2, 3] of fragment 0 are deleted in the table" in result.message
    envelope.lance.uuid = "none"
    envelope.lance.delete.updated_fragments[0].ClearField("deletion_file")
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert "rows [1, 2, 3] of fragment 0" in result.message


def test_a_fragment_of_which_nothing_is_left_is_removed(table: MemoryRows) -> None:
    (result,) = table.fold(table.delete({0: range(10)}))
    assert isinstance(result, Invalid)
    assert "removed fragments" in result.hint
    (result,) = table.fold(table.delete({0: range(10)}, removed=[0]))
    assert isinstance(result, Committed)
    assert result.rows_deleted == 10


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "can't be used"), (b"nonsense", "can't be used"), (b"\x3b\x30\xff\xff", "can't be used")],
)
def test_a_file_that_is_none_is_invalid(table: MemoryRows, data: bytes, message: str) -> None:
    envelope = table.delete({0: [1, 2]})
    proposed = envelope.lance.delete.updated_fragments[0]
    proposed.deletion_file.CopyFrom(DeletionFile(file_type=BITMAP, read_version=2, id=1000))
    table.storage.put_if_absent(deletion_path(0, proposed.deletion_file), [data])
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert message in result.message


def test_a_file_larger_than_any_of_its_kind_is_not_read(table: MemoryRows) -> None:
    envelope = table.delete({0: [1, 2]})
    proposed = envelope.lance.delete.updated_fragments[0]
    proposed.deletion_file.CopyFrom(DeletionFile(file_type=BITMAP, read_version=2, id=1000))
    table.storage.put_if_absent(deletion_path(0, proposed.deletion_file), [bytes(200_000)])
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert "missing or too large" in result.message


def test_a_file_of_the_table_that_is_gone_is_not_the_proposals_fault(table: MemoryRows) -> None:
    table.fold(table.delete({0: [1]}))
    envelope = table.delete({0: [2]})
    table.storage.delete(deletion_path(0, table.fragment(0).deletion_file))
    (result,) = table.fold(envelope)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert result.conflict.fragment_ids == (0,)
    assert "restore the file" in result.conflict.message


def test_deletes_of_other_rows_are_joined_one_after_the_other(table: MemoryRows) -> None:
    several = [table.delete({0: [row], 1: [row]}) for row in range(4)]
    for index, envelope in enumerate(several):
        (result,) = table.fold(envelope)
        assert result == Committed(3 + index, rebased=index > 0, rows_deleted=2)
    assert list(table.deleted(0)) == list(table.deleted(1)) == [0, 1, 2, 3]


def test_joined_deletes_that_leave_nothing_remove_the_fragment(table: MemoryRows) -> None:
    first, second = table.delete({0: range(5)}), table.delete({0: range(5, 10)})
    table.fold(first)
    (result,) = table.fold(second)
    assert result == Committed(4, rebased=True, rows_deleted=5)
    assert list(table.state.fragments.ids()) == [1, 2]
    made = table.state.transaction
    assert made is not None
    assert list(made.delete.deleted_fragment_ids) == [0]
    assert [fragment.id for fragment in made.delete.updated_fragments] == [0]


def test_a_row_that_both_deleted_is_named(table: MemoryRows) -> None:
    first, second = table.delete({1: [3, 4]}), table.delete({1: [4, 5]})
    table.fold(first)
    (result,) = table.fold(second)
    assert isinstance(result, Rejected)
    assert result.conflict.row_addresses == ((1 << 32) + 4,)
    assert table.deleted(1) == Bitmap([3, 4])


def test_a_joined_file_is_named_by_what_it_holds() -> None:
    names = []
    for _ in range(2):
        table = MemoryRows()
        first, second = table.delete({0: [1]}), table.delete({0: [2]})
        table.fold(first)
        table.fold(second)
        names.append(table.fragment(0).deletion_file.id)
    assert names[0] == names[1]


def test_deletes_share_a_version(table: MemoryRows) -> None:
    several = [table.delete({0: [row], 1: [9 - row]}) for row in range(4)]
    several.append(table.delete({0: [8]}, removed=[2]))
    results = table.fold(*several)
    assert results == [Committed(3, rows_deleted=2)] * 4 + [Committed(3, rows_deleted=11)]
    assert (list(table.deleted(0)), list(table.deleted(1))) == ([0, 1, 2, 3, 8], [6, 7, 8, 9])
    made = table.state.transaction
    assert made is not None
    assert [fragment.id for fragment in made.delete.updated_fragments] == [0, 1]
    assert made.delete.updated_fragments[0] == table.fragment(0)
    assert list(made.delete.deleted_fragment_ids) == [2]
    assert made.delete.predicate == "(some) OR (some) OR (some) OR (some) OR (some)"


def test_deletes_that_share_a_version_leave_one_file_a_fragment(table: MemoryRows) -> None:
    existing = {listed.path for listed in table.storage.list("_deletions/")}
    several = [table.delete({0: [row]}) for row in range(4)]
    proposed = {listed.path for listed in table.storage.list("_deletions/")} - existing
    table.fold(*several)
    made = {listed.path for listed in table.storage.list("_deletions/")} - existing - proposed
    assert made == {deletion_path(0, table.fragment(0).deletion_file)}


def test_a_row_is_removed_once_by_deletes_that_share_a_version(table: MemoryRows) -> None:
    several = [table.delete({0: [1, 2]}), table.delete({0: [2, 3]}), table.delete({0: [4]})]
    first, second, third = table.fold(*several)
    assert (first, third) == (Committed(3, rows_deleted=2), Committed(3, rows_deleted=1))
    assert isinstance(second, Rejected)
    assert (second.conflict.row_addresses, second.conflict.other_version) == ((2,), 3)
    assert second.conflict.other_operation == "delete"
    assert list(table.deleted(0)) == [1, 2, 4]


def test_deletes_that_share_a_version_can_leave_nothing_of_a_fragment(table: MemoryRows) -> None:
    several = [table.delete({0: range(5)}), table.delete({0: range(5, 10)}), table.delete({1: [1]})]
    assert [type(result) for result in table.fold(*several)] == [Committed] * 3
    assert list(table.state.fragments.ids()) == [1, 2]
    assert {listed.path for listed in table.storage.list("_deletions/") if "/0-" in listed.path} == {
        deletion_path(0, envelope.lance.delete.updated_fragments[0].deletion_file) for envelope in several[:2]
    }


def test_after_one_that_removed_the_fragment_the_next_is_a_conflict(table: MemoryRows) -> None:
    first, second = table.fold(table.delete({}, removed=[0]), table.delete({0: [1]}))
    assert isinstance(first, Committed)
    assert isinstance(second, Rejected)
    assert second.conflict.retryable


def test_a_delete_without_named_rows_conflicts_in_its_own_version_too(table: MemoryRows) -> None:
    first, second = table.fold(table.delete({0: [1]}), table.delete({0: [2]}, names_rows=False))
    assert isinstance(first, Committed)
    assert isinstance(second, Rejected)


def test_all_rows_of_a_removed_fragment_are_affected(table: MemoryRows) -> None:
    table.fold(table.delete({0: [1]}))
    envelope = table.delete({}, removed=[0])
    envelope.affected_rows[0] = encode_bitmap(Bitmap(range(2, 9)))
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert "affected rows are not all of its rows" in result.message
    (result,) = table.fold(table.delete({}, removed=[0]))
    assert result == Committed(4, rows_deleted=9)


def test_a_fragment_that_goes_without_a_word_on_its_rows_means_all_of_them(table: MemoryRows) -> None:
    envelope = table.delete({1: [1]}, removed=[0])
    del envelope.affected_rows[0]
    table.fold(table.delete({0: [7]}))
    (result,) = table.fold(envelope)
    assert isinstance(result, Rejected)
    assert (result.conflict.retryable, result.conflict.fragment_ids) == (True, (0,))


def test_a_late_committer_joins_to_the_same_file_and_gives_the_same_answer(table: MemoryRows) -> None:
    first, second = table.delete({0: [1]}), table.delete({0: [2]})
    table.fold(first)
    late = opened(table.uri)
    (done,) = table.outcomes(second)
    existing = {listed.path for listed in table.storage.list("_deletions/")}
    (again,) = fold_at(late, [second], table.offset - 1)
    assert again.result == done.result == Committed(4, rebased=True, rows_deleted=1)
    assert {listed.path for listed in table.storage.list("_deletions/")} == existing
    assert list(table.deleted(0)) == [1, 2]
