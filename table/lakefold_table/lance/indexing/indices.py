"""The index section: what becomes of a table's indices where fragments or columns change under them.

An index says which fragments it covers; what it doesn't cover is scanned beside it, so an index that covers
too little is slow, and one that covers too much gives wrong rows. Every operation that moves or changes
values therefore says here which indices no longer describe what.

All functions take a sequence of entries and give one. They hand back the very objects they got where nothing
changes, the sequence itself too, so that a caller sees by `is` that there is nothing to write. Source: Lance
facts 6.3, 6.4 and 10.1 to 10.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from lakefold_protos.lance.table_pb2 import IndexMetadata
from lakefold_table.lance.rows.bitmaps import Bitmap, decode_bitmap, encode_bitmap

Indices = Sequence[IndexMetadata]
Live = Callable[[Collection[int]], Collection[int]]
"""Which of some fragment ids the table bears, e.g. `Fragments.taken`."""

FRAGMENT_REUSE = "__lance_frag_reuse"
"""The index that tells where the rows of rewritten fragments went."""
MEM_WAL = "__lance_mem_wal"
"""The index that tells how far the table has caught up with its write-ahead log."""

ALWAYS_BY_ADDRESS = frozenset({"ZoneMapIndexDetails", "BloomFilterIndexDetails"})
BTREE = "BTreeIndexDetails"
BTREE_BY_ADDRESS = 1
"""From this version on a BTREE knows rows by their address, also where rows have stable ids."""
SIFTING = frozenset({"delete", "update", "merge", "project"})
"""The operations, as the transaction message names them, after which idle segments go (`without_idle`)."""
SOME = 64
"""So many of an index's fragments are looked up at once to see whether it covers any that is there."""


def type_of(index: IndexMetadata) -> str:
    """The name of the kind of index, e.g. `BTreeIndexDetails`; empty where the entry doesn't say.

    pylance looks only at what follows the last dot of the type URL (Lance fact 10.2).
    """
    return kind_of_url(index.index_details.type_url)


def kind_of_url(type_url: str) -> str:
    """The same of the type URL itself."""
    return type_url.rpartition("/")[2].rpartition(".")[2]


def is_address_based(index: IndexMetadata) -> bool:
    """Whether the index knows rows by address even if the table has stable row ids (Lance fact 10.2)."""
    kind = type_of(index)
    return kind in ALWAYS_BY_ADDRESS or (kind == BTREE and index.index_version >= BTREE_BY_ADDRESS)


def coverage(index: IndexMetadata) -> Bitmap | None:
    """The ids of the fragments that the index covers, dead ones among them; None where it doesn't say.

    Raises `DamagedError` where its bitmap can't be read.
    """
    data = index.fragment_bitmap
    return decode_bitmap(data, f"index {index.name}") if data else None


def effective_coverage(index: IndexMetadata, live: Live) -> Bitmap | None:
    """The ids of the fragments that are there and that the index covers; None where it doesn't say."""
    covered = coverage(index)
    return None if covered is None else Bitmap(live(list(covered)))


def covering(index: IndexMetadata, fragments: Bitmap) -> IndexMetadata:
    """The entry with another coverage."""
    changed = IndexMetadata()
    changed.CopyFrom(index)
    changed.fragment_bitmap = encode_bitmap(fragments, runs=True)
    return changed


def without_fragments(indices: Indices, field_ids: Collection[int], fragment_ids: Collection[int]) -> Indices:
    """Where values of these fields changed in these fragments: no index on them covers those any more.

    For Update rewrite_columns, DataReplacement and Merge. An index that doesn't say what it covers stays so.
    """
    fields, gone = frozenset(field_ids), Bitmap(fragment_ids)
    return _each(
        indices, lambda index: _uncovering(index, gone) if fields.intersection(index.fields) else index
    )


def without_fields(indices: Indices, kept_field_ids: Collection[int]) -> Indices:
    """Without the indices on a field that is no more; one without fields (a table's own) stays."""
    kept = frozenset(kept_field_ids)
    stays = tuple(index for index in indices if kept.issuperset(index.fields))
    return indices if len(stays) == len(indices) else stays


def with_fragments(
    indices: Indices, changed_fields: Collection[int], sources: Collection[int], new_ids: Collection[int]
) -> Indices:
    """Where an Update moved rows of the fragments `sources` into new ones on a table with stable row ids.

    An index that knows rows by their ids describes them there too, if none of its fields was changed
    (`changed_fields`: the transaction's `fields_for_preserving_frag_bitmap`) and it covers all of `sources`.
    `new_ids`: the new fragments that hold moved rows only. Nothing changes where there are none.
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
    """Without the segments of an index that cover nothing that is there, where it has another segment.

    Several entries of one name are segments of one index. Where all of them cover nothing, the one built
    from the oldest version stays, and with it the index. pylance does so in the operations named in `SIFTING`
    and in no other (Lance fact 10.4). `live`: after the operation.
    """
    segments: dict[str, list[int]] = defaultdict(list)
    for place, index in enumerate(indices):
        segments[index.name].append(place)
    spare = {
        place for places in segments.values() if len(places) > 1 for place in _spare(indices, places, live)
    }
    return tuple(index for place, index in enumerate(indices) if place not in spare) if spare else indices


def _spare(indices: Indices, places: list[int], live: Live) -> list[int]:
    """The places of those segments of one index that may go."""
    idle = [place for place in places if _covers_nothing(indices[place], live)]
    if len(idle) == len(places):
        idle.remove(min(idle, key=lambda place: indices[place].dataset_version))
    return idle


def _covers_nothing(index: IndexMetadata, live: Live) -> bool:
    covered = coverage(index)
    if covered is None:
        return False
    ids = list(covered)
    return not any(live(ids[start : start + SOME]) for start in range(0, len(ids), SOME))


def _uncovering(index: IndexMetadata, gone: Bitmap) -> IndexMetadata:
    covered = coverage(index)
    if covered is None or covered.isdisjoint(gone):
        return index
    return covering(index, covered - gone)


def _each(indices: Indices, change: Callable[[IndexMetadata], IndexMetadata]) -> Indices:
    changed = tuple(change(index) for index in indices)
    return indices if _same(changed, indices) else changed


def _same(one: Iterable[IndexMetadata], other: Iterable[IndexMetadata]) -> bool:
    return all(left is right for left, right in zip(one, other, strict=True))
