"""What a Rewrite says of the order of its rows and of fragments that were left out, read back."""

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.conflicts import footprint_of
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.rows.row_order import EMPTIED, KEPT, ROW_ORDER, record_order, written_groups
from lakefold_table.lance.validity import envelope_fault


def rewrite(*ids: int) -> Transaction:
    transaction = Transaction()
    group = transaction.rewrite.groups.add()
    group.old_fragments.add(id=1, physical_rows=9)
    for number in ids:
        group.new_fragments.add(id=number, physical_rows=3)
    return transaction


def test_fragments_that_were_left_out_are_in_their_places() -> None:
    transaction = rewrite(7)
    record_order(transaction, {0: {0: 2, 2: 4}})
    groups = written_groups(transaction, 0)
    assert groups is not None
    assert [(new.id, new.physical_rows) for new in groups[0].new_fragments] == [(0, 2), (7, 3), (0, 4)]


def test_fragments_without_ids_have_the_last_ones() -> None:
    groups = written_groups(rewrite(0, 0), 12)
    assert groups is not None
    assert [new.id for new in groups[0].new_fragments] == [11, 12]
    assert written_groups(rewrite(0, 0), 1) is None


@pytest.mark.parametrize("text", ["x", "1:2", "0:-1:3", "0:0:0:0", "1:1:٣:"])
def test_a_property_that_cannot_be_read_leaves_the_order_unknown(text: str) -> None:
    transaction = rewrite(7)
    transaction.transaction_properties[EMPTIED] = text
    assert written_groups(transaction, 0) is None
    assert footprint_of(transaction, keeps_order=True).moved is None


def test_a_rewrite_may_state_its_order_and_nothing_else_may() -> None:
    envelope = Envelope(lance=rewrite(7))
    envelope.lance.transaction_properties[ROW_ORDER] = KEPT
    assert envelope_fault(envelope, Kind.REWRITE) is None
    assert envelope_fault(envelope, Kind.DELETE) is not None
    envelope.lance.transaction_properties[ROW_ORDER] = "other"
    assert envelope_fault(envelope, Kind.REWRITE) is not None
