"""The index section: how a table's indices change when fragments or columns change.

An index lists the fragments that it covers, and fragments that it doesn't cover are scanned. So an index that
covers too little makes queries slow, and an index that covers too much makes them wrong. Every operation that
moves or changes values therefore removes fragments from the coverage of the indices concerned.

All functions take a sequence of entries and return one. They return the same objects if nothing changes, also
the same sequence, so that a caller can compare by `is`. Source: Lance facts 6.3, 6.4 and 10.1 to 10.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from lakefold_protos.lance.table_pb2 import IndexMetadata
from lakefold_table.bitmaps import Bitmap, decode_bitmap, encode_bitmap

Indices = Sequence[IndexMetadata]
Live = Callable[[Collection[int]], Collection[int]]
"""Returns those of some fragment ids that the table has, e.g. `Fragments.taken`."""

FRAGMENT_REUSE = "__lance_frag_reuse"
"""The index that records into which fragments the rows of rewritten fragments were moved (Lance fact
10.7)."""
MEM_WAL = "__lance_mem_wal"
"""The index that records how much of the table's write-ahead log was merged into it (Lance fact 10.9)."""

ALWAYS_BY_ADDRESS = frozenset({"ZoneMapIndexDetails", "BloomFilterIndexDetails"})
BTREE = "BTreeIndexDetails"
BTREE_BY_ADDRESS = 1
"""From this version a BTREE refers to rows by address, even if rows have stable ids."""
SIFTING = frozenset({"delete", "update", "merge", "project"})
"""The operations, as the transaction message names them, that remove idle segments (`without_idle`)."""
SOME = 64
"""How many fragments of an index are looked up at a time to find any that exists."""


def type_of(index: IndexMetadata) -> str:
    """Returns the type of an index, e.g. `BTreeIndexDetails`; empty if the entry doesn't state it.

    pylance uses only what follows the last dot of the type URL (Lance fact 10.2).
    """
    return kind_of_url(index.index_details.type_url)


def kind_of_url(type_url: str) -> str:
    """Returns the type of an index from the type URL of its details."""
    return type_url.rpartition("/")[2].rpartition(".")[2]


def is_address_based(index: IndexMetadata) -> bool:
    """Returns whether the index refers to rows by address despite stable row ids (Lance fact 10.2)."""
    kind = type_of(index)
    return kind in ALWAYS_BY_ADDRESS or (kind == BTREE and index.index_version >= BTREE_BY_ADDRESS)


def coverage(index: IndexMetadata) -> Bitmap | None:
    """Returns the ids of the fragments that the index covers, including removed ones; None if unknown.

    Raises `DamagedError` if its bitmap can't be read.
    """
    data = index.fragment_bitmap
    return decode_bitmap(data, f"index {index.name}") if data else None


def effective_coverage(index: IndexMetadata, live: Live) -> Bitmap | None:
    """Returns the ids of the existing fragments that the index covers, None if unknown."""
    covered = coverage(index)
    return None if covered is None else Bitmap(live(list(covered)))


def covering(index: IndexMetadata, fragments: Bitmap) -> IndexMetadata:
    """Returns the entry with another coverage."""
    changed = IndexMetadata()
    changed.CopyFrom(index)
    changed.fragment_bitmap = encode_bitmap(fragments, runs=True)
    return changed


def without_fragments(indices: Indices, field_ids: Collection[int], fragment_ids: Collection[int]) -> Indices:
    """Returns the indices after values of these fields changed in these fragments.

    Indices on these fields no longer cover the fragments. For Update rewrite_columns, DataReplacement and
    Merge. An index with an unknown coverage stays the same.
    """
    fields, changed = frozenset(field_ids), Bitmap(fragment_ids)
    return _each(
        indices, lambda index: _uncovering(index, changed) if fields.intersection(index.fields) else index
    )


def without_fields(indices: Indices, kept_field_ids: Collection[int]) -> Indices:
    """Returns the indices whose fields all still exist; an index without fields (a table's own) stays."""
    remaining = frozenset(kept_field_ids)
    kept_indices = tuple(index for index in indices if remaining.issuperset(index.fields))
    return indices if len(kept_indices) == len(indices) else kept_indices


def with_fragments(
    indices: Indices, changed_fields: Collection[int], sources: Collection[int], new_ids: Collection[int]
) -> Indices:
    """Returns the indices after an Update moved rows of `sources` into new fragments, with stable row ids.

    An index that refers to rows by id covers the new fragments too, if it covers all of `sources` and none of
    its fields is in `changed_fields` (the transaction's `fields_for_preserving_frag_bitmap`). `new_ids`: the
    new fragments that have moved rows only. If there are none, nothing changes.
    """
    if not new_ids:
        return indices
    changed, origin, new = frozenset(changed_fields), Bitmap(sources), Bitmap(new_ids)

    def extended(index: IndexMetadata) -> IndexMetadata:
        if is_address_based(index) or changed.intersection(index.fields):
            return index
        covered = coverage(index)
        if covered is None or not origin.issubset(covered) or new.issubset(covered):
            return index
        return covering(index, covered | new)

    return _each(indices, extended)


def without_idle(indices: Indices, live: Live) -> Indices:
    """Returns the indices without segments that cover no existing fragment, if the index has others.

    Several entries with the same name are segments of an index. If all of them are idle, the segment built
    from the oldest version stays, so that the index does. pylance does this in the operations named in
    `SIFTING` only (Lance fact 10.4). `live`: looks up fragments after the operation.
    """
    segments: dict[str, list[int]] = defaultdict(list)
    for number, index in enumerate(indices):
        segments[index.name].append(number)
    spare = {
        number
        for numbers in segments.values()
        if len(numbers) > 1
        for number in _spare(indices, numbers, live)
    }
    return tuple(index for number, index in enumerate(indices) if number not in spare) if spare else indices


def _spare(indices: Indices, numbers: list[int], live: Live) -> list[int]:
    """Returns the numbers of those segments of an index that are removed."""
    idle = [number for number in numbers if _covers_nothing(indices[number], live)]
    if len(idle) == len(numbers):
        idle.remove(min(idle, key=lambda number: indices[number].dataset_version))
    return idle


def _covers_nothing(index: IndexMetadata, live: Live) -> bool:
    covered = coverage(index)
    if covered is None:
        return False
    ids = list(covered)
    return not any(live(ids[start : start + SOME]) for start in range(0, len(ids), SOME))


def _uncovering(index: IndexMetadata, removed: Bitmap) -> IndexMetadata:
    covered = coverage(index)
    if covered is None or covered.isdisjoint(removed):
        return index
    return covering(index, covered - removed)


def _each(indices: Indices, change: Callable[[IndexMetadata], IndexMetadata]) -> Indices:
    changed = tuple(change(index) for index in indices)
    return indices if _same(changed, indices) else changed


def _same(before: Iterable[IndexMetadata], after: Iterable[IndexMetadata]) -> bool:
    return all(old is new for old, new in zip(before, after, strict=True))
