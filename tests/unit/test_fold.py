"""The fold: what becomes of entries, and what a version says of itself."""

import json
from dataclasses import replace

import pytest

from lakefold_committer.fold import keys
from lakefold_committer.fold.fold import FoldedTable, FoldInputs, fold
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.durations import LATEST_US
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.format import Fetched
from lakefold_table.marks.batches import MAX_RECENT_BATCHES, PLAIN_INTERVALS
from lakefold_table.marks.marks import MARK, RULES, table_id_of
from lakefold_table.marks.record import decode_record
from tests.folding import (
    FORMAT,
    LOG,
    SECOND,
    START_US,
    URI,
    MemoryTable,
    append,
    changed,
    created,
    creation,
    entries,
    entry,
    reserve,
    results,
)

BAD = changed(append("bad"), lambda e: setattr(e.lance, "read_version", 99))


def rows(version: int, first: int, *, rebased: bool = False, count: int = 1) -> Committed:
    return Committed(version, rebased, rows_added=3 * count, first_fragment_id=first, num_fragment_ids=count)


def test_appends_of_a_group_share_one_version() -> None:
    table = created()
    folded = table.fold(append("f"), append("g", fragments=2), append("h", fragments=0), append("i"))
    assert results(folded) == [rows(2, 0), rows(2, 1, count=2), Committed(2), rows(2, 3)]
    assert table.state.version == 2
    assert [fragment.files[0].path for fragment in table.state.fragments] == [
        f"{name}.lance" for name in ("f-0", "g-0", "g-1", "i-0")
    ]
    assert [fragment.id for fragment in table.state.fragments] == [0, 1, 2, 3]
    assert table.state.rows == 12


def test_an_append_on_an_older_version_is_rebased() -> None:
    table = created()
    table.fold(append("f"))
    assert table.result(append("g", read=1)) == rows(3, 1, rebased=True)
    assert table.result(append("h", read=3)) == rows(4, 2)


def test_a_duplicate_by_batch_and_by_uuid() -> None:
    table = created()
    table.fold(append("f", app="a", batch=5), append("u"))
    folded = table.fold(append("other", app="a", batch=5), append("u"), append("v"))
    assert results(folded) == [Duplicate(2), Duplicate(2), rows(3, 2, rebased=True)]
    assert table.state.rows == 9


def test_duplicates_within_one_group() -> None:
    table = created()
    folded = table.fold(
        append("u"), append("u"), append("x", app="a", batch=1), append("y", app="a", batch=1)
    )
    assert results(folded) == [rows(2, 0), Duplicate(2), rows(2, 1), Duplicate(2)]
    assert table.state.rows == 6


def test_a_batch_in_a_gap_is_folded() -> None:
    table = created()
    table.fold(append("one", app="a", batch=1), append("three", app="a", batch=3))
    assert table.result(append("two", app="a", batch=2)) == rows(3, 2, rebased=True)
    assert table.table.marks.apps["a"].intervals == ((1, 3),)


def test_a_refused_batch_may_be_sent_again() -> None:
    table = created()
    bad = changed(BAD, lambda e: setattr(e, "app_id", "a"))
    bad.batch_id = 1
    assert isinstance(table.result(bad), Invalid)
    assert table.result(append("good", app="a", batch=1)) == rows(2, 0)
    assert table.result(append("good", app="a", batch=1)) == Duplicate(2)


def test_a_batch_too_old_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "APP_BYTES", 0)
    table = created()
    table.fold(*[append(f"f{n}", app="a", batch=n) for n in range(0, 2 * PLAIN_INTERVALS + 2, 2)])
    table.fold(*[append(f"g{n}", app="a", batch=1000 + n) for n in range(MAX_RECENT_BATCHES)])
    refused = table.result(append("f0", app="a", batch=0))
    assert isinstance(refused, Invalid)
    assert "too old to check" in refused.message


def test_a_refused_entry_changes_nothing_and_takes_no_neighbour_with_it() -> None:
    table = created()
    bad_id = changed(append("id"), lambda e: setattr(e.lance.append.fragments[0], "id", 2**32))
    folded = table.fold(BAD, append("f"), reserve(0), append("g"), bad_id)
    kinds = [type(result) for result in results(folded)]
    assert kinds == [Invalid, Committed, Invalid, Committed, Invalid]
    assert [results(folded)[n] for n in (1, 3)] == [rows(2, 0), rows(2, 1)]
    assert table.state.head.max_fragment_id == 1
    assert [fragment.files[0].path for fragment in table.made.append.fragments] == ["f-0.lance", "g-0.lance"]
    assert set(dict(table.table.marks.uuids)) == {"creation", "f", "g"}


def test_a_group_of_refusals_makes_no_version() -> None:
    table = created()
    before = table.state
    folded = table.fold(BAD, append("creation"))
    assert folded.publication is None
    assert [type(result) for result in results(folded)] == [Invalid, Duplicate]
    assert table.state is before
    assert [outcome.result for outcome in table.table.pending] == results(folded)
    assert table.table.reported().pending == ()


def test_an_owner_that_has_not_published_makes_a_version_all_the_same() -> None:
    table = created()
    folded = table.fold(BAD, inputs=FoldInputs(epoch=5, must_publish=True))
    assert folded.publication is not None
    assert isinstance(results(folded)[0], Invalid)
    state = table.state
    assert state.version == 2
    assert state.fragments.count == 0
    assert state.transaction is not None
    assert state.transaction.WhichOneof("operation") == "reserve_fragments"
    assert state.transaction.reserve_fragments.num_fragments == 0
    assert table.table.marks.epoch == 5
    assert table.table.marks.position is not None
    assert table.table.marks.position.offset == 1


def test_no_version_is_made_if_no_table_exists() -> None:
    table = MemoryTable()
    folded = table.fold(append(), inputs=FoldInputs(epoch=1, must_publish=True))
    assert folded.publication is None
    assert table.table.state is None
    (refused,) = results(folded)
    assert isinstance(refused, Invalid)
    assert refused.message == f"there is no table at {URI}"
    assert "`create`" in refused.hint


@pytest.mark.parametrize(
    ("log_time", "expected"),
    [
        (START_US + 50 * SECOND, START_US + 50 * SECOND),
        (START_US, START_US + 1),
        (START_US - 1, START_US + 1),
        (START_US + 1, START_US + 1),
        (-1, START_US + 1),
        (2**70, LATEST_US),
    ],
)
def test_the_time_of_a_version_is_the_log_s_and_always_grows(log_time: int, expected: int) -> None:
    table = MemoryTable()
    table.fold_group([entry(creation(), 0, time_us=START_US)])
    assert table.state.time_us == START_US
    table.fold_group([entry(append("early"), 1, time_us=0), entry(append("last"), 2, time_us=log_time)])
    assert table.state.time_us == expected
    record = decode_record(table.state.properties)
    assert record is not None
    assert record.last_time_us == min(max(log_time, 0), LATEST_US)
    assert table.reopened().state.time_us == expected


def test_a_version_says_what_it_is_made_of() -> None:
    table = MemoryTable()
    table.fold_group(entries([creation()], 7))
    table.fold_group(entries([append("f", app="a", batch=4), BAD, append("g", app="a", batch=6)], 8))
    properties = table.state.properties
    identity = table_id_of(entry(creation(), 7).position)
    assert properties["lakefold.version"] == "2"
    assert properties["lakefold.table-id"] == identity == table.table.marks.table_id
    assert properties["lakefold.positions"] == "transactions/0@8-10"
    assert properties["lakefold.first-fragment-id"] == "0"
    assert properties["lakefold.first-row-id"] == "0"
    record = decode_record(properties)
    assert record is not None
    assert (record.log, record.first_offset, record.last_offset, record.base_version) == (LOG, 8, 10, 1)
    assert {offset: committed.first_fragment_id for offset, committed in record.committed.items()} == {
        8: 0,
        10: 1,
    }
    assert isinstance(record.refused[9].result, Invalid)
    assert [(batches.app_id, batches.first, batches.last, batches.count) for batches in record.apps] == [
        ("a", 4, 6, 2)
    ]
    assert (record.epoch, record.rules) == (1, RULES)


def test_marks_travel_with_the_version() -> None:
    table = created()
    table.fold(append("f", app="a", batch=1), append("u"))
    marks = json.loads(table.state.metadata[MARK])
    assert (marks["version"], marks["log"]["offset"], marks["epoch"]) == (2, 2, 1)
    assert marks["operations"] == {"append": 2, "overwrite": 1}
    assert table.reopened().table.marks == table.table.marks


def test_other_metadata_and_config_are_kept() -> None:
    table = created()
    state = table.state
    state.head.table_metadata["mine"] = "1"
    state.head.table_metadata["lakefold.old"] = "1"
    state.head.config["k"] = "v"
    table.fold(append())
    assert table.state.head.table_metadata["mine"] == "1"
    assert "lakefold.old" not in table.state.head.table_metadata
    assert dict(table.state.head.config) == {"k": "v"}


def test_a_single_entry_keeps_its_own_transaction() -> None:
    table = created()
    envelope = append("f")
    envelope.lance.tag = "release"
    envelope.lance.transaction_properties["mine"] = "1"
    table.fold(envelope)
    transaction = table.state.transaction
    assert transaction is not None
    assert (transaction.uuid, transaction.tag, transaction.transaction_properties["mine"]) == (
        "f",
        "release",
        "1",
    )
    assert table.state.head.tag == "release"
    table.fold(append("g", read=1))
    assert table.state.head.tag == ""
    assert table.state.transaction is not None
    assert table.state.transaction.read_version == 2


def test_a_merged_transaction_has_a_name_of_its_own() -> None:
    names = set()
    for epoch in (1, 2):
        table = created()
        table.fold(append("f"), append("g"), inputs=FoldInputs(epoch))
        assert table.state.transaction is not None
        names.add(table.state.transaction.uuid)
    assert len(names) == 2
    assert all(len(name) == 36 for name in names)


def test_reserved_ids_are_for_whoever_reserved_them() -> None:
    table = created()
    assert table.result(reserve(5)) == Committed(2, num_fragment_ids=5)
    assert table.state.head.max_fragment_id == 4
    assert table.result(append("f", read=2)) == rows(3, 5)
    given = changed(append("g", read=1), lambda e: setattr(e.lance.append.fragments[0], "id", 3))
    assert table.result(given) == rows(4, 3, rebased=True)
    assert [fragment.id for fragment in table.state.fragments] == [3, 5]
    taken = table.result(changed(given, lambda e: setattr(e.lance, "uuid", "h")))
    assert isinstance(taken, Invalid)
    assert "[3] are in use" in taken.message
    assert table.reopened().state.head.max_fragment_id == 5


def test_rows_keep_their_ids_for_life_if_the_table_says_so() -> None:
    table = created(stable_row_ids=True)
    table.fold(append("f"), append("g", fragments=2))
    table.fold(append("h"))
    assert table.state.head.next_row_id == 12
    assert table.state.properties["lakefold.first-row-id"] == "9"
    assert all(
        fragment.inline_row_ids and fragment.inline_created_at_versions for fragment in table.state.fragments
    )


def test_files_of_another_version_are_flagged_for_good() -> None:
    table = created()
    other = append("f")
    other.lance.append.fragments[0].files[0].file_minor_version = 1
    table.fold(other)
    assert (table.state.head.reader_feature_flags, table.state.head.writer_feature_flags) == (256, 256)
    assert table.state.head.data_format.version == "2.2"
    table.fold(append("g"))
    assert table.state.head.reader_feature_flags == 256


def test_an_entry_in_another_partition_is_nothing_to_the_table() -> None:
    """Else one stray message would bind the table to another partition and lose its position."""
    table = created()
    table.fold(append("f"))
    stray = entries([append("g"), append("creation")], 100, replace(LOG, partition=4))
    for inputs in (FoldInputs(1), FoldInputs(2, must_publish=True)):
        before = table.table
        folded = table.fold_group(stray, inputs)
        assert folded.publication is None
        assert folded.table == before
        for result in results(folded):
            assert isinstance(result, Invalid)
            assert result.message == "the table is bound to partition 0, this entry is in 4"
            assert "its marks name it" in result.hint


def test_a_table_of_another_client_is_folded_as_it_is() -> None:
    """It has no marks yet: its identity follows from the first entry folded into it."""
    made = created()
    head = made.state.head
    for key in list(head.table_metadata):
        del head.table_metadata[key]
    foreign = MemoryTable(FoldedTable(URI, replace(made.state, history=replace(made.state.history, since=1))))
    foreign.offset = 40
    assert foreign.result(append("f")) == rows(2, 0)
    assert foreign.table.marks.table_id == table_id_of(entry(append(), 40).position)


def test_files_on_the_way_to_the_next_version_are_named_once() -> None:
    needs = FORMAT.requirements(
        created().state, entries([append("f", fragments=2), append("f"), Envelope()], 0)
    )
    assert needs.sizes == {"data/f-0.lance", "data/f-1.lance"}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "", "a/../../b", "x" * 5000])
def test_a_path_that_leaves_the_table_is_not_even_asked_for(path: str) -> None:
    envelope = append("f")
    envelope.lance.append.fragments[0].files[0].path = path
    assert FORMAT.requirements(created().state, entries([envelope], 0)).sizes == frozenset()


def test_files_under_another_base_are_not_asked_for() -> None:
    envelope = append("f")
    envelope.lance.append.fragments[0].files[0].base_id = 1
    assert FORMAT.requirements(created().state, entries([envelope], 0)).sizes == frozenset()


def test_every_kind_of_refusal_names_a_way_out() -> None:
    table = created()
    for envelope in (BAD, reserve(0), creation(uuid="again"), Envelope(table=URI)):
        result = table.result(envelope)
        if isinstance(result, Rejected):
            assert result.conflict.message
        else:
            assert isinstance(result, Invalid)
            assert result.hint


def test_folding_does_not_touch_what_it_was_given() -> None:
    table = created()
    group = entries([append("f"), append("g", app="a", batch=1), BAD], 1)
    before = [each.envelope.SerializeToString(deterministic=True) for each in group]
    head = table.state.head.SerializeToString(deterministic=True)
    fold(FORMAT, table.table, group, Fetched(), FoldInputs(1))
    assert [each.envelope.SerializeToString(deterministic=True) for each in group] == before
    assert table.state.head.SerializeToString(deterministic=True) == head
