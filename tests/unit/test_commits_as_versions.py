"""A proposal that is to become one version, alone, with its transaction as it was sent; or is refused."""

from __future__ import annotations

import pytest

from lakefold_committer.fold.grouping import Limits, first_group
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.manifests.codec import decode_head, head_transaction
from lakefold_table.marks.record import RECORD, is_own
from tests.folding import MemoryTable, append, as_version, creation, entries, seen_by_clients


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable()
    assert isinstance(table.result(creation()), Committed)
    return table


def file_of(table: MemoryTable) -> bytes:
    return table.files[table.state.scheme.path(table.state.version)]


def test_it_becomes_the_version_that_it_names(table: MemoryTable) -> None:
    assert table.result(as_version(append("a"), 2)) == Committed(2, rows_added=3, num_fragment_ids=1)
    assert table.reopened().table.marks == table.table.marks


def test_other_clients_see_the_transaction_as_it_was_sent(table: MemoryTable) -> None:
    sent = as_version(append("a"), 2)
    sent.lance.transaction_properties["note"] = "mine"
    assert isinstance(table.result(sent), Committed)
    assert seen_by_clients(file_of(table)) == sent.lance
    assert table.made.transaction_properties["note"] == "mine"


def test_the_marks_are_found_at_the_start_of_the_file_and_in_the_whole_file(table: MemoryTable) -> None:
    assert isinstance(table.result(as_version(append("a"), 2)), Committed)
    start = head_transaction(file_of(table))
    _, whole = decode_head(file_of(table))
    assert start == whole == table.made
    assert is_own(table.made.transaction_properties, 2)
    assert RECORD in table.made.transaction_properties


def test_the_copy_of_the_transaction_is_the_one_that_was_sent(table: MemoryTable) -> None:
    sent = as_version(append("a"), 2)
    publication = table.fold(sent).publication
    assert publication is not None
    assert publication.copy is not None
    assert Transaction.FromString(b"".join(map(bytes, publication.copy.buffers))) == sent.lance


def test_usual_versions_have_one_transaction(table: MemoryTable) -> None:
    table.result(append("a"))
    head, _ = decode_head(file_of(table))
    assert not head.HasField("transaction_section_before_14")
    assert head.transaction_section == 0


@pytest.mark.parametrize("number", [0, 1, 3, 2**63])
def test_any_other_number_refuses_it_without_a_trace(table: MemoryTable, number: int) -> None:
    before = table.table.marks
    refused = table.result(as_version(append("a"), number))
    assert isinstance(refused, Rejected)
    assert refused.conflict.retryable
    assert str(number) in refused.conflict.message
    assert "next one is 2" in refused.conflict.message
    assert (table.state.version, table.table.marks) == (1, before)
    assert isinstance(table.result(as_version(append("a"), 2)), Committed), "the same uuid comes again"


def test_a_second_time_it_is_a_duplicate(table: MemoryTable) -> None:
    table.result(as_version(append("a"), 2))
    assert table.result(as_version(append("a"), 2)) == Duplicate(2)
    assert table.result(as_version(append("a"), 3)) == Duplicate(2)


def test_its_sender_has_read_the_version_before(table: MemoryTable) -> None:
    table.result(append("a"))
    overwrite = creation(uuid="overwrite")
    overwrite.ClearField("create")
    overwrite.lance.read_version = 2
    assert isinstance(table.result(overwrite), Committed)
    stale = append("b", read=1)
    stale.lance.append.fragments[0].files[0].fields[:] = [f.id for f in table.state.schema]
    assert isinstance(table.result(stale), Rejected | Invalid)
    assert isinstance(table.result(as_version(stale, 4)), Committed)
    assert seen_by_clients(file_of(table)).read_version == 1


def test_it_shares_its_version_with_no_other_entry(table: MemoryTable) -> None:
    group = entries([append("a"), as_version(append("b"), 3), append("c")], table.offset)
    limits = Limits(100, 2**20)
    assert len(first_group(group, BUILT_IN, limits, table.state)) == 1
    assert len(first_group(group[1:], BUILT_IN, limits, table.state)) == 1


def test_it_may_create_the_table() -> None:
    table = MemoryTable()
    assert isinstance(table.result(as_version(creation(), 2)), Rejected)
    assert table.result(as_version(creation(), 1)) == Committed(1)
    assert seen_by_clients(file_of(table)) == creation().lance


def test_the_bytes_are_the_same_each_time() -> None:
    tables = [MemoryTable(), MemoryTable()]
    for table in tables:
        table.fold(creation())
        table.fold(as_version(append("a"), 2))
    assert tables[0].files == tables[1].files
