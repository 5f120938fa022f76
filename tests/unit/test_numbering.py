"""New fragments and rows get the ids that pylance would give them (Lance facts 6.1 and 7.2)."""

import pytest

from lakefold_protos.lance.rowids_pb2 import RowDatasetVersionSequence, RowIdSequence
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.rows.numbering import MAX_FRAGMENT_ID, MAX_STEP, Numbering
from lakefold_table.wire import varint


def live(*ids: int) -> Fragments:
    return Fragments().added(
        [Numbered(number, DataFragment(id=number, physical_rows=3).SerializeToString(), 3) for number in ids]
    )


def proposed(*ids: int) -> list[DataFragment]:
    return [DataFragment(id=number, physical_rows=3) for number in ids]


def numbered(numbering: Numbering, *ids: int) -> list[int]:
    fragments = proposed(*ids)
    assert numbering.fault(fragments) is None
    given = numbering.number(fragments, [fragment.SerializeToString() for fragment in fragments], 9)
    assert [DataFragment.FromString(fragment.encoded).id for fragment in given] == [
        fragment.id for fragment in given
    ]
    return [fragment.id for fragment in given]


@pytest.mark.parametrize(
    ("ids", "max_id", "given", "highest"),
    [
        ((), None, [], None),
        ((0,), None, [0], 0),
        ((0, 0), 0, [1, 2], 2),
        ((7, 0), 0, [7, 1], 7),
        ((0, 7), 0, [1, 7], 7),
        ((5, 3), 0, [5, 3], 5),
        ((0, 3, 0), 0, [1, 3, 2], 3),
        ((0, 0), 127, [128, 129], 129),
        ((0,), 2**31, [2**31 + 1], 2**31 + 1),
        ((MAX_STEP, 0), 0, [MAX_STEP, 1], MAX_STEP),
        ((MAX_FRAGMENT_ID, 0), MAX_FRAGMENT_ID - 9, [MAX_FRAGMENT_ID, MAX_FRAGMENT_ID - 8], MAX_FRAGMENT_ID),
    ],
)
def test_ids(ids: tuple[int, ...], max_id: int | None, given: list[int], highest: int | None) -> None:
    numbering = Numbering(Fragments(), max_id, 0, stable=False)
    assert numbered(numbering, *ids) == given
    assert numbering.max_id == highest


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ((0, 5), "[5]"),
        ((5, 0), "[5]"),
        ((0, 0, 6), "[6]"),
        ((9, 9), "[9]"),
        ((2,), "[2]"),
        ((3, 4), "[4]"),
        ((5 + MAX_STEP + 1,), "[16777222]"),
        ((2**32 - 1,), "[4294967295]"),
        ((2**64 - 1,), "[18446744073709551615]"),
    ],
)
def test_ids_that_are_not_free_are_refused(ids: tuple[int, ...], text: str) -> None:
    fault = Numbering(live(2, 4), 4, 0, stable=False).fault(proposed(*ids))
    assert fault is not None
    assert fault.hint == "set the ids to 0: they are assigned when the proposal is folded"
    assert text in fault.message


def test_ids_continue_after_the_live_ones_if_the_manifest_names_no_highest() -> None:
    assert numbered(Numbering(live(2, 4), None, 0, stable=False), 0) == [5]
    assert numbered(Numbering(live(2, 4), 1, 0, stable=False), 0) == [5]


def test_the_ids_end() -> None:
    numbering = Numbering(Fragments(), MAX_FRAGMENT_ID - 2, 0, stable=False)
    assert numbering.fault(proposed(0, 0)) is None
    fault = numbering.fault(proposed(0, 0, 0))
    assert fault is not None
    assert "no fragment ids left" in fault.message
    assert numbering.fault(proposed(0, 0, 5)) is None
    last = numbering.fault(proposed(0, 2**32 - 1))
    assert last is not None
    assert f"above {MAX_FRAGMENT_ID}" in last.message
    assert numbering.reserve_fault(2) is None
    assert numbering.reserve_fault(3) is not None
    assert numbered(numbering, 0, 0) == [MAX_FRAGMENT_ID - 1, MAX_FRAGMENT_ID]
    assert numbering.fault(proposed(0)) is not None
    assert numbering.fault(proposed()) is None
    assert numbering.reserve_fault(1) is not None


def test_reserved_ids_are_not_given_again() -> None:
    numbering = Numbering(live(0), 0, 0, stable=False)
    assert numbering.reserve_fault(0) is not None
    assert numbering.reserve(10) == 1
    assert numbering.max_id == 10
    assert numbering.fault(proposed(4)) is None
    assert numbered(numbering, 0, 4) == [11, 4]


def test_row_ids_follow_the_order_of_the_proposal() -> None:
    numbering = Numbering(live(0), 0, 3, stable=True)
    fragments = proposed(7, 0)
    given = numbering.number(fragments, [fragment.SerializeToString() for fragment in fragments], 9)
    ranges = []
    for each in given:
        fragment = DataFragment.FromString(each.encoded)
        (segment,) = RowIdSequence.FromString(fragment.inline_row_ids).segments
        ranges.append((fragment.id, segment.range.start, segment.range.end))
        for versions in (fragment.inline_created_at_versions, fragment.inline_last_updated_at_versions):
            (run,) = RowDatasetVersionSequence.FromString(versions).runs
            assert (run.version, run.span.range.start, run.span.range.end) == (9, 0, 3)
    assert ranges == [(7, 3, 6), (1, 6, 9)]
    assert numbering.next_row_id == 9
    assert numbering.first_ids == (1, 3)


def test_the_row_ids_end() -> None:
    assert Numbering(live(), None, 2**64 - 5, stable=True).fault(proposed(0)) is None
    fault = Numbering(live(), None, 2**64 - 3, stable=True).fault(proposed(0))
    assert fault is not None
    assert "no row ids left" in fault.message
    assert Numbering(live(), None, 2**64 - 1, stable=False).fault(proposed(0)) is None


@pytest.mark.parametrize("number", [1, 127, 128, 300, 2**14 - 1, 2**14, 2**32 - 1, 2**64 - 1])
def test_numbers_are_written_as_protobuf_does(number: int) -> None:
    assert b"\x08" + varint(number) == DataFragment(id=number).SerializeToString()
