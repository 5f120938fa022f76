"""Which keys a Restore leaves out of the table, and repetitions of a key with other content.

Promises: rolled-back-batches, different-content (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.fold.keys import Keys
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Duplicate
from lakefold_table.format import Fetched
from lakefold_table.lance.manifests.packed_append import packed_transaction
from lakefold_table.lance.proposal import proposal_of
from lakefold_table.marks.batches import MAX_RECENT_BATCHES, PLAIN_INTERVALS, AppMark
from lakefold_table.marks.content_digest import UNKNOWN, content_of, differs
from lakefold_table.marks.intervals import less
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.rollbacks import rolled_back
from tests.folding import (
    INPUTS,
    URI,
    MemoryTable,
    append,
    by_message,
    changed,
    created,
    entries,
    entry,
    results,
    with_packed,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def restoring(version: int, read: int) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = f"restore-{read}", read
    envelope.lance.restore.version = version
    return envelope


class Kept(MemoryTable):
    """A table that keeps its states, so that each can be restored."""

    def __init__(self) -> None:
        table = created()
        super().__init__(table.table, table.files, table.offset)
        self.states = {1: self.state}

    def add(self, *batches: int, app: str = "a") -> int:
        for batch in batches:
            self.fold(append(f"{app}-{batch}", read=self.state.version, app=app, batch=batch))
            self.states[self.state.version] = self.state
        return self.state.version

    def restore(self, version: int) -> int:
        group = entries([restoring(version, self.state.version)], self.offset)
        self.offset += 1
        self.fold_group(group, INPUTS, Fetched(states={("", version): self.states[version]}))
        self.states[self.state.version] = self.state
        return self.state.version

    def again(self, batch: int, app: str = "a") -> Duplicate:
        answer = self.result(append(f"again-{self.offset}", app=app, batch=batch))
        assert isinstance(answer, Duplicate)
        return answer


def test_a_batch_after_the_restored_version_is_reported_as_rolled_back() -> None:
    table = Kept()
    before, after = table.add(1), table.add(2)
    restored = table.restore(before)
    assert table.again(1) == Duplicate(before)
    assert table.again(2) == Duplicate(after, rolled_back_by=restored)
    assert table.table.marks.rolled_back_by("a", 2, "") == restored
    assert table.reopened().table.marks == table.table.marks


def test_what_is_folded_after_a_restore_is_in_the_table() -> None:
    table = Kept()
    table.add(1, 2)
    table.restore(2)
    version = table.add(3)
    assert table.again(3) == Duplicate(version)


def test_a_second_restore_may_bring_the_rows_back() -> None:
    table = Kept()
    both = table.add(1, 2)
    table.restore(1)
    assert table.again(2).rolled_back_by
    table.restore(both)
    assert [table.again(batch).rolled_back_by for batch in (1, 2)] == [0, 0]


def test_a_restore_of_a_version_after_a_restore_keeps_what_that_one_left_out() -> None:
    table = Kept()
    table.add(1, 2)
    first = table.restore(2)
    kept = table.add(3)
    table.add(4)
    second = table.restore(kept)
    assert [table.again(batch).rolled_back_by for batch in (1, 2, 3, 4)] == [0, first, 0, second]


def test_batches_whose_version_is_forgotten_are_reported_as_well() -> None:
    table = Kept()
    kept = table.add(1)
    table.add(*range(2, 2 * MAX_RECENT_BATCHES))
    restored = table.restore(kept)
    assert table.again(1) == Duplicate(0)
    assert table.again(2) == Duplicate(0, rolled_back_by=restored)


def test_a_uuid_after_the_restored_version_is_reported_as_rolled_back() -> None:
    table = created()
    table.fold(append("kept"))
    second = table.state
    table.fold(append("gone"))
    group = entries([restoring(2, 3)], 10)
    table.fold_group(group, INPUTS, Fetched(states={("", 2): second}))
    table.offset = 20
    assert table.result(append("kept")) == Duplicate(2)
    assert table.result(append("gone")) == Duplicate(3, rolled_back_by=4)
    assert table.result(restoring(2, 3)) == Duplicate(4)
    assert table.reopened().table.marks == table.table.marks


def test_before_the_first_fold_nothing_was_in_the_table() -> None:
    marks = Marks(apps={"a": AppMark(((0, 40),), recent=((40, 50),))}, uuids=(("u", 50),))
    after = rolled_back(marks, 51, 3, {})
    assert after.apps["a"].rolled_back == ((0, 40, 51),)
    assert after.uuids_rolled_back == {"u": 51}


@pytest.mark.parametrize("metadata", [{}, {"lakefold.mark": "no JSON"}])
def test_if_the_restored_marks_are_lost_the_versions_of_batches_decide(metadata: dict[str, str]) -> None:
    app = AppMark(((0, 40),), recent=((39, 50), (40, 51)))
    marks = Marks(apps={"a": app}, uuids=(("u", 50), ("v", 51)))
    after = rolled_back(marks, 60, 50, metadata)
    assert after.apps["a"].rolled_back == ((40, 40, 60),)
    assert after.uuids_rolled_back == {"v": 60}


def test_marks_of_another_branch_say_nothing_of_this_one() -> None:
    theirs = Marks(table_id="theirs", version=5, apps={"a": AppMark(((0, 9),))}).encode()
    marks = Marks(table_id="ours", apps={"a": AppMark(((0, 9),), recent=((9, 20),))})
    assert rolled_back(marks, 21, 5, theirs).apps["a"].rolled_back == ((0, 9, 21),)


def test_any_number_of_rolled_back_intervals_is_kept_within_the_bound() -> None:
    then = AppMark(tuple((batch, batch) for batch in range(0, 200, 2)))
    marks = Marks(table_id="t", apps={"a": AppMark(((0, 200),), recent=((200, 9),))})
    metadata = Marks(table_id="t", version=3, apps={"a": then}).encode()
    after = rolled_back(marks, 10, 3, metadata)
    kept = after.apps["a"].rolled_back
    assert kept == (*((batch, batch, 10) for batch in range(1, 199, 2)), (199, 200, 10))
    assert decode_marks(after.encode()) == after
    fewer = after.apps["a"].within(0).rolled_back
    assert fewer == kept[-PLAIN_INTERVALS:]
    assert len(after.apps["a"].shortened().rolled_back) == PLAIN_INTERVALS


def test_batches_of_many_runs_are_reported_as_rolled_back() -> None:
    table = Kept()
    kept = table.add(0)
    table.add(*range(500, 500 * 3 * PLAIN_INTERVALS, 500))
    restored = table.restore(kept)
    answers = {table.again(batch).rolled_back_by for batch in range(500, 500 * 3 * PLAIN_INTERVALS, 500)}
    assert answers == {restored}
    assert table.again(0).rolled_back_by == 0


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], [(0, 9), (20, 29)]),
        ([(0, 29)], []),
        ([(5, 22)], [(0, 4), (23, 29)]),
        ([(3, 3), (9, 9)], [(0, 2), (4, 8), (20, 29)]),
    ],
)
def test_intervals_are_taken_from_intervals(
    others: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    assert less([(0, 9), (20, 29)], others) == left


def other_rows(envelope: Envelope) -> None:
    envelope.lance.append.fragments[0].physical_rows += 1


def other_columns(envelope: Envelope) -> None:
    del envelope.lance.append.fragments[0].files[0].fields[1:]


def a_delete(envelope: Envelope) -> None:
    envelope.lance.delete.predicate = "true"


CHANGES = [other_rows, other_columns, a_delete]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("app", ["a", ""], ids=["batch", "uuid"])
def test_a_repeated_key_with_other_content_is_noticed(change: Callable[[Envelope], object], app: str) -> None:
    first = append("one", app=app, batch=1 if app else None)
    table = created()
    folded = table.fold(first, first, changed(first, change))
    assert results(folded)[1:] == [Duplicate(2), Duplicate(2, different_content=True)]
    table = table.reopened()
    assert table.result(first) == Duplicate(2)
    assert table.result(changed(first, change)) == Duplicate(2, different_content=True)


def test_the_same_rows_in_other_files_are_the_same_content() -> None:
    """A batch that is run again may be written by another number of tasks, with files of other names."""

    def rewritten(envelope: Envelope) -> None:
        fragments = envelope.lance.append.fragments
        fragments[0].physical_rows = 6
        fragments[0].files[0].path = "other.lance"
        fragments[0].files[0].file_size_bytes = 1
        del fragments[1:]

    first = append("one", app="a", batch=1, fragments=2)
    table = created()
    assert results(table.fold(first, changed(first, rewritten)))[1] == Duplicate(2)


def test_a_content_is_the_same_however_its_message_was_taken_apart() -> None:
    plain = entry(append("one"), 0)
    message = by_message(plain)
    data = plain.envelope.lance.SerializeToString()
    apart = packed_transaction(data, range(len(data)))
    assert apart is not None
    envelope = changed(plain.envelope, lambda e: e.lance.CopyFrom(apart[0]))
    packed = with_packed(plain, envelope, apart[1])
    assert proposal_of(plain).plain is not None
    assert len({content_of(each) for each in (plain, message, packed)}) == 1


def test_an_overwrite_is_digested_by_its_rows_and_another_operation_by_its_kind() -> None:
    def overwriting(rows: int, field: int) -> Envelope:
        envelope = Envelope(table=URI)
        fragment = envelope.lance.overwrite.fragments.add(physical_rows=rows)
        fragment.files.add(path="f", fields=[field])
        return envelope

    known = content_of(entry(overwriting(3, 0), 0))
    assert not differs(known, entry(overwriting(3, 7), 0))
    assert differs(known, entry(overwriting(4, 0), 0))
    assert differs(known, entry(append("f"), 0))
    assert not differs(UNKNOWN, entry(append("f"), 0))


def test_a_claim_whose_envelope_is_not_known_is_not_called_different() -> None:
    def claimed(envelope: Envelope) -> None:
        envelope.claim.size = 3

    first = append("one", app="a", batch=1)
    table = created()
    assert results(table.fold(first, changed(first, claimed)))[1] == Duplicate(2)


def test_contents_are_remembered_of_the_newest_batches_only() -> None:
    keys = Keys(Marks())
    for batch in range(MAX_RECENT_BATCHES + 1):
        keys.add(entry(append("f", app="a", batch=batch), 0), 5 + batch, 0)
    marks = keys.marks()
    other = [changed(append("f", app="a", batch=batch), other_rows) for batch in (0, 1)]
    answers = [Keys(marks).seen(entry(envelope, 0)) for envelope in other]
    assert answers == [Duplicate(0), Duplicate(6, different_content=True)]
    assert decode_marks(replace(marks, version=1).encode()) == replace(marks, version=1)
