"""A version that several entries share: no proposal passes it that would conflict with its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.lance.combine_transactions import (
    APPEND,
    DELETE,
    INSERT,
    ROWS,
    UPDATE,
    combined,
    did,
    sharing,
)
from lakefold_table.lance.conflicts import footprint_of, judge
from lakefold_table.lance.kinds import Kind
from tests.properties.test_conflicts import FOOTPRINTS, MANY, rank, transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.conflicts import Footprint

IDS = st.integers(0, 3)
SOME = st.frozensets(IDS, max_size=3)


def fragments(ids: Sequence[int]) -> list[dict[str, object]]:
    """Fragments of the table: whoever deletes rows leaves their data files as they are."""
    return [{"id": number, "files": [{"path": f"{number}", "fields": [0, 1]}]} for number in sorted(ids)]


def delete(updated: Sequence[int], removed: Sequence[int]) -> Transaction:
    content = {"updated_fragments": fragments(updated), "deleted_fragment_ids": sorted(removed)}
    return transaction("delete", content)


def update(
    updated: Sequence[int], removed: Sequence[int], new: int, preserving: Sequence[int]
) -> Transaction:
    content = {
        "updated_fragments": fragments(updated),
        "removed_fragment_ids": sorted(removed),
        "new_fragments": [{"files": [{"path": f"new {number}", "fields": [0, 1]}]} for number in range(new)],
        "fields_for_preserving_frag_bitmap": sorted(preserving),
    }
    return transaction("update", content)


APPENDS = st.just(transaction("append", {"fragments": [{"files": [{"path": "a", "fields": [0, 1]}]}]}))
DELETES = st.builds(delete, SOME, SOME)
UPDATES = st.builds(update, SOME, SOME, st.integers(0, 2), SOME)
ALIKE = st.one_of([st.lists(kind, min_size=2, max_size=4) for kind in (APPENDS, DELETES, UPDATES)]).filter(
    lambda parts: len({sharing(part, has_log=True) for part in parts}) == 1
)
PARTS = ALIKE | st.lists(APPENDS | DELETES | UPDATES, min_size=2, max_size=5)
OF_NO_LOG = FOOTPRINTS.filter(lambda ours: ours.kind is not Kind.UPDATE_MEM_WAL_STATE)
"""What is proposed for a table without a write-ahead log: nobody can move forward what isn't there."""


def together(parts: Sequence[Transaction]) -> Transaction:
    """The transaction of the version that these share."""
    replaced = {number: DataFragment(**fragments([number])[0]) for number in range(4)}  # type: ignore[arg-type]
    proposed = [fragment.SerializeToString() for part in parts for fragment in part.append.fragments]
    return combined(parts, proposed, replaced)


@MANY
@given(OF_NO_LOG, PARTS)
def test_no_verdict_is_weaker_than_on_any_part(ours: Footprint, parts: list[Transaction]) -> None:
    assert len({sharing(part) for part in parts}) == 1
    whole = judge(ours, footprint_of(together(parts)), 7)
    assert all(rank(judge(ours, footprint_of(part), 7)) <= rank(whole) for part in parts)


@MANY
@given(FOOTPRINTS, ALIKE)
def test_nor_with_a_write_ahead_log(ours: Footprint, parts: list[Transaction]) -> None:
    whole = judge(ours, footprint_of(together(parts)), 7)
    assert all(rank(judge(ours, footprint_of(part), 7)) <= rank(whole) for part in parts)


@MANY
@given(ALIKE)
def test_what_was_merged_of_one_kind_is_of_that_kind(parts: list[Transaction]) -> None:
    whole = together(parts)
    assert did(whole) == did(parts[0]) == sharing(whole, has_log=True)
    assert did(whole) in {APPEND, DELETE, UPDATE, INSERT}


@MANY
@given(PARTS)
def test_what_was_merged_touches_what_its_parts_touch(parts: list[Transaction]) -> None:
    whole = together(parts)
    assert sharing(whole) == ROWS
    proposed = [
        fragment for part in parts for fragment in (*part.append.fragments, *part.update.new_fragments)
    ]
    assert [*whole.append.fragments, *whole.update.new_fragments] == proposed
    assert footprint_of(whole).touched == frozenset().union(*(footprint_of(part).touched for part in parts))
    assert footprint_of(whole).removed == frozenset().union(*(footprint_of(part).removed for part in parts))
