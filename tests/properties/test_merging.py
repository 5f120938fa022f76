"""A version that several entries share: nobody fares better against it than against its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.lance.conflicts import footprint_of, judge
from lakefold_table.lance.merging import APPENDS, DELETES, INSERTS, UPDATES, merged, sharing
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


APPEND = transaction("append", {"fragments": [{"files": [{"path": "a", "fields": [0, 1]}]}]})
DELETE = st.builds(delete, SOME, SOME)
UPDATE = st.builds(update, SOME, SOME, st.integers(0, 2), SOME)
PARTS = st.one_of(
    [st.lists(kind, min_size=2, max_size=4) for kind in (st.just(APPEND), DELETE, UPDATE)]
).filter(lambda parts: len({sharing(one) for one in parts}) == 1)


def together(parts: Sequence[Transaction]) -> Transaction:
    """The transaction of the version that these share."""
    replaced = {number: DataFragment(**fragments([number])[0]) for number in range(4)}  # type: ignore[arg-type]
    proposed = [one.SerializeToString() for part in parts for one in part.append.fragments]
    return merged(parts, proposed, replaced)


@MANY
@given(FOOTPRINTS, PARTS)
def test_no_verdict_is_weaker_than_on_any_part(ours: Footprint, parts: list[Transaction]) -> None:
    whole = judge(ours, footprint_of(together(parts)), 7)
    assert all(rank(judge(ours, footprint_of(part), 7)) <= rank(whole) for part in parts)


@MANY
@given(PARTS)
def test_what_was_merged_is_of_the_kind_of_its_parts(parts: list[Transaction]) -> None:
    whole = together(parts)
    assert sharing(whole) == sharing(parts[0])
    assert sharing(whole) in {APPENDS, DELETES, UPDATES, INSERTS}
    assert footprint_of(whole).touched == frozenset().union(*(footprint_of(one).touched for one in parts))
    assert footprint_of(whole).removed == frozenset().union(*(footprint_of(one).removed for one in parts))
