"""Which entries share a version: those the format allows, up to the limits, in the log's order."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakefold_committer.fold.grouping import GroupEnd, Limits, end_of, first_group
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import IndexMetadata, IndexSection
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.lance.state import LanceState
from tests.folding import append, changed, created, creation, entries, groups_of, reserve

MANY = Limits(1000, 10**9)


def groups(
    envelopes: list[Envelope], limits: Limits = MANY, state: LanceState | None = None
) -> list[list[int]]:
    """The offsets of each group."""
    cut = groups_of(entries(envelopes, 0), LanceFormat(), limits, state)
    return [[entry.position.offset for entry in group] for group in cut]


def tagged() -> Envelope:
    return changed(append(), lambda e: setattr(e.lance, "tag", "t"))


def with_property() -> Envelope:
    return changed(append(), lambda e: e.lance.transaction_properties.update({"mine": "1"}))


def with_id() -> Envelope:
    return changed(append(), lambda e: setattr(e.lance.append.fragments[0], "id", 9))


def test_appends_share_a_version() -> None:
    assert groups([append()] * 5) == [[0, 1, 2, 3, 4]]
    assert groups([append(fragments=0), append(fragments=4), append(app="a", batch=1)]) == [[0, 1, 2]]
    assert groups([]) == []


@pytest.mark.parametrize("alone", [tagged(), with_property(), with_id(), creation(), reserve(1)])
def test_others_go_alone(alone: Envelope) -> None:
    assert groups([alone]) == [[0]]
    assert groups([append(), append(), alone, append()]) == [[0, 1], [2], [3]]
    assert groups([alone, alone, append()]) == [[0], [1], [2]]


def deletes(envelope: Envelope) -> None:
    envelope.lance.delete.deleted_fragment_ids.append(0)


def updates(envelope: Envelope) -> None:
    envelope.lance.update.removed_fragment_ids.append(0)


def inserts(envelope: Envelope) -> None:
    envelope.lance.update.new_fragments.add()


def with_log() -> LanceState:
    """A table whose rows come through a write-ahead log, too."""
    section = IndexSection(indices=[IndexMetadata(name=MEM_WAL)]).SerializeToString()
    return replace(created().state, index_section=section)


def test_appends_deletes_and_updates_of_rows_share_a_version() -> None:
    d, u, i = (changed(append(), change) for change in (deletes, updates, inserts))
    mixed = [d, d, u, append(), u, i, Envelope(), i, append(), d]
    assert groups(mixed) == [list(range(10))]
    assert groups(mixed, state=created().state) == [list(range(10))]


def test_beside_a_write_ahead_log_only_entries_of_one_kind_do() -> None:
    d, u, i = (changed(append(), change) for change in (deletes, updates, inserts))
    alike = [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups([d, d, u, u, i, i, append(), append()], state=with_log()) == alike
    assert groups([d, u, d, Envelope(), u], state=with_log()) == [[0], [1], [2, 3], [4]]


SAYS_MORE: list[Callable[[Envelope], object]] = [
    lambda e: setattr(e.lance, "tag", "t"),
    lambda e: setattr(e.lance.update, "update_mode", Transaction.REWRITE_COLUMNS),
    lambda e: e.lance.update.fields_modified.append(1),
    lambda e: e.lance.update.inserted_rows.SetInParent(),
    lambda e: e.lance.update.compacted_sstables.add(),
    lambda e: e.lance.update.updated_fragment_offset_bitmaps.update({0: b""}),
    lambda e: e.lance.update.updated_fragment_offsets[0].SetInParent(),
    lambda e: e.lance.update.new_fragments.add(id=7),
]


@pytest.mark.parametrize("more", SAYS_MORE)
def test_an_update_that_says_more_goes_alone(more: Callable[[Envelope], object]) -> None:
    plain = changed(append(), updates)
    alone = changed(plain, more)
    assert groups([plain, plain, alone, plain, plain]) == [[0, 1], [2], [3, 4]]


def test_the_first_group_is_what_waits_as_far_as_it_shares() -> None:
    waiting = entries([append(), changed(append(), deletes), tagged(), append()], 0)
    assert first_group(waiting, LanceFormat(), MANY, None) == waiting[:2]
    assert first_group(waiting, LanceFormat(), MANY, with_log()) == waiting[:1]
    assert first_group(waiting, LanceFormat(), Limits(1, 10**9), None) == waiting[:1]
    assert first_group(waiting[:2], LanceFormat(), None, None) == waiting[:2]
    assert first_group([], LanceFormat(), MANY, None) == []


def test_what_is_refused_anyway_rides_along() -> None:
    unbuilt, nothing = changed(append(), lambda e: e.lance.data_overlay.SetInParent()), Envelope()
    assert groups([append(), unbuilt, nothing, append()]) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [[0], [1], [2]]), (2, [[0, 1], [2]]), (3, [[0, 1, 2]]), (4, [[0, 1, 2]])]
)
def test_a_group_is_full_by_its_number(most: int, expected: list[list[int]]) -> None:
    assert groups([append()] * 3, Limits(most, 10**9)) == expected


@pytest.mark.parametrize(("room", "expected"), [(3, [[0, 1, 2]]), (2, [[0, 1], [2]]), (1, [[0], [1], [2]])])
def test_a_group_is_full_by_its_size(room: int, expected: list[list[int]]) -> None:
    size = append().ByteSize()
    assert groups([append()] * 3, Limits(100, room * size)) == expected
    assert groups([append()] * 3, Limits(100, room * size + size - 1)) == expected


def test_an_entry_larger_than_the_limit_still_gets_its_group() -> None:
    big = append(fragments=50)
    assert groups([append(), big, append()], Limits(100, append().ByteSize())) == [[0], [1], [2]]
    assert groups([big], Limits(1, 1)) == [[0]]


def test_counting_begins_again_after_an_entry_that_goes_alone() -> None:
    assert groups([append(), tagged(), append(), append()], Limits(2, 10**9)) == [[0], [1], [2, 3]]


@pytest.mark.parametrize(
    ("limits", "waited", "end"),
    [
        (Limits(2, 10**9), None, GroupEnd.ENTRIES),
        (Limits(9, 10), None, GroupEnd.BYTES),
        (MANY, None, GroupEnd.NONE),
        (MANY, GroupEnd.BUDGET, GroupEnd.BUDGET),
        (Limits(2, 10**9), GroupEnd.DELAY, GroupEnd.ENTRIES),
    ],
)
def test_the_limit_at_work_is_named(limits: Limits, waited: GroupEnd | None, end: GroupEnd) -> None:
    waiting = entries([append()] * 3, 0)
    group = first_group(waiting, LanceFormat(), limits, None)
    following = waiting[len(group)] if len(group) < len(waiting) else None
    assert end_of(group, following, limits, waited) is end


def test_an_entry_that_can_not_join_ends_a_group_by_the_format() -> None:
    waiting = entries([append(), tagged()], 0)
    group = first_group(waiting, LanceFormat(), MANY, None)
    assert end_of(group, waiting[len(group)], MANY, None) is GroupEnd.FORMAT
