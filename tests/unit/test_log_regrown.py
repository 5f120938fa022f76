"""A log whose end was lost and written again: only an entry that is still at its offset was folded before.

Promises: same-entry, accepted-loss (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.fold.binding import LossOverride
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.recovery.start_offset import beginning
from lakefold_committer.replay.log_reader import EntriesGoneError, checked
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.client.requests import Watermarks
from lakefold_log.codec.envelope import decode, encode
from lakefold_log.read.anchor import Anchor, contradiction
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_table.entry import Committed, Duplicate, Entry, Result
from lakefold_table.errors import GapError
from lakefold_table.marks.marks import RebindReason
from lakefold_table.marks.record import decode_record
from lakefold_table.position import Position
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, LOG, START_US, append, creation, versions_at
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_protos.lakefold.log_pb2 import Envelope

TOPIC = "transactions"


@dataclass
class Shelf:
    """A log in memory. Its first messages may be gone; an offset without a message holds a marker."""

    messages: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    now_us: int = START_US
    end: int = 0
    start: int = 0
    asked: int = 0

    def append(self, *envelopes: Envelope) -> None:
        for envelope in envelopes:
            self.now_us += 1_000_000
            self.messages[self.end] = encode(envelope), self.now_us
            self.end += 1

    def lose_from(self, offset: int) -> None:
        self.messages = {at: each for at, each in self.messages.items() if at < offset}
        self.end = offset

    def entry(self, offset: int) -> Entry:
        data, time_us = self.messages[offset]
        decoded = decode(data, HERE.encode(), Position(LOG, offset, TOPIC), time_us)
        assert isinstance(decoded, Entry)
        return decoded

    def anchor(self, offset: int, epoch: int | None = 3) -> Anchor:
        fingerprint = self.entry(offset).fingerprint
        assert fingerprint is not None
        return Anchor(offset, fingerprint, epoch)

    def reach(self) -> Watermarks:
        return Watermarks(self.start, self.end)

    def first(self, offset: int, below: int) -> Anchor | None:
        self.asked += 1
        at = next((at for at in sorted(self.messages) if at >= offset), below)
        return self.anchor(at) if at < below else None


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """The log of a table that is folded up to offset 4, one version for each entry."""
    shelf = Shelf()
    shelf.append(here(creation()), *(here(append(f"f{number}")) for number in range(1, 5)))
    table = TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery(shelf))
    for offset in range(5):
        fold(table, shelf, offset)
    yield shelf
    MemoryStorage.forget(NAME)


def recovery(shelf: Shelf, *, accept: bool = False, unchanged_below: int = 0) -> RecoveryContext:
    override = LossOverride(LOG, TOPIC, 0, lambda _, before: before) if accept else None
    return RecoveryContext(
        LOG, lambda: shelf.end, 0, override, content=shelf, unchanged_below=unchanged_below
    )


def opened(shelf: Shelf, *, accept: bool = False, unchanged_below: int = 0) -> TableWriter:
    held = recovery(shelf, accept=accept, unchanged_below=unchanged_below)
    return TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=held)


def fold(table: TableWriter, shelf: Shelf, offset: int) -> Result:
    return table.fold([shelf.entry(offset)]).outcomes[0].result


def test_the_same_entries_are_answered_as_before(shelf: Shelf) -> None:
    table = opened(shelf)
    results = [fold(table, shelf, offset) for offset in (1, 4)]
    assert [committed.version for committed in results if isinstance(committed, Committed)] == [2, 5]


def test_another_entry_at_the_last_position_stops_the_committer(shelf: Shelf) -> None:
    shelf.lose_from(3)
    shelf.append(here(append("x")), here(append("y")), here(append("z")))
    with pytest.raises(GapError, match=r"/0@4, .* uuid f4, digest .*; now entry 4 \(uuid y, .* epoch 3\)"):
        opened(shelf)


def test_a_position_without_an_entry_stops_the_committer(shelf: Shelf) -> None:
    shelf.lose_from(4)
    shelf.end = 9
    with pytest.raises(GapError, match="the log has no entry at offset 4"):
        opened(shelf)


@pytest.mark.parametrize("grown", [1, 2, 5])
def test_an_accepted_loss_goes_back_to_the_last_entry_that_is_left(shelf: Shelf, grown: int) -> None:
    """Also if the log ends before the marks: the entries below that are not evidence either."""
    shelf.lose_from(2)
    shelf.append(*(here(append(f"x{number}")) for number in range(grown)), here(append("f4")))
    table = opened(shelf, accept=True)
    results = [fold(table, shelf, offset) for offset in range(1, shelf.end)]
    assert [committed.version for committed in results if isinstance(committed, Committed)] == [
        2,
        *range(7, 7 + grown),
    ]
    assert results[-1] == Duplicate(5)
    (move,) = table.table.marks.moves
    assert (move.why, move.before, move.after) == (RebindReason.LOST, Position(LOG, 4), Position(LOG, 1))


def test_a_table_that_was_made_in_what_was_lost_is_folded_from_the_log_s_start(shelf: Shelf) -> None:
    shelf.lose_from(0)
    shelf.append(*(here(append(f"x{number}")) for number in range(6)))
    table = opened(shelf, accept=True)
    assert isinstance(fold(table, shelf, 0), Committed)
    assert table.table.marks.moves[-1].after == Position(LOG, -1)


def test_a_second_loss_is_noticed_too(shelf: Shelf) -> None:
    """No entry was folded since the first entry was accepted, so the position is that of the move."""
    shelf.lose_from(2)
    table = opened(shelf, accept=True)
    assert isinstance(fold(table, shelf, 1), Committed)
    assert (table.table.version, table.table.marks.position) == (6, Position(LOG, 1))
    shelf.lose_from(1)
    shelf.append(here(append("y")), here(append("z")))
    with pytest.raises(GapError, match=r"/0@1, .* uuid f1, digest .*; now entry 1 \(uuid y"):
        opened(shelf)
    table = opened(shelf, accept=True)
    assert isinstance(fold(table, shelf, 1), Committed)


def test_versions_that_are_gone_prove_nothing(shelf: Shelf) -> None:
    shelf.lose_from(2)
    shelf.append(*(here(append(f"x{number}")) for number in range(6)))
    versions = versions_at(HERE)
    for number in (1, 2, 3):
        versions.storage.delete(versions.path(number))
    with pytest.raises(GapError, match="now entry 4"):
        opened(shelf, accept=True)
    assert opened(shelf, accept=True, unchanged_below=2).table.marks.position == Position(LOG, 1)


def test_an_entry_that_may_be_another_is_folded_although_older_versions_are_gone(shelf: Shelf) -> None:
    """The log ends before the marks, and a clean-up has removed the versions that would show from where."""
    shelf.lose_from(3)
    shelf.append(here(append("x")))
    versions = versions_at(HERE)
    for number in (1, 2, 3):
        versions.storage.delete(versions.path(number))
    table = opened(shelf, accept=True)
    assert table.table.marks.position == Position(LOG, 2)
    result = fold(table, shelf, 3)
    assert isinstance(result, Committed)
    assert (result.version, result.rows_added) == (6, 3)


def test_what_is_known_to_be_unchanged_is_not_asked_again(shelf: Shelf) -> None:
    shelf.asked = 0
    opened(shelf, unchanged_below=5)
    assert shelf.asked == 0


def test_marks_of_an_older_release_go_on(shelf: Shelf) -> None:
    table = opened(shelf)
    entry = replace(shelf.entry(4), position=Position(LOG, 5, TOPIC), data=b"")
    shelf.append(here(append("g")))
    table.fold([entry])
    assert table.table.marks.fingerprint is None
    assert opened(shelf).table.marks.position == Position(LOG, 5)


def test_a_version_s_entries_are_known_again(shelf: Shelf) -> None:
    properties = StoredTable(FORMAT, versions_at(HERE)).own_properties(5)
    assert properties is not None
    record = decode_record(properties)
    assert record is not None
    entries = {4: shelf.entry(4)}
    assert checked(record, entries) == entries
    shelf.lose_from(4)
    shelf.append(here(append("x")))
    with pytest.raises(EntriesGoneError, match="another entry is at this offset now"):
        checked(record, {4: shelf.entry(4)})


def stamped(shelf: Shelf, offset: int, anchor: int) -> tuple[int, OffsetMetadata]:
    offset_metadata = OffsetMetadata(LOG.cluster_id, LOG.topic_id, offset, 7, anchor=shelf.anchor(anchor))
    assert OffsetMetadata.of(offset_metadata.metadata(offset), offset) == offset_metadata
    return offset, offset_metadata


@pytest.mark.parametrize(("offset", "anchor"), [(5, 4), (2, 4), (5, 2)])
def test_a_stamp_holds_while_its_anchor_does(shelf: Shelf, offset: int, anchor: int) -> None:
    """The anchor may be above the committed offset, if entries above it are answered, or far below it."""
    for gone in range(anchor + 1, offset):
        del shelf.messages[gone]
    actual = stamped(shelf, offset, anchor)
    begin = beginning(actual, shelf, "group", LOG, TOPIC, accept_new_log=False)
    unchanged_below = min(offset, anchor + 1)
    assert (begin.answered, begin.read_back_from, begin.unchanged_below) == (offset, 7, unchanged_below)
    shelf.lose_from(anchor)
    shelf.append(*(here(append(f"x{number}")) for number in range(6)))
    with pytest.raises(GapError, match=rf"answered up to offset {offset} and read .*; now .*uuid x0"):
        beginning(actual, shelf, "group", LOG, TOPIC, accept_new_log=False)
    begin = beginning(actual, shelf, "group", LOG, TOPIC, accept_new_log=True)
    assert (begin.answered, begin.read_back_from, begin.unchanged_below, begin.anchor) == (0, None, 0, None)


def test_an_entry_where_only_markers_were_contradicts_the_committed_offset(shelf: Shelf) -> None:
    anchor = shelf.anchor(4)
    shelf.end = 7
    assert contradiction(shelf, anchor, 7) == ""
    shelf.end = 5
    shelf.append(here(append("x")), here(append("y")))
    assert "uuid x" in contradiction(shelf, anchor, 7)


def test_an_answer_beyond_the_log_s_end_contradicts_the_stamp(shelf: Shelf) -> None:
    anchor = shelf.anchor(4)
    shelf.lose_from(4)
    assert "ends before offset 4" in contradiction(shelf, anchor, 2)


def test_what_retention_removed_contradicts_nothing(shelf: Shelf) -> None:
    anchor = shelf.anchor(1)
    shelf.start = 3
    assert contradiction(shelf, anchor, 3) == ""
