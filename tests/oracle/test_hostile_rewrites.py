"""Rewrites that would lose a column, restore rows or stop the committer; pylance takes most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pytest

from lakefold_protos.lance.rowids_pb2 import RowDatasetVersionSequence, RowIdSequence, U64Segment
from lakefold_table.entry import Committed, Invalid
from lakefold_table.lance.rows.row_versions import one_version
from lakefold_table.lance.rows.rowids import row_id_range
from tests.oracle.compactions import replayed
from tests.oracle.test_rewrites import compact, make, new_fragment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction


@pytest.mark.parametrize(
    "change",
    [
        lambda e: setattr(e, "inline_row_ids", row_id_range(0, 40)),
        lambda e: setattr(e, "inline_created_at_versions", one_version(40, 1)),
        lambda e: setattr(e, "inline_last_updated_at_versions", b"none at all"),
    ],
    ids=["ids", "created", "updated"],
)
def test_row_ids_and_versions_have_no_place_in_a_table_without_them(
    change: Callable[[DataFragment], None], tmp_path: Path
) -> None:
    both = replayed(
        make(tmp_path / "t", stable=False),
        compact,
        change=lambda envelope: change(new_fragment(envelope.lance.rewrite)),
    )
    assert isinstance(both.result, Invalid)
    assert "row ids or row versions" in both.result.message


def without_last_column(fragment: DataFragment) -> None:
    file = fragment.files[0]
    del file.fields[-1], file.column_indices[-1]


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_no_column_is_forgotten(stable: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    both = replayed(
        make(tmp_path / "t", stable=stable, index=False),
        compact,
        change=lambda envelope: without_last_column(new_fragment(envelope.lance.rewrite)),
    )
    assert isinstance(both.result, Invalid)
    assert "fields [2] of fragments [0, 1, 2, 3] are in no file of a new fragment" in both.result.message


def test_an_old_file_is_not_that_of_a_new_fragment(tmp_path: Path) -> None:
    """It would have the rows that were deleted from it."""
    table = make(tmp_path / "t", stable=False, index=False)
    lance.dataset(str(table)).delete("a = 3")

    def old_file(envelope: Envelope) -> None:
        rewrite = envelope.lance.rewrite
        new_fragment(rewrite).files[0].CopyFrom(rewrite.groups[0].old_fragments[0].files[0])

    both = replayed(table, compact, change=old_file)
    assert isinstance(both.result, Invalid)
    assert "its rows would be in the table twice" in both.result.message


def without_groups(rewrite: Transaction.Rewrite) -> None:
    del rewrite.groups[:]


def to_another_type(rewrite: Transaction.Rewrite) -> None:
    for index in rewrite.rewritten_indices:
        index.new_index_details.type_url = "/lance.table.LabelListIndexDetails"


REMAPPED = {
    "covers none of the rewritten fragments": without_groups,
    "is remapped to another type": to_another_type,
}


@pytest.mark.parametrize("message", REMAPPED)
def test_an_index_is_remapped_to_the_new_addresses_of_its_rows(message: str, tmp_path: Path) -> None:
    both = replayed(
        make(tmp_path / "t", stable=False),
        compact,
        change=lambda envelope: REMAPPED[message](envelope.lance.rewrite),
    )
    assert isinstance(both.result, Invalid), both.result
    assert message in both.result.message


FORMS = ("bitmap", "holes", "empty")


def ranged(start: int, end: int, numbers: range, form: str) -> bytes:
    """These row ids as a sequence with a range that ends after them."""
    sequence = RowIdSequence()
    segment = sequence.segments.add()
    match form:
        case "bitmap":
            bits = [number in numbers for number in range(start, end)]
            segment.range_with_bitmap.bitmap = np.packbits(bits, bitorder="little").tobytes()
            segment.range_with_bitmap.start, segment.range_with_bitmap.end = start, end
        case "holes":
            holes = [number for number in range(start, end) if number not in numbers]
            segment.range_with_holes.holes.u64_array.values = np.array(holes, "<u8").tobytes()
            segment.range_with_holes.start, segment.range_with_holes.end = start, end
        case _:
            segment.range.start = segment.range.end = end
            sequence.segments.add().range.CopyFrom(U64Segment.Range(start=numbers.start, end=numbers.stop))
    return sequence.SerializeToString()


@pytest.mark.parametrize("form", FORMS)
def test_row_ids_in_a_range_that_ends_above_all_ids_stop_no_committer(form: str, tmp_path: Path) -> None:
    """Pylance commits them, and calls the table corrupt, but for an empty range."""
    ids = ranged(0, 64, range(40), form)
    both = replayed(
        make(tmp_path / "t", stable=True),
        compact,
        change=lambda envelope: setattr(new_fragment(envelope.lance.rewrite), "inline_row_ids", ids),
    )
    assert isinstance(both.result, Committed)
    dataset = lance.dataset(str(both.ours))
    dataset.validate()
    rows = dataset.to_table(columns=["a"], with_row_id=True)
    assert rows["_rowid"].to_pylist() == rows["a"].to_pylist() == list(range(40))


def test_a_version_of_no_row_stops_no_committer(tmp_path: Path) -> None:
    def longer(envelope: Envelope) -> None:
        fragment = new_fragment(envelope.lance.rewrite)
        versions = RowDatasetVersionSequence.FromString(fragment.inline_created_at_versions)
        versions.runs.add(version=99).span.range.SetInParent()
        fragment.inline_created_at_versions = versions.SerializeToString()

    both = replayed(make(tmp_path / "t", stable=True), compact, change=longer)
    assert isinstance(both.result, Committed)
    lance.dataset(str(both.ours)).validate()
