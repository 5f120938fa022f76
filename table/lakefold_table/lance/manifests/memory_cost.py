"""Estimates the memory that folding a proposal takes, from what its bytes hold, before it is decoded."""

from __future__ import annotations

from typing import NamedTuple

from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_protos.lance.transaction_pb2 import KeyExistenceFilter, Transaction
from lakefold_table.expansion import PORTION_BYTES, Content

FIXED_BYTES = 2 << 20
"""The bytes that folding any proposal takes."""
PACKED_MESSAGE_BYTES = 48
"""The bytes that folding takes for each message that is never decoded with the others: measured 40."""
PACKED_COPIES = 2
"""As `MemoryCost.copies`, for a proposal whose fragments stay encoded."""


class MemoryCost(NamedTuple):
    """What folding an operation takes, in bytes, for each thing that its proposal holds, at most.

    `message`: for each message; the fragments of the table that a proposal names are part of it. `value`: for
    each 64-bit number or text in a list; `key`: if the list has hashes of keys. `number`: for each 32-bit
    number in a list; `column`: if the list is that of a data file. `copies`: how often the proposal's own
    bytes are in memory at once.
    """

    message: int = 2640
    value: int = 800
    number: int = 224
    key: int = 88
    column: int = 72
    copies: int = 8


COSTS = {
    "append": MemoryCost(),
    "create_index": MemoryCost(),
    "data_replacement": MemoryCost(message=2960, column=184),
    "delete": MemoryCost(),
    "merge": MemoryCost(message=2020),
    "overwrite": MemoryCost(message=760),
    "rewrite": MemoryCost(message=1760),
    "update": MemoryCost(message=2000, copies=12),
    "update_config": MemoryCost(message=1040, copies=14),
}
"""By operation, at least a tenth more than was measured (`tests/faults/test_memory.py`).

What the allocators take for the same proposal varies by a megabyte from process to process.
"""
COST_OF_OTHERS = MemoryCost(column=184, copies=14)
"""The cost of any other operation, of several in the same proposal, and of none."""


def memory_to_fold(content: Content) -> int:
    """Returns about how many bytes of memory it takes to fold a proposal, more than was measured."""
    operations = operations_in(content)
    operation = next(iter(operations)) if len(operations) == 1 else ""
    cost = COSTS.get(operation, COST_OF_OTHERS)
    columns = content.numbers.get(_FILE, 0)
    numbers = sum(content.numbers.values()) - columns
    keys = content.values.get(_KEYS, 0)
    values = sum(content.values.values()) - keys
    listed = values * cost.value + keys * cost.key + numbers * cost.number + columns * cost.column
    return FIXED_BYTES + cost.copies * content.size + cost.message * content.messages + listed


def memory_of_packed(content: Content) -> int:
    """Returns what `memory_to_fold` does, for a proposal whose messages are decoded a portion at a time."""
    return PACKED_COPIES * content.size + PACKED_MESSAGE_BYTES * content.messages + 16 * PORTION_BYTES


def operations_in(content: Content) -> frozenset[str]:
    """Returns the operations of the transactions in a message."""
    return frozenset(name for oneof, name in content.choices if oneof == _OPERATION)


_FILE: str = DataFile.DESCRIPTOR.full_name
_KEYS: str = KeyExistenceFilter.ExactKeySet.DESCRIPTOR.full_name
_OPERATION: str = Transaction.DESCRIPTOR.oneofs_by_name["operation"].full_name
