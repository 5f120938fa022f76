"""Where a Rewrite moves rows: compared with rows that are written in turn into lists."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.rows.row_moves import TracedRows, moved_rows

ROW_BITS = 32
FRAGMENTS = st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=5)
"""For each old fragment and each of its rows whether it was deleted."""


@given(dead=FRAGMENTS, cuts=st.lists(st.integers(0, 60), max_size=4), data=st.data())
def test_each_row_is_found_in_its_new_fragment(
    dead: list[list[bool]], cuts: list[int], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(dead))))
    live = [(number, row) for number in order for row, gone in enumerate(dead[number]) if not gone]
    bounds = [0, *sorted(min(cut, len(live)) for cut in cuts), len(live)]
    parts = [live[begin:end] for begin, end in pairwise(bounds) if end > begin]
    left_out = data.draw(st.sets(st.integers(0, len(parts)), max_size=2))
    group = Transaction.Rewrite.RewriteGroup()
    for number in order:
        old = group.old_fragments.add(id=number, physical_rows=len(dead[number]))
        if any(dead[number]):
            # A file whose number of rows isn't stated has to be read.
            old.deletion_file.num_deleted_rows = data.draw(st.sampled_from([0, sum(dead[number])]))
    for index, part in enumerate(parts):
        group.new_fragments.add(id=0 if index in left_out else 100 + index, physical_rows=len(part))
    chosen = {number: data.draw(st.sets(st.integers(0, len(rows) - 1))) for number, rows in enumerate(dead)}
    traced = {number: TracedRows.of(number, Bitmap(sorted(rows))) for number, rows in chosen.items()}
    traced[50] = TracedRows.of(50, Bitmap([3]))
    deleted = {
        number: Bitmap([row for row, gone in enumerate(rows) if gone]) for number, rows in enumerate(dead)
    }

    moved, gone = moved_rows(traced, group, lambda fragment: deleted[fragment.id])

    actual = {
        origin: (number, offset)
        for number, each in moved.items()
        for offset, origin in zip(each.offsets.tolist(), each.origins.tolist(), strict=True)
    }
    expected = {
        number << ROW_BITS | row: (100 + index, row_offset)
        for index, part in enumerate(parts)
        if index not in left_out
        for row_offset, (number, row) in enumerate(part)
        if row in chosen[number]
    }
    assert actual == {50 << ROW_BITS | 3: (50, 3), **expected}
    every = {number << ROW_BITS | row for number, rows in chosen.items() for row in rows}
    assert set([] if gone is None else gone.origins.tolist()) == every - expected.keys()
    assert all(each.offsets.tolist() == sorted(each.offsets.tolist()) for each in moved.values())
