"""A Rewrite whose rows are more than can be followed."""

from __future__ import annotations

import tracemalloc

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from tests.folding import URI, MemoryTable, add_fragment, append, created

MANY, MEGABYTE = 2**26, 2**20


def claiming(rows: int) -> MemoryTable:
    """A table of two fragments that are said to have so many rows."""
    table = created(stable_row_ids=True)
    envelope = append(fragments=2)
    for fragment in envelope.lance.append.fragments:
        fragment.physical_rows = rows
    assert isinstance(table.result(envelope), Committed)
    return table


def rewriting(table: MemoryTable) -> Envelope:
    """Each fragment into a fragment like it, all in one group."""
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "rewrite", 2
    group = envelope.lance.rewrite.groups.add()
    for fragment in table.state.fragments:
        group.old_fragments.add().CopyFrom(fragment)
        new = group.new_fragments.add(inline_row_ids=fragment.inline_row_ids)
        add_fragment(new, f"new-{fragment.id}", fragment.physical_rows)
    return envelope


def test_rows_that_are_only_claimed_take_no_room() -> None:
    table = claiming(MANY)
    envelope = rewriting(table)
    tracemalloc.start()
    try:
        result = table.result(envelope)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(result, Invalid)
    assert "rewrite fewer fragments" in result.hint
    assert peak < MEGABYTE


def test_few_rows_are_followed() -> None:
    table = claiming(1000)
    assert isinstance(table.result(rewriting(table)), Committed)
