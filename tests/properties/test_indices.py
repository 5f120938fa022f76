"""An index never claims a fragment with rows that it doesn't know, whatever was compacted before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakefold_protos.lance.table_pb2 import (
    UUID,
    FragmentReuseIndexDetails,
    IndexMetadata,
    IndexSection,
    Manifest,
)
from lakefold_table.bitmaps import Bitmap, decode_bitmap, encode_bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.indexing.indices import (
    FRAGMENT_REUSE,
    coverage,
    with_fragments,
    without_fields,
    without_fragments,
    without_idle,
)
from lakefold_table.lance.indexing.reuse import (
    is_outdated,
    needs_of_section,
    remapped,
    rewritten_by,
    without_reuse,
)

FRAGMENTS = 6
IDS = st.integers(0, 9)
Group = tuple[list[int], list[int]]


def nothing(_path: str) -> bytes | None:
    return None


def index(covers: set[int], fields: tuple[int, ...] = (0,), name: str = "i", built: int = 1) -> IndexMetadata:
    return IndexMetadata(
        name=name, fields=fields, dataset_version=built, fragment_bitmap=encode_bitmap(Bitmap(covers))
    )


def covered(entry: IndexMetadata) -> set[int]:
    return set(coverage(entry) or ())


@given(covers=st.sets(st.integers(0, FRAGMENTS - 1)), data=st.data())
def test_what_is_covered_after_compactions_is_known(covers: set[int], data: st.DataObject) -> None:
    rows = {number: {number} for number in range(FRAGMENTS)}
    known = set(covers)
    fresh = FRAGMENTS
    versions = []
    for number in range(data.draw(st.integers(0, 4), "compactions")):
        version = FragmentReuseIndexDetails.Version(dataset_version=number + 2)
        for _ in range(data.draw(st.integers(0, 2), "groups")):
            old = data.draw(st.lists(st.sampled_from(sorted(rows)), min_size=1, unique=True), "old")
            moved = sorted(set().union(*(rows.pop(number) for number in old)))
            cut = data.draw(st.integers(0, len(moved)), "cut")
            new = {fresh: set(moved[:cut]), fresh + 1: set(moved[cut:])}
            fresh += 2
            rows.update(new)
            group = version.groups.add()
            for each in old:
                group.old_fragments.add(id=each)
            for each in new:
                group.new_fragments.add(id=each)
        versions.append(version)
    reported = rewritten_by(IndexMetadata(uuid=UUID(uuid=bytes(16)), name=FRAGMENT_REUSE), versions)
    (_, after) = remapped(Manifest(), [reported, index(covers)], nothing)
    for fragment in covered(after) & rows.keys():
        assert rows[fragment] <= known
    assert remapped(Manifest(), [reported, after], nothing)[1] is after


@given(data=st.data())
def test_a_reuse_index_is_outdated_if_others_moved_rows_that_it_leads_to(data: st.DataObject) -> None:
    """Some compactions are recorded and some are not; then no index covers what one of them has written."""
    live, fresh, lost = set(range(FRAGMENTS)), FRAGMENTS, False
    recorded: list[FragmentReuseIndexDetails.Version] = []
    leads_to = set[int]()
    for number in range(data.draw(st.integers(0, 5), "compactions")):
        old = data.draw(st.sets(st.sampled_from(sorted(live)), min_size=1), "old")
        live = live - old | {fresh}
        if data.draw(st.booleans(), "recorded"):
            version = FragmentReuseIndexDetails.Version(dataset_version=number + 2)
            group = version.groups.add()
            for each in sorted(old):
                group.old_fragments.add(id=each)
            group.new_fragments.add(id=fresh)
            recorded.append(version)
            leads_to = leads_to - old | {fresh}
        else:
            lost = lost or not leads_to.isdisjoint(old)
        fresh += 1
    assert is_outdated(recorded, live.intersection) is lost
    reuse = rewritten_by(IndexMetadata(uuid=UUID(uuid=bytes(16)), name=FRAGMENT_REUSE), recorded)
    covers = data.draw(st.sets(st.integers(0, fresh)), "covers")
    unknown = IndexMetadata(name="j", fields=[1])
    after = without_reuse([reuse, index(covers), unknown], recorded)
    written = [fragment.id for version in recorded for fragment in version.groups[0].new_fragments]
    assert [each.name for each in after] == ["i", "j"]
    assert covered(after[0]) == {each for each in covers if each < min(written, default=fresh + 1)}
    assert covered(after[1]) == set()


@given(st.lists(st.tuples(st.sets(IDS), st.sets(IDS, max_size=2)), max_size=5), st.sets(IDS), st.sets(IDS))
def test_changed_fragments_are_covered_by_no_index_on_their_fields(
    indices: list[tuple[set[int], set[int]]], fields: set[int], fragments: set[int]
) -> None:
    before = [index(covers, tuple(sorted(on))) for covers, on in indices]
    after = without_fragments(before, fields, fragments)
    for first, (covers, on) in zip(after, indices, strict=True):
        assert covered(first) == (covers - fragments if on & fields else covers)
    kept = without_fields(before, fields)
    assert [set(index.fields) for index in kept] == [on for _, on in indices if on <= fields]


@given(
    st.lists(st.tuples(st.sets(IDS), st.sets(IDS, max_size=2)), max_size=5), IDS, st.sets(IDS), st.sets(IDS)
)
def test_moved_rows_are_covered_if_all_of_them_were(
    indices: list[tuple[set[int], set[int]]], changed: int, sources: set[int], new: set[int]
) -> None:
    before = [index(covers, tuple(sorted(on))) for covers, on in indices]
    after = with_fragments(before, [changed], sources, new)
    for first, (covers, on) in zip(after, indices, strict=True):
        extends = sources <= covers and changed not in on
        assert covered(first) == (covers | new if extends else covers)


@given(st.lists(st.tuples(st.sampled_from("ij"), st.sets(IDS), st.integers(0, 3)), max_size=6), st.sets(IDS))
def test_an_index_loses_segments_but_no_coverage(
    segments: list[tuple[str, set[int], int]], live: set[int]
) -> None:
    before = [index(covers, name=name, built=built) for name, covers, built in segments]
    after = without_idle(before, live.intersection)
    for name in "ij":
        was = [index for index in before if index.name == name]
        now = [index for index in after if index.name == name]
        assert bool(was) == bool(now)
        assert set().union(*map(covered, was)) & live == set().union(*map(covered, now)) & live
        assert len(now) <= 1 or all(covered(index) & live for index in now)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_bytes_of_anybody_are_damage_or_an_answer(details: bytes, bitmap: bytes) -> None:
    entry = IndexMetadata(uuid=UUID(uuid=b"r" * 16), name=FRAGMENT_REUSE, fragment_bitmap=bitmap)
    entry.index_details.value = details
    other = IndexMetadata(name="i", fields=[0], fragment_bitmap=bitmap)
    needs_of_section(Manifest(), IndexSection(indices=[entry]).SerializeToString())
    try:
        read = remapped(Manifest(), [entry, other], nothing)
    except DamagedError:
        return
    for index in read:
        assert not index.fragment_bitmap or encode_bitmap(decode_bitmap(index.fragment_bitmap))
