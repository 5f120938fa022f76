"""The list of fragments under any changes: the fragments and bytes of a plain dict, in bounded chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.chunks import CHUNK_BYTES, MAX_CHUNK_BYTES, encode_records
from lakefold_table.lance.manifests.codec import decode_file
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from tests.encoding import encode_file, fragments_of

MOST_IDS = 3_000
SIZES = st.sampled_from([0, 1, 40, 300, 2_000, CHUNK_BYTES - 60, CHUNK_BYTES, 3 * CHUNK_BYTES])
Change = tuple[dict[int, Numbered], set[int], list[Numbered]]


def fragment(number: int, rows: int, filler: int, deleted: int | None) -> Numbered:
    """`filler` makes the record long; `deleted` is None without a deletion file, 0 without a count."""
    fragment = DataFragment(id=number, physical_rows=rows)
    fragment.files.add(path="x" * filler, fields=[0])
    if deleted is not None:
        fragment.deletion_file.num_deleted_rows = deleted
    return Numbered.of(fragment)


@st.composite
def changes(draw: st.DrawFn, present: frozenset[int]) -> Change:
    """A change of a list that has these ids."""

    def some(ids: list[int]) -> list[int]:
        return draw(st.lists(st.sampled_from(ids), unique=True, max_size=12)) if ids else []

    def runs(ids: list[int]) -> list[int]:
        """Many adjacent fragments at once, which no list drawn one by one would be."""
        start = draw(st.integers(0, len(ids)))
        return ids[start : start + draw(st.sampled_from([0, 0, 3, 200, 1_000]))]

    def made(numbers: list[int]) -> list[Numbered]:
        size, deleted = draw(SIZES), draw(st.sampled_from([None, None, 0, 2]))
        size = min(size, 200) if len(numbers) > 20 else size
        least = draw(st.sampled_from([0, 3]))
        return [fragment(number, least + number % 5, size, deleted) for number in numbers]

    live, free = sorted(present), sorted(set(range(MOST_IDS)) - present)
    replaced = {fragment.id: fragment for fragment in made(sorted({*some(live), *runs(live)}))}
    return replaced, {*some(live), *runs(live)}, made(sorted({*some(free), *runs(free)}))


def check_bounds(fragments: Fragments) -> None:
    sizes = [len(chunk.encoded) for chunk in fragments.chunks]
    long = [chunk for chunk in fragments.chunks if len(chunk.encoded) > MAX_CHUNK_BYTES]
    assert all(len(chunk.ids) == 1 for chunk in long)
    assert all(number + other > CHUNK_BYTES for number, other in pairwise(sizes))
    assert all(chunk.ids for chunk in fragments.chunks)


def check_equal(fragments: Fragments, model: dict[int, Numbered]) -> None:
    """Bytes, ids and sums are those of the model, and of the same list read again."""
    ids = sorted(model)
    encoded = b"".join(chunk.encoded for chunk in fragments.chunks)
    assert encoded == encode_records([model[number].encoded for number in ids])
    assert list(fragments.ids()) == ids
    assert fragments.tally == fragments_of([model[number].encoded for number in ids]).tally
    assert fragments.size == len(encoded)
    assert fragments.physical_rows == sum(fragment.physical_rows for fragment in model.values())
    assert fragments.deleted_rows == sum(fragment.deleted_rows for fragment in model.values())
    assert fragments.has_deletions == any(fragment.has_deletion_file for fragment in model.values())
    assert fragments.counts_rows == all(
        fragment.physical_rows and (fragment.deleted_rows or not fragment.has_deletion_file)
        for fragment in model.values()
    )
    for chunk in fragments.chunks:
        assert [fragment.id for fragment in chunk.decode()] == list(chunk.ids)


def check_shared(before: Fragments, after: Fragments, change: Change) -> None:
    """Only the changed chunks, and a neighbour on each side of them, are new."""
    replaced, removed, added = change
    changed_chunks = {
        before._chunk_index(number) for number in (*replaced, *removed, *(fragment.id for fragment in added))
    }
    beside = {index + step for index in changed_chunks for step in (-1, 0, 1)}
    kept = {id(chunk) for chunk in after.chunks}
    for index, chunk in enumerate(before.chunks):
        assert id(chunk) in kept or index in beside


def check_unlike(before: Fragments, after: Fragments) -> None:
    """What is said to differ is what differs when all is decoded; whichever of the two comes first."""
    for fragments, other in ((before, after), (after, before)):
        known = {fragment.SerializeToString(deterministic=True) for fragment in other}
        expected = [each for each in fragments if each.SerializeToString(deterministic=True) not in known]
        assert [DataFragment.FromString(record) for record in fragments.unlike(other)] == expected


def all_of(fragments: Fragments) -> set[bytes]:
    return {record for chunk in fragments.chunks for record in chunk.records()}


def check_beside(before: Fragments, after: Fragments) -> None:
    """Read beside another version a manifest holds what it holds alone, in chunks of that version's."""
    for fragments, other in ((before, after), (after, before), (Fragments(), after), (after, after)):
        data = b"".join(encode_file(Manifest(version=7, branch="b"), fragments, b"", Transaction(uuid="u")))
        alone, beside = decode_file(data), decode_file(data, like=other)
        check_bounds(beside.fragments)
        assert (beside.head, beside.transaction) == (alone.head, alone.transaction)
        assert beside.fragments.tally == alone.fragments.tally
        assert list(beside.fragments.ids()) == list(alone.fragments.ids())
        assert list(beside.fragments) == list(alone.fragments)
        mine, theirs = beside.fragments.apart(other)
        apart = [{part for each in chunks for part in each.records()} for chunks in (mine, theirs)]
        assert apart[0] - apart[1] == all_of(fragments) - all_of(other)
        assert apart[1] - apart[0] == all_of(other) - all_of(fragments)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_any_changes_give_the_list_of_a_plain_dict(data: st.DataObject) -> None:
    model: dict[int, Numbered] = {}
    fragments = Fragments()
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        change = data.draw(changes(frozenset(model)), label="change")
        replaced, removed, added = change
        later = fragments.changed(replaced, removed, added)
        model |= replaced
        model = {number: fragment for number, fragment in model.items() if number not in removed}
        model |= {fragment.id: fragment for fragment in added}
        check_bounds(later)
        check_equal(later, model)
        check_shared(fragments, later, change)
        check_unlike(fragments, later)
        check_beside(fragments, later)
        fragments = later


@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400)), SIZES)
@settings(deadline=None)
def test_fragments_are_found_by_their_ids(live: set[int], wanted: set[int], filler: int) -> None:
    made = {number: fragment(number, 3, min(filler, 2_000), None) for number in live}
    fragments = Fragments.of(made.values())
    value = fragments.get(wanted)
    assert set(value) == fragments.taken(wanted) == live & wanted
    assert all(
        fragment.SerializeToString(deterministic=True) == made[key].encoded for key, fragment in value.items()
    )
    assert fragments.records(wanted) == {number: made[number].encoded for number in live & wanted}


def of_files(count: int) -> list[bytes]:
    return [fragment(number, 3, 100, None).encoded for number in range(count)]


@pytest.mark.parametrize("pylance", [True, False], ids=["fields in their order", "fragments last"])
def test_all_but_the_chunks_of_a_change_are_shared(*, pylance: bool) -> None:
    before = fragments_of(of_files(9_000))
    made = [Numbered.of(DataFragment(id=number, physical_rows=4)) for number in (5, 4_000, 9_001)]
    after = before.changed({5: made[0], 4_000: made[1]}, {17, 6_000, 8_999}, [made[2]])
    head = Manifest(version=7, branch="b", max_fragment_id=9_001)
    parts = encode_file(head, after, b"", Transaction(uuid="u"))
    if pylance:
        whole = Manifest.FromString(b"".join(parts[2:-1]))
        parts[1:-1] = [whole.ByteSize().to_bytes(4, "little"), whole.SerializeToString(deterministic=True)]
    fragments = decode_file(b"".join(parts), like=before).fragments
    known = {id(chunk) for chunk in before.chunks}
    assert sum(id(chunk) not in known for chunk in fragments.chunks) <= 8
    assert len(fragments.chunks) > 15
    assert fragments.tally == after.tally


@given(position=st.integers(0, 2**20), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_damage_is_found_beside_another_version_as_it_is_alone(position: int, value: int) -> None:
    before = fragments_of(of_files(900))
    after = before.changed({}, {450}, ())
    data = bytearray(b"".join(encode_file(Manifest(version=7), after, b"", Transaction(uuid="u"))))
    data[position % len(data)] = value
    values: list[object] = []
    for like in (None, before):
        try:
            file = decode_file(bytes(data), like=like)
            values.append((file.head, list(file.fragments), file.fragments.tally))
        except DamagedError as error:
            values.append(error.message)
    assert values[0] == values[1]
