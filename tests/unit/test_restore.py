"""What a Restore restores, what it doesn't, and which are refused."""

from dataclasses import replace

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Committed, Invalid
from lakefold_table.format import Fetched, Requirements
from lakefold_table.lance.operations import restore
from lakefold_table.lance.state import LanceState
from lakefold_table.marks.marks import UUIDS_ROLLED_BACK
from tests.folding import INPUTS, URI, MemoryTable, append, changed, created, entries


def restoring(version: int, read: int = 3) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "restore", read
    envelope.lance.restore.version = version
    return envelope


def filled() -> tuple[MemoryTable, LanceState]:
    """A table of three versions, and its second: two fragments of three rows; a third fragment came later."""
    table = created(stable_row_ids=True)
    table.fold(append("one", fragments=2))
    second = table.state
    table.fold(
        changed(
            append("two", read=2),
            lambda e: setattr(e.lance.append.fragments[0].files[0], "file_minor_version", 1),
        )
    )
    return table, second


def result(table: MemoryTable, envelope: Envelope, then: LanceState | None) -> object:
    fetched = Fetched(states={("", envelope.lance.restore.version): then})
    folded = table.fold_group(entries([envelope], 50), INPUTS, fetched)
    return folded.outcomes[0].result


def test_what_was_used_stays_used() -> None:
    table, second = filled()
    actual = result(table, restoring(2), second)
    assert isinstance(actual, Committed)
    assert (actual.version, actual.rows_added, actual.rows_deleted) == (4, 6, 9)
    state = table.state
    assert list(state.fragments) == list(second.fragments)
    assert (state.head.max_fragment_id, state.head.next_row_id) == (2, 9)
    assert state.head.reader_feature_flags == 2 | 256
    assert state.head.data_format == second.head.data_format
    table.offset = 60
    later = table.result(append("three", read=4))
    assert isinstance(later, Committed)
    assert later.first_fragment_id == 3


def test_the_version_of_the_files_is_that_of_then() -> None:
    """Also if the restored manifest doesn't name it."""
    table, second = filled()
    head = Manifest()
    head.CopyFrom(second.head)
    head.ClearField("data_format")
    result(table, restoring(2), replace(second, head=head, file_version=(0, 2)))
    assert table.state.file_version == (0, 2)


def test_the_marks_are_those_of_now() -> None:
    table, second = filled()
    before = dict(table.state.metadata)
    result(table, restoring(2), second)
    keys = {key for key in table.state.metadata if key.startswith("lakefold.")}
    assert keys == {key for key in before if key.startswith("lakefold.")} | {UUIDS_ROLLED_BACK}
    assert table.reopened().table.marks.version == 4
    assert table.reopened().table.marks.position == table.table.marks.position


@pytest.mark.parametrize(
    ("version", "message"),
    [(0, "version 0 can't be restored"), (4, "the newest version is 3"), (2**63 + 5, "restored")],
)
def test_a_version_that_never_was(version: int, message: str) -> None:
    table, second = filled()
    actual = result(table, restoring(version), second)
    assert isinstance(actual, Invalid)
    assert message in actual.message


def test_a_version_that_is_gone() -> None:
    table, _ = filled()
    actual = result(table, restoring(1), None)
    assert isinstance(actual, Invalid)
    assert "cleaned up" in actual.message
    assert "tag" in actual.hint


def test_row_ids_that_last_are_not_switched() -> None:
    table, second = filled()
    head = Manifest()
    head.CopyFrom(second.head)
    head.reader_feature_flags = 0
    actual = result(table, restoring(2), replace(second, head=head))
    assert isinstance(actual, Invalid)
    assert "stable row ids" in actual.message


def test_it_asks_for_the_version() -> None:
    table, _ = filled()
    assert restore.needs(table.state, restoring(2)) == Requirements(states=frozenset({("", 2)}))
    for version in (0, 4):
        assert restore.needs(table.state, restoring(version)) == Requirements()
    assert restore.needs(None, restoring(1)) == Requirements()
