"""Deletes of very many fragments, which take no more memory than a portion of them."""

from __future__ import annotations

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.format import Fetched
from lakefold_table.lance.manifests.fragments import PORTION
from lakefold_table.lance.version_builder import VersionBuilder
from tests.folding import FORMAT, URI, MemoryTable, append, created, entries, results

COUNT = 2 * PORTION + 3
ROWS = 3


@pytest.fixture(scope="module")
def large() -> MemoryTable:
    """At version 2, with `COUNT` fragments; not to be changed."""
    table = created()
    table.fold(append(fragments=COUNT))
    return table


@pytest.fixture
def table(large: MemoryTable) -> MemoryTable:
    return MemoryTable(large.table, dict(large.files), large.offset)


def delete(*gone: int, uuid: str = "d") -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = uuid, 2
    envelope.lance.delete.deleted_fragment_ids.extend(gone)
    return envelope


def test_each_gives_what_get_gives_ascending(large: MemoryTable) -> None:
    fragments = large.state.fragments
    asked = [*range(COUNT - 1, 0, -1), COUNT + 5, 7, 7]
    values = list(fragments.each(asked))
    assert [fragment.id for fragment in values] == list(range(1, COUNT))
    assert values == [fragments.get([number])[number] for number in range(1, COUNT)]
    assert list(fragments.opened().each(asked)) == values


def test_none_of_many_that_are_read_is_kept(large: MemoryTable) -> None:
    working = VersionBuilder(large.state, Fetched())
    assert [fragment.id for fragment in working.each(range(COUNT))] == list(range(COUNT))
    assert not working._read
    assert working.present(range(COUNT + 9)) == set(range(COUNT))


def test_all_but_one_are_deleted(table: MemoryTable) -> None:
    result = table.result(delete(*range(1, COUNT)))
    assert result == Committed(3, rebased=False, rows_deleted=(COUNT - 1) * ROWS)
    assert list(table.state.fragments.ids()) == [0]


def test_a_missing_table_is_named_and_nothing_is_deleted(table: MemoryTable) -> None:
    before = table.state
    result = table.result(delete(*range(COUNT - 1), COUNT))
    assert isinstance(result, Invalid)
    assert result.message == f"fragments [{COUNT}] are not in the table"
    assert table.state is before


def test_what_an_entry_removed_does_not_exist_for_the_next(table: MemoryTable) -> None:
    group = entries([delete(5), delete(*range(4, COUNT), uuid="next")], table.offset)
    first, second = results(table.fold_group(group))
    assert first == Committed(3, rebased=False, rows_deleted=ROWS)
    assert isinstance(second, Rejected)


def test_affected_rows_of_many_are_compared_with_each(table: MemoryTable) -> None:
    whole = encode_bitmap(Bitmap(range(ROWS)))
    envelope = delete(*range(COUNT))
    envelope.affected_rows.update(dict.fromkeys(range(COUNT), whole))
    assert not FORMAT.requirements(table.state, entries([envelope], 9)).contents
    beyond = Envelope()
    beyond.CopyFrom(envelope)
    beyond.affected_rows[PORTION + 1] = encode_bitmap(Bitmap([ROWS]))
    result = table.result(beyond)
    assert isinstance(result, Invalid)
    assert f"affected rows of fragments [{PORTION + 1}] are beyond" in result.message
    envelope.lance.uuid = "again"
    assert table.result(envelope) == Committed(3, rebased=False, rows_deleted=COUNT * ROWS)
