"""Which field ids a proposal uses, so that each must mean what it meant."""

from collections.abc import Callable

import pytest

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.identity import used
from tests.folding import append, created

Fill = Callable[[Transaction], object]


def with_files(transaction: Transaction, *files: tuple[str, list[int]]) -> None:
    """An updated fragment 0 with these files."""
    fragment = transaction.update.updated_fragments.add(id=0)
    for path, fields in files:
        fragment.files.add(path=path, fields=fields)


CASES: dict[str, tuple[Fill, set[int]]] = {
    "append": (
        lambda t: t.append.fragments.add().files.add(fields=[3, 4]),
        {3, 4},
    ),
    "rows moved": (lambda t: t.update.new_fragments.add().files.add(fields=[3, 4]), {3, 4}),
    "a column rewritten": (lambda t: with_files(t, ("f-0.lance", [0, -2]), ("new.lance", [1])), {1}),
    "fields modified": (lambda t: t.update.fields_modified.append(5), {5}),
    "fields of indices": (lambda t: t.update.fields_for_preserving_frag_bitmap.append(5), {5}),
    "keys": (lambda t: t.update.inserted_rows.field_ids.append(5), {5}),
    "replacement": (
        lambda t: t.data_replacement.replacements.add(fragment_id=0).new_file.fields.extend([3, 4]),
        {3, 4},
    ),
    "index": (lambda t: t.create_index.new_indices.add(fields=[3], covering_fields=[4]), {3, 4}),
    "field metadata": (lambda t: t.update_config.field_metadata_updates[5].SetInParent(), {5}),
    "older field metadata": (lambda t: t.update_config.field_metadata[5].SetInParent(), {5}),
    "other metadata": (lambda t: t.update_config.table_metadata_updates.SetInParent(), set()),
    "delete": (lambda t: t.delete.updated_fragments.add().files.add(fields=[3]), set()),
    "removed index": (lambda t: t.create_index.removed_indices.add(fields=[3]), set()),
    "nothing": (lambda _: None, set()),
}


@pytest.mark.parametrize(("fill", "ids"), CASES.values(), ids=CASES)
def test_used(fill: Fill, ids: set[int]) -> None:
    table = created()
    table.fold(append())
    transaction = Transaction()
    fill(transaction)
    assert used(transaction, table.state) == ids
