"""Folds proposals that name very many parts, in a process of its own: what each takes, and what was said.

`python -m tests.faults.many_parts KIND` prints as JSON what becomes of a proposal of this kind whose bytes
say that it takes a little less memory than the limit, and of a proposal that takes a little more.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Entry
from lakefold_table.errors import InvalidError
from lakefold_table.expansion import content_of
from lakefold_table.lance.manifests.memory_cost import memory_to_fold
from lakefold_table.lance.proposal import LanceProposal
from lakefold_table.position import Position
from tests.folding import (
    LOG,
    SCHEMA,
    START_US,
    URI,
    MemoryTable,
    add_fragment,
    append,
    column,
    created,
    parsed_packed,
)
from tests.properties.hostile import forget_peak, peak

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_protos.lance.transaction_pb2 import Transaction

SAMPLE = 1_000
LIMIT = 32 << 20
"""How much folding a proposal may take here."""


def before(number: int) -> DataFragment:
    """A fragment as the table has it."""
    fragment = DataFragment(id=number)
    add_fragment(fragment, f"f-{number}")
    return fragment


def merge(transaction: Transaction, count: int) -> None:
    """A new column in each fragment."""
    transaction.merge.schema.extend([*SCHEMA, column("new", 2)])
    for number in range(count):
        fragment = transaction.merge.fragments.add()
        fragment.CopyFrom(before(number))
        file = fragment.files.add(path=f"new-{number}.lance", fields=[2], column_indices=[0])
        file.file_major_version, file.file_minor_version, file.file_size_bytes = 2, 2, 1000


def rewrite(transaction: Transaction, count: int) -> None:
    """Four fragments become a single fragment."""
    for first in range(0, count - 3, 4):
        group = transaction.rewrite.groups.add()
        group.old_fragments.extend(map(before, range(first, first + 4)))
        add_fragment(group.new_fragments.add(), f"new-{first}", 12)


def data_replacement(transaction: Transaction, count: int) -> None:
    """Each fragment gets another file."""
    for number in range(count):
        group = transaction.data_replacement.replacements.add(fragment_id=number)
        group.new_file.CopyFrom(before(number).files[0])
        group.new_file.path = f"new-{number}.lance"


def update(transaction: Transaction, count: int) -> None:
    """Each fragment gives way to a new fragment."""
    transaction.update.removed_fragment_ids.extend(range(count))
    for number in range(count):
        add_fragment(transaction.update.new_fragments.add(), f"new-{number}")


def overwrite(transaction: Transaction, count: int) -> None:
    """New fragments in place of all others."""
    transaction.overwrite.schema.extend(SCHEMA)
    for number in range(count):
        add_fragment(transaction.overwrite.fragments.add(), f"new-{number}")


def delete(transaction: Transaction, count: int) -> None:
    """All fragments go."""
    transaction.delete.deleted_fragment_ids.extend(range(count))


def update_config(transaction: Transaction, count: int) -> None:
    """Very many keys."""
    for number in range(count):
        updates = transaction.update_config.config_updates.update_entries
        updates.add(key=f"key-{number}", value=f"value-{number}")


def columns(transaction: Transaction, count: int) -> None:
    """An Overwrite with very many columns."""
    transaction.overwrite.schema.extend(column(f"column-{number}", number) for number in range(count))


def settings(transaction: Transaction, count: int) -> None:
    """An Overwrite with very many settings and metadata."""
    transaction.overwrite.schema.extend(SCHEMA)
    for number in range(count):
        transaction.overwrite.config_upsert_values[f"key-{number}"] = f"value-{number}"
        transaction.overwrite.schema_metadata[f"key-{number}"] = b"value"


def long_settings(transaction: Transaction, count: int) -> None:
    """Few keys and values, all of them long."""
    transaction.update_config.upsert_values["x" * 40 * count] = "y" * 100 * count


def filter_bits(transaction: Transaction, count: int) -> None:
    """A Bloom filter of the rows that an Update has inserted."""
    add_fragment(transaction.update.new_fragments.add(), "new")
    transaction.update.inserted_rows.bloom.bitmap = b"x" * 150 * count


def properties(transaction: Transaction, count: int) -> None:
    """A Delete with very many properties of its own."""
    transaction.delete.SetInParent()
    for number in range(count):
        transaction.transaction_properties[f"key-{number}"] = f"value-{number}"


def compaction_of_each(transaction: Transaction, count: int) -> None:
    """Each fragment becomes another."""
    for number in range(count):
        group = transaction.rewrite.groups.add()
        group.old_fragments.append(before(number))
        add_fragment(group.new_fragments.add(), f"new-{number}")


KINDS: Mapping[str, Callable[[Transaction, int], None]] = {
    make.__name__: make
    for make in (
        merge,
        rewrite,
        compaction_of_each,
        data_replacement,
        update,
        filter_bits,
        overwrite,
        columns,
        settings,
        delete,
        properties,
        update_config,
        long_settings,
    )
}


def proposal(kind: str, count: int) -> bytes:
    """A proposal of this kind with so many parts."""
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = kind, 2
    KINDS[kind](envelope.lance, count)
    return encode(envelope)


def measured(table: MemoryTable, data: bytes, most: int | None = None) -> Mapping[str, object]:
    """What becomes of the proposal in these bytes, what it takes with them, and what they say of that.

    `most`: how much it may take; None: any amount.
    """
    numbers: list[int] = []

    def allow(needed: int) -> None:
        numbers.append(needed)
        if most is not None and needed > most:
            raise InvalidError("more than it may take")

    started = forget_peak()
    try:
        whole, packed = parsed_packed(data, allow)
    except (DecodeError, InvalidError) as error:
        kind = type(error).__name__
    else:
        entry = Entry(Position(LOG, table.offset), START_US, whole, len(data), LanceProposal(whole, packed))
        (outcome,) = table.fold_group([entry]).outcomes
        kind = type(outcome.result).__name__
    return {"took": peak() - started + len(data), "said": numbers[-1], "kind": kind}


def near(kind: str, limit: int) -> Sequence[Mapping[str, object]]:
    """A proposal that takes a little less than `limit`, by its bytes, and one that takes a little more."""
    some = [memory_to_fold(content_of(proposal(kind, count), Envelope)) for count in (SAMPLE, 2 * SAMPLE)]
    count = SAMPLE * (limit - some[0]) // (some[1] - some[0]) + SAMPLE
    below, above = count - count // 20, count + count // 20
    table = created()
    table.fold(append("f", fragments=below))
    # The second is refused before the table matters.
    tables = {below: table, above: created()}
    return [measured(tables[number], proposal(kind, number), limit) for number in tables]


def main(kind: str) -> None:
    """Prints it."""
    sys.stdout.write(json.dumps(near(kind, LIMIT)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
