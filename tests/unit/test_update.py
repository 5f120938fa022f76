"""What is wrong with an Update, and what it does to rows, ids and versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.rowids_pb2 import RowIdSequence
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.rows.row_order import KEPT, ROW_ORDER
from lakefold_table.lance.rows.row_versions import decode_versions
from lakefold_table.lance.rows.rowids import decode_row_ids, encode_row_ids, row_id_range
from tests.changing import ROWS, MemoryRows
from tests.folding import add_fragment

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import DataFragment

Change = Callable[["Transaction.Update"], object]


@pytest.fixture
def table() -> MemoryRows:
    return MemoryRows()


@pytest.fixture
def stable() -> MemoryRows:
    return MemoryRows(stable=True)


def ids(*numbers: int) -> bytes:
    return encode_row_ids(np.array(numbers, dtype=np.uint64))


def lineage(fragment: DataFragment) -> tuple[list[int], list[int], list[int]]:
    """Row ids, the versions that made the rows, and those that changed them last."""
    rows = fragment.physical_rows
    return (
        decode_row_ids(fragment.inline_row_ids, rows).tolist(),
        decode_versions(fragment.inline_created_at_versions, rows).tolist(),
        decode_versions(fragment.inline_last_updated_at_versions, rows).tolist(),
    )


def test_rows_move_into_new_fragments(table: MemoryRows) -> None:
    (result,) = table.fold(table.update({0: [1, 2], 1: [3]}))
    assert result == Committed(3, rows_added=3, rows_deleted=3, first_fragment_id=3, num_fragment_ids=1)
    assert list(table.state.fragments.ids()) == [0, 1, 2, 3]


def test_files_that_others_have(table: MemoryRows) -> None:
    envelope = table.update({0: [1, 2]}, removed=[1], new=2)
    for location in (0, 1):
        envelope.lance.update.new_fragments[location].files[0].path = "same"
    same = table.fold(envelope)
    envelope.lance.update.new_fragments[0].files[0].path = "first-0.lance"
    old = table.fold(envelope)
    for result in (*same, *old):
        assert isinstance(result, Invalid)
        assert "its rows would be in the table twice" in result.message


def test_moved_rows_keep_their_ids_and_what_made_them(stable: MemoryRows) -> None:
    envelope = stable.update({0: [1, 2], 1: [3]})
    envelope.lance.update.new_fragments[0].inline_row_ids = ids(13, 1, 2)
    stable.fold(stable.append())
    stable.fold(envelope)
    assert lineage(stable.fragment(4)) == ([13, 1, 2], [2, 2, 2], [4, 4, 4])
    assert stable.state.head.next_row_id == 33


def test_a_row_that_moves_again_keeps_what_made_it(stable: MemoryRows) -> None:
    first = stable.update({0: [1, 2], 1: [3]})
    first.lance.update.new_fragments[0].inline_row_ids = ids(1, 2, 13)
    stable.fold(first)
    second = stable.update({3: [0]}, removed=[2])
    second.lance.update.new_fragments[0].inline_row_ids = ids(29, 1)
    stable.fold(second)
    assert lineage(stable.fragment(4)) == ([29, 1, 30], [2, 2, 4], [4, 4, 4])
    assert stable.state.head.next_row_id == 31


def test_rows_without_ids_get_the_next_ones_in_order(stable: MemoryRows) -> None:
    envelope = stable.update({0: [1, 2]}, new=3)
    envelope.lance.update.new_fragments[1].inline_row_ids = ids(2, 1)
    stable.fold(envelope)
    assert lineage(stable.fragment(3)) == ([30, 31, 32], [3, 3, 3], [3, 3, 3])
    assert lineage(stable.fragment(4)) == ([2, 1, 33], [2, 2, 3], [3, 3, 3])
    assert lineage(stable.fragment(5)) == ([34, 35, 36], [3, 3, 3], [3, 3, 3])
    assert stable.state.head.next_row_id == 37
    stable.fold(stable.append())
    assert lineage(stable.fragment(6))[0] == [37, 38, 39]


BROUGHT: dict[str, tuple[bytes, str]] = {
    "of no row": (ids(1, 2, 99), "has row ids [99]"),
    "of a row that stays": (ids(1, 2, 3), "has row ids [3]"),
    "twice": (ids(1, 2, 1), "a row id twice"),
    "too many": (row_id_range(0, 4), "has 4 row ids"),
    "damaged": (b"\xff\xff", "row ids of a new fragment"),
    "without end": (row_id_range(0, 2**63), "has 9223372036854775808 row ids"),
}


@pytest.mark.parametrize(("data", "message"), BROUGHT.values(), ids=BROUGHT)
def test_row_ids_that_are_brought_are_those_of_moved_rows(
    stable: MemoryRows, data: bytes, message: str
) -> None:
    envelope = stable.update({0: [1, 2]})
    envelope.lance.update.new_fragments[0].inline_row_ids = data
    (result,) = stable.fold(envelope)
    assert isinstance(result, Invalid)
    assert message in result.message
    assert result.hint
    assert list(stable.state.fragments.ids()) == [0, 1, 2]


def test_a_row_id_may_not_come_back(stable: MemoryRows) -> None:
    stable.fold(stable.delete({0: [1]}))
    envelope = stable.update({0: [2]})
    envelope.lance.update.new_fragments[0].inline_row_ids = ids(1, 2)
    (result,) = stable.fold(envelope)
    assert isinstance(result, Invalid)
    assert "has row ids [1]" in result.message


def test_a_row_that_another_deleted_meanwhile_does_not_come_back(stable: MemoryRows) -> None:
    envelope = stable.update({0: [1, 2]})
    envelope.lance.update.new_fragments[0].inline_row_ids = ids(1, 2)
    stable.fold(stable.delete({0: [2, 5]}))
    (result,) = stable.fold(envelope)
    assert isinstance(result, Rejected)
    assert result.conflict.row_addresses == (2,)


def test_if_rows_have_no_ids_a_proposal_may_bring_none(table: MemoryRows) -> None:
    envelope = table.update({0: [1, 2]})
    envelope.lance.update.new_fragments[0].inline_row_ids = ids(1, 2)
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert "row ids" in result.message


def rewrite(table: MemoryRows, number: int = 0) -> Envelope:
    """An Update that writes the column `s` (id 1) of a fragment again."""
    envelope = table.update({}, names_rows=False, new=0)
    update = envelope.lance.update
    fragment = update.updated_fragments.add()
    fragment.CopyFrom(table.fragment(number))
    fragment.files[-1].fields[-1] = -2
    fragment.files.add(
        path=f"{envelope.lance.uuid}.lance",
        fields=[1],
        column_indices=[0],
        file_major_version=2,
        file_minor_version=2,
        file_size_bytes=100,
    )
    update.fields_modified.append(1)
    update.update_mode = Transaction.REWRITE_COLUMNS
    return envelope


def test_a_column_is_written_again(table: MemoryRows) -> None:
    (result,) = table.fold(rewrite(table))
    assert result == Committed(3)
    assert [list(file.fields) for file in table.fragment(0).files] == [[0, -2], [1]]
    table.fold(rewrite(table))
    assert [list(file.fields) for file in table.fragment(0).files] == [[0, -2], [1]]


@pytest.mark.parametrize("moved", [[], [2]], ids=["only columns", "rows too"])
def test_a_column_written_again_is_not_lost_in_a_compaction_meanwhile(
    table: MemoryRows, moved: list[int]
) -> None:
    """The mode may be that of rows: so it is in pylance if the caller of `update_columns` names none."""
    envelope = table.update({number: [1, 2, 3] for number in moved}, new=len(moved))
    columns = rewrite(table).lance.update
    envelope.affected_rows[0] = encode_bitmap(Bitmap())
    envelope.lance.update.updated_fragments.extend(columns.updated_fragments)
    envelope.lance.update.fields_modified.extend(columns.fields_modified)
    compaction = table.append()
    group = compaction.lance.rewrite.groups.add(old_fragments=map(table.fragment, (0, 1)))
    add_fragment(group.new_fragments.add(), "compacted", 2 * ROWS)
    compaction.lance.transaction_properties[ROW_ORDER] = KEPT
    (result,) = table.fold(compaction)
    assert isinstance(result, Committed)
    (result,) = table.fold(envelope)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert "writes columns of it again (fragments [0])" in result.conflict.message


def test_rows_whose_values_changed_have_the_version(stable: MemoryRows) -> None:
    envelope = rewrite(stable)
    envelope.lance.update.updated_fragment_offset_bitmaps[0] = encode_bitmap(Bitmap([1, 9]))
    envelope.lance.update.updated_fragment_offsets[0].values.append(2)
    stable.fold(envelope)
    assert lineage(stable.fragment(0))[2] == [2, 3, 3, 2, 2, 2, 2, 2, 2, 3]
    stable.fold(rewrite(stable))
    assert lineage(stable.fragment(0))[2] == [2, 3, 3, 2, 2, 2, 2, 2, 2, 3]


def of_file(change: Callable[[DataFragment], object]) -> Change:
    return lambda update: change(update.updated_fragments[0])


COLUMNS: dict[str, tuple[Change, str]] = {
    "fields not named": (lambda update: update.ClearField("fields_modified"), "written again, but not in"),
    "no field": (lambda update: update.fields_modified.append(9), "the update names fields [9]"),
    "no field kept": (
        lambda update: update.fields_for_preserving_frag_bitmap.append(8),
        "the update names fields [8]",
    ),
    "lost": (of_file(lambda fragment: fragment.files.pop(0)), "fields [0] of fragment 0 are in none"),
    "twice": (
        of_file(lambda fragment: fragment.files[0].fields.__setitem__(1, 1)),
        "are in fragment 0 twice",
    ),
    "changed": (
        of_file(lambda fragment: fragment.files[0].fields.__setitem__(0, 1)),
        "differs from its entry",
    ),
    "moved": (
        of_file(lambda fragment: fragment.files[0].column_indices.__setitem__(0, 5)),
        "differs from its entry",
    ),
    "longer": (of_file(lambda fragment: fragment.files[0].fields.append(0)), "differs from its entry"),
    "outside": (of_file(lambda fragment: setattr(fragment.files[1], "path", "../x")), "leaves its base"),
    "base": (of_file(lambda fragment: setattr(fragment.files[1], "base_id", 3)), "base 3"),
    "unknown": (
        of_file(lambda fragment: fragment.files[1].fields.__setitem__(0, 7)),
        "field ids [7] are not",
    ),
    "index": (
        of_file(lambda fragment: fragment.files[1].ClearField("column_indices")),
        "have 0 column indices",
    ),
    "version": (
        of_file(lambda fragment: setattr(fragment.files[1], "file_minor_version", 99)),
        "is not known",
    ),
    "rows": (of_file(lambda fragment: setattr(fragment, "physical_rows", 11)), "has 10 rows"),
    "offsets elsewhere": (
        lambda update: update.updated_fragment_offset_bitmaps.__setitem__(1, encode_bitmap(Bitmap([1]))),
        "listed for fragments [1]",
    ),
    "offsets beyond": (
        lambda update: update.updated_fragment_offset_bitmaps.__setitem__(0, encode_bitmap(Bitmap([10]))),
        "beyond their last row",
    ),
    "offsets damaged": (
        lambda update: update.updated_fragment_offset_bitmaps.__setitem__(0, b"x"),
        "not a well-formed bitmap",
    ),
}


@pytest.mark.parametrize(("change", "message"), COLUMNS.values(), ids=COLUMNS)
def test_what_is_wrong_with_columns_written_again(table: MemoryRows, change: Change, message: str) -> None:
    envelope = rewrite(table)
    change(envelope.lance.update)
    (result,) = table.fold(envelope)
    assert isinstance(result, Invalid)
    assert message in result.message
    assert result.hint


def test_columns_are_not_written_again_for_rows_that_were_removed_meanwhile(table: MemoryRows) -> None:
    envelope = rewrite(table)
    table.fold(table.delete({0: [1]}))
    (result,) = table.fold(envelope)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable


def test_a_sequence_of_several_parts_that_is_completed_becomes_one(stable: MemoryRows) -> None:
    envelope = stable.update({0: [1, 5]})
    sequence = RowIdSequence.FromString(ids(1))
    sequence.MergeFromString(ids(5))
    envelope.lance.update.new_fragments[0].inline_row_ids = sequence.SerializeToString()
    stable.fold(envelope)
    assert stable.fragment(3).inline_row_ids == ids(1, 5, 30)


def test_an_update_of_columns_and_rows_is_checked_for_both(stable: MemoryRows) -> None:
    envelope = rewrite(stable)
    update = envelope.lance.update
    update.updated_fragments[0].deletion_file.CopyFrom(stable.without(0, [4]).deletion_file)
    (result,) = stable.fold(envelope)
    assert result == Committed(3, rows_deleted=1)
    assert list(stable.deleted(0)) == [4]
    assert len(stable.fragment(0).files) == 2


def test_updates_share_a_version(stable: MemoryRows) -> None:
    several = [stable.update({0: [row], 1: [row]}) for row in range(3)]
    for row, envelope in enumerate(several):
        envelope.lance.update.new_fragments[0].inline_row_ids = ids(row, 10 + row)
        envelope.lance.update.fields_for_preserving_frag_bitmap.append(row % 2)
    results = stable.fold(*several)
    assert results == [
        Committed(3, rows_added=3, rows_deleted=2, first_fragment_id=3 + number, num_fragment_ids=1)
        for number in range(3)
    ]
    assert [lineage(stable.fragment(3 + number))[0] for number in range(3)] == [
        [0, 10, 30],
        [1, 11, 31],
        [2, 12, 32],
    ]
    made = stable.state.transaction
    assert made is not None
    assert [fragment.id for fragment in made.update.updated_fragments] == [0, 1]
    assert made.update.updated_fragments[1] == stable.fragment(1)
    assert [fragment.inline_row_ids for fragment in made.update.new_fragments] == [
        ids(n, 10 + n) for n in range(3)
    ]
    assert list(made.update.fields_for_preserving_frag_bitmap) == [0, 1]
    assert stable.state.head.next_row_id == 33


def test_a_row_moves_once_by_updates_that_share_a_version(stable: MemoryRows) -> None:
    several = [stable.update({0: [row, row + 1]}) for row in (0, 1, 2)]
    for row, envelope in enumerate(several):
        envelope.lance.update.new_fragments[0].inline_row_ids = ids(row, row + 1)
    first, second, third = stable.fold(*several)
    assert isinstance(first, Committed)
    assert isinstance(second, Rejected)
    assert second.conflict.row_addresses == (1,)
    assert isinstance(third, Committed)
    assert list(stable.deleted(0)) == [0, 1, 2, 3]


def test_a_fragment_can_go_by_updates_that_share_a_version(table: MemoryRows) -> None:
    several = [table.update({0: range(5)}), table.update({0: range(5, 10)}), table.update({}, removed=[1])]
    assert [type(result) for result in table.fold(*several)] == [Committed] * 3
    made = table.state.transaction
    assert made is not None
    assert list(made.update.removed_fragment_ids) == [0, 1]
    assert not made.update.updated_fragments
    assert list(table.state.fragments.ids()) == [2, 3, 4, 5]


def test_a_schema_that_was_changed_meanwhile_is_checked_for_an_update_with_named_rows(
    table: MemoryRows,
) -> None:
    envelope = table.update({0: [1, 2]})
    table.fold(table.delete({0: [5]}))
    project = Envelope(table=table.uri)
    project.lance.uuid, project.lance.read_version = "project", table.version
    project.lance.project.schema.extend(table.state.schema)
    project.lance.project.preserves_nullability = True
    table.fold(project)
    (result,) = table.fold(envelope)
    assert result == Committed(
        5, rebased=True, rows_added=3, rows_deleted=2, first_fragment_id=3, num_fragment_ids=1
    )


def test_rows_affected_by_columns_written_again_are_not_treated_as_deleted(table: MemoryRows) -> None:
    envelope = rewrite(table)
    envelope.affected_rows[0] = encode_bitmap(Bitmap([1, 2]))
    stale = rewrite(table, 1)
    stale.affected_rows[1] = encode_bitmap(Bitmap([3]))
    assert table.fold(envelope) == [Committed(3)]
    table.fold(table.delete({1: [5]}))
    (result,) = table.fold(stale)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
