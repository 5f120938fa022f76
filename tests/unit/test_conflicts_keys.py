"""Whether two inserts may share a key, from their filters."""

import tracemalloc

import pytest
from pyroaring import BitMap

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.conflicts import Footprint, footprint_of
from lakefold_table.lance.conflicts.key_conditions import inserts_keys, same_inserted_keys
from lakefold_table.lance.conflicts.keys import APPENDS, LATER, bits_of
from lakefold_table.lance.conflicts.transaction_footprint import PLAIN
from lakefold_table.lance.kinds import Kind


def exact(*hashes: int, field: int = 0) -> Footprint:
    transaction = Transaction()
    transaction.update.inserted_rows.field_ids.append(field)
    transaction.update.inserted_rows.exact.key_hashes.extend(hashes)
    return footprint_of(transaction)


def bloom(*bits: int, size: int = 64, items: int = 10) -> Footprint:
    data = bytearray(size)
    for bit in bits:
        data[bit // 8] |= 1 << bit % 8
    transaction = Transaction()
    transaction.update.inserted_rows.field_ids.append(0)
    transaction.update.inserted_rows.bloom.bitmap = bytes(data)
    transaction.update.inserted_rows.bloom.number_of_items = items
    return footprint_of(transaction)


BLOCK = [word * 32 + 5 for word in range(8)]
OTHER = [256 + bit for bit in BLOCK]


@pytest.mark.parametrize(
    ("ours", "theirs", "met"),
    [
        (exact(1, 2), exact(3, 2**63 + 1), False),
        (exact(1, 2**63 + 1), exact(3, 2**63 + 1), True),
        (exact(), exact(1), False),
        (exact(1), exact(1, field=1), True),
        (exact(1), bloom(), True),
        (bloom(), exact(1), True),
        (bloom(*BLOCK), bloom(*BLOCK), True),
        (bloom(*BLOCK, *OTHER), bloom(*OTHER), True),
        (bloom(*BLOCK), bloom(*OTHER), False),
        (bloom(*BLOCK), bloom(*BLOCK[:7], BLOCK[7] + 1), False),
        (bloom(*BLOCK), bloom(*BLOCK[:4], *OTHER[4:]), False),
        (bloom(*BLOCK), bloom(*BLOCK, items=11), True),
        (bloom(), bloom(size=32), True),
        (exact(1), footprint_of(Transaction(update=Transaction.Update())), True),
        (footprint_of(Transaction(update=Transaction.Update())), exact(1), False),
    ],
)
def test_pairs(ours: Footprint, theirs: Footprint, met: bool) -> None:  # noqa: FBT001 - a value of the table above
    assert (same_inserted_keys(ours, theirs, 3) is not None) == met


def test_appended_rows_may_hold_any_key() -> None:
    append = footprint_of(Transaction(append=Transaction.Append()))
    assert inserts_keys(exact(), append, 3) is not None
    assert inserts_keys(footprint_of(Transaction(update=Transaction.Update())), append, 3) is None


def test_an_upsert_may_count_as_made_before_appends_but_not_before_other_upserts() -> None:
    transaction = Transaction(transaction_properties={APPENDS: LATER})
    transaction.update.inserted_rows.exact.key_hashes.append(1)
    transaction.update.inserted_rows.field_ids.append(0)
    first = footprint_of(transaction)
    assert inserts_keys(first, footprint_of(Transaction(append=Transaction.Append())), 3) is None
    assert same_inserted_keys(first, exact(1), 3) is not None
    transaction.transaction_properties[APPENDS] = "other"
    assert inserts_keys(footprint_of(transaction), PLAIN[Kind.APPEND], 3) is not None


def test_bits_count_from_the_lowest_of_the_first_byte() -> None:
    assert bits_of(b"\x01\x80") == BitMap([0, 15])
    assert bits_of(bytes(70_000) + b"\x02") == BitMap([560_001])


def test_a_large_filter_takes_little_memory() -> None:
    data = b"\xff" * 2**21
    tracemalloc.start()
    bits = bits_of(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(bits) == 2**24
    assert peak < 2 * len(data) + 2**25
