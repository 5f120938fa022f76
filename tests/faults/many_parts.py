"""Folds a proposal that names very many fragments, in a process of its own: what it takes, and what was said.

`python -m tests.faults.many_parts KIND` prints both as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from lakefold_log.codec.envelope import encode, parsed_packed
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Entry
from lakefold_table.position import Position
from tests.folding import LOG, SCHEMA, START_US, URI, add_fragment, append, column, created
from tests.properties.hostile import forget_peak, peak

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_protos.lance.transaction_pb2 import Transaction

COUNT = 20_000


def before(number: int) -> DataFragment:
    """A fragment as the table has it."""
    fragment = DataFragment(id=number)
    add_fragment(fragment, f"f-{number}")
    return fragment


def merge(transaction: Transaction) -> None:
    """A new column in each fragment."""
    transaction.merge.schema.extend([*SCHEMA, column("new", 2)])
    for number in range(COUNT):
        fragment = transaction.merge.fragments.add()
        fragment.CopyFrom(before(number))
        file = fragment.files.add(path=f"new-{number}.lance", fields=[2], column_indices=[0])
        file.file_major_version, file.file_minor_version, file.file_size_bytes = 2, 2, 1000


def rewrite(transaction: Transaction) -> None:
    """Four fragments become one."""
    for first in range(0, COUNT, 4):
        group = transaction.rewrite.groups.add()
        group.old_fragments.extend(map(before, range(first, first + 4)))
        add_fragment(group.new_fragments.add(), f"new-{first}", 12)


def data_replacement(transaction: Transaction) -> None:
    """Each fragment gets another file."""
    for number in range(COUNT):
        group = transaction.data_replacement.replacements.add(fragment_id=number)
        group.new_file.CopyFrom(before(number).files[0])
        group.new_file.path = f"new-{number}.lance"


def update(transaction: Transaction) -> None:
    """Each fragment gives way to a new one."""
    transaction.update.removed_fragment_ids.extend(range(COUNT))
    for number in range(COUNT):
        add_fragment(transaction.update.new_fragments.add(), f"new-{number}")


def overwrite(transaction: Transaction) -> None:
    """New fragments in place of all others."""
    transaction.overwrite.schema.extend(SCHEMA)
    for number in range(COUNT):
        add_fragment(transaction.overwrite.fragments.add(), f"new-{number}")


def delete(transaction: Transaction) -> None:
    """All fragments go."""
    transaction.delete.deleted_fragment_ids.extend(range(COUNT))


def update_config(transaction: Transaction) -> None:
    """Very many keys."""
    for number in range(COUNT):
        updates = transaction.update_config.config_updates.update_entries
        updates.add(key=f"key-{number}", value=f"value-{number}")


KINDS: Mapping[str, Callable[[Transaction], None]] = {
    make.__name__: make
    for make in (merge, rewrite, data_replacement, update, overwrite, delete, update_config)
}


def folded(make: Callable[[Transaction], None]) -> Mapping[str, object]:
    """What folding such a proposal takes."""
    table = created()
    table.fold(append("f", fragments=COUNT))
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = make.__name__, 2
    make(envelope.lance)
    data = encode(envelope)
    del envelope
    said: list[int] = []
    started = forget_peak()
    whole, packed = parsed_packed(data, said.append)
    entry = Entry(Position(LOG, table.offset), START_US, whole, len(data), packed=packed)
    (outcome,) = table.fold_group([entry]).outcomes
    return {"took": peak() - started, "said": said[-1], "kind": type(outcome.result).__name__}


def main(name: str) -> None:
    """Prints it."""
    sys.stdout.write(json.dumps(folded(KINDS[name])) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
