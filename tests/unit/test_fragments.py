"""The list of fragments, kept encoded: the same bytes as a plain manifest's, in few chunks."""

import random
from collections.abc import Sequence

import pytest

from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_table.lance.manifests.chunks import decode_records
from lakefold_table.lance.manifests.fragments import CHUNK_BYTES, MAX_CHUNK_BYTES, Fragments, Numbered
from tests.encoding import fragments_of


def fragment(number: int, rows: int = 3, deleted: int = 0) -> DataFragment:
    fragment = DataFragment(id=number, physical_rows=rows)
    fragment.files.add(path=f"{number:050}.lance", fields=[0, 1], column_indices=[0, 1], file_size_bytes=1000)
    if deleted:
        fragment.deletion_file.num_deleted_rows = deleted
    return fragment


def numbered(number: int, rows: int = 3) -> Numbered:
    return Numbered(number, fragment(number, rows).SerializeToString(deterministic=True), rows)


def encoded(fragments: Fragments) -> bytes:
    return b"".join(chunk.encoded for chunk in fragments.chunks)


def plain(numbers: list[int]) -> bytes:
    return Manifest(fragments=[fragment(number) for number in numbers]).SerializeToString(deterministic=True)


def listed(fragments: Fragments) -> list[int]:
    return [fragment.id for fragment in fragments]


def test_an_empty_list() -> None:
    none = Fragments()
    assert (none.count, none.physical_rows, none.deleted_rows, none.last_id, none.size) == (0, 0, 0, -1, 0)
    assert none.added([]) is none
    assert fragments_of([]) == none


def test_thousands_of_small_versions_keep_few_chunks_and_the_bytes_of_a_plain_manifest() -> None:
    fragments, most = Fragments(), 0
    versions = 4000
    for number in range(versions):
        fragments = fragments.added([numbered(number)])
        most = max(most, len(fragments.chunks))
    assert encoded(fragments) == plain(list(range(versions)))
    assert (fragments.count, fragments.physical_rows, fragments.last_id) == (versions, 3 * versions, 3999)
    assert most <= 2 * fragments.size / CHUNK_BYTES + 1


def test_an_older_list_is_not_changed_by_what_follows() -> None:
    first = Fragments().added([numbered(0)])
    before = encoded(first)
    second = first.added([numbered(1)])
    assert encoded(first) == before
    assert listed(second) == [0, 1]


def test_versions_of_any_size_keep_few_chunks() -> None:
    chance = random.Random(7)
    fragments, number = Fragments(), 0
    for _ in range(300):
        count = chance.choice([1, 1, 2, 50, 400, 3000])
        fragments = fragments.added([numbered(number + index) for index in range(count)])
        number += count
        assert len(fragments.chunks) <= 2 * fragments.size / CHUNK_BYTES + 1
    assert fragments.count == number


def test_big_chunks_are_shared_not_copied() -> None:
    big = Fragments().added([numbered(number) for number in range(3000)])
    later = big.added([numbered(3000)])
    assert later.chunks[0].encoded is big.chunks[0].encoded


def test_lower_ids_are_put_in_their_place() -> None:
    fragments = Fragments().added([numbered(5), numbered(9)]).added([numbered(20)])
    more = fragments.added([numbered(2), numbered(7), numbered(15), numbered(30)])
    assert listed(more) == [2, 5, 7, 9, 15, 20, 30]
    assert encoded(more) == plain([2, 5, 7, 9, 15, 20, 30])
    assert (more.count, more.last_id, more.physical_rows) == (7, 30, 21)


def test_ids_inserted_at_random_end_sorted() -> None:
    chance = random.Random(3)
    numbers = list(range(3000))
    chance.shuffle(numbers)
    fragments, start = Fragments(), 0
    while start < len(numbers):
        end = start + chance.choice([1, 5, 600])
        fragments = fragments.added([numbered(number) for number in sorted(numbers[start:end])])
        start = end
    assert encoded(fragments) == plain(sorted(numbers))


def test_an_insertion_keeps_the_bytes_and_the_deleted_rows_of_its_neighbours() -> None:
    """An unknown field, or another order of fields than ours, is not ours to change."""
    odd = b"\x20\x03\x08\x05" + b"\x9a\x06\x01x"
    fragments = fragments_of([odd, fragment(9, deleted=2).SerializeToString()])
    more = fragments.added([numbered(7)])
    assert more.chunks[0].records()[0] == odd
    assert (listed(more), more.deleted_rows) == ([5, 7, 9], 2)


def test_ids_that_are_taken_are_found_without_reading_all() -> None:
    fragments = Fragments()
    for start in range(0, 9000, 3000):
        fragments = fragments.added([numbered(number) for number in range(start, start + 3000, 2)])
    assert len(fragments.chunks) > 1
    assert fragments.taken({0, 1, 2, 3001, 3002, 8998, 8999, 50_000}) == {0, 2, 3002, 8998}
    assert fragments.taken(()) == set()
    assert list(fragments.ids()) == list(range(0, 9000, 2))


def test_a_list_that_was_opened_opens_each_chunk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is the same list."""
    plain = Fragments.of([numbered(number) for number in range(5000)])
    wanted = [(1,), (4999,), (2, 4998), (1,), (10_000,)]
    value = [plain.get(ids) for ids in wanted]
    asked: list[bytes] = []

    def noted(encoded: bytes) -> Sequence[bytes]:
        asked.append(encoded)
        return decode_records(encoded)

    monkeypatch.setattr("lakefold_table.lance.manifests.chunks.decode_records", noted)
    opened = plain.opened()
    assert [opened.get(ids) for ids in wanted] == value
    assert asked == [plain.chunks[0].encoded, plain.chunks[-1].encoded]
    assert opened.chunks is plain.chunks
    assert type(opened.changed({}, {1})) is Fragments


def test_a_changed_fragment_leaves_all_other_chunks_shared() -> None:
    before = Fragments.of([numbered(number) for number in range(3000)])
    changed = Numbered.of(fragment(1500, rows=3, deleted=2))
    after = before.changed({1500: changed}, {2999}, [numbered(3000)])
    shared = {id(chunk.encoded) for chunk in before.chunks} & {id(chunk.encoded) for chunk in after.chunks}
    assert len(shared) == len(before.chunks) - 2
    assert after.records([1500, 2999]) == {1500: changed.encoded}
    assert (after.count, after.deleted_rows, after.has_deletions, before.has_deletions) == (
        3000,
        2,
        True,
        False,
    )


def test_a_deletion_file_without_a_count_is_counted() -> None:
    single = fragment(4)
    single.deletion_file.id = 7
    fragments = Fragments.of([Numbered.of(single)])
    assert (fragments.has_deletions, fragments.deleted_rows) == (True, 0)
    assert not fragments.changed({4: numbered(4)}).has_deletions


def test_removal_wins_over_replacement() -> None:
    fragments = Fragments.of([numbered(1), numbered(2)])
    assert listed(fragments.changed({1: numbered(1, rows=9)}, [1])) == [2]


def test_an_emptied_list_is_an_empty_list() -> None:
    assert Fragments.of([numbered(1), numbered(2)]).changed({}, [1, 2]) == Fragments()


@pytest.mark.parametrize("number", [0, 4, 9])
def test_an_object_that_does_not_exist_is_neither_replaced_nor_removed(number: int) -> None:
    fragments = Fragments.of([numbered(3), numbered(5)])
    with pytest.raises(KeyError, match=str(number)):
        fragments.changed({number: numbered(number)})
    with pytest.raises(KeyError, match=str(number)):
        fragments.changed({}, [number])


def test_an_id_is_given_once() -> None:
    fragments = Fragments.of([numbered(3), numbered(5)])
    with pytest.raises(ValueError, match="two fragments with id 3"):
        fragments.added([numbered(3)])
    with pytest.raises(ValueError, match="fragment 7 comes after fragment 7"):
        fragments.added([numbered(7), numbered(7)])
    with pytest.raises(ValueError, match="fragment 3 can't be replaced by fragment 4"):
        fragments.changed({3: numbered(4)})


def test_fields_in_another_order_and_ids_given_twice_are_found_as_decoded() -> None:
    """Protobuf takes the last value of a field that occurs twice."""
    odd = b"\x08\x02" + b"\x20\x03" + b"\x08\x05"
    fragments = fragments_of([fragment(1).SerializeToString(), odd, fragment(9).SerializeToString()])
    assert fragments.records([2, 5]) == {5: odd}
    assert fragments.changed({}, [1]).records([5]) == {5: odd}


def test_chunks_that_shrink_are_joined_and_chunks_that_grow_are_cut() -> None:
    fragments = Fragments.of([numbered(number) for number in range(6000)])
    many = len(fragments.chunks)
    for number in range(6000):
        if number % 50:
            fragments = fragments.changed({}, [number])
    assert len(fragments.chunks) <= 2 * fragments.size / CHUNK_BYTES + 1 < many / 4
    for number in range(0, 6000, 50):
        grown = fragment(number)
        grown.files[0].path = "x" * 3000
        fragments = fragments.changed({number: Numbered.of(grown)})
        assert all(len(chunk.encoded) <= MAX_CHUNK_BYTES for chunk in fragments.chunks)
    assert len(fragments.chunks) <= 2 * fragments.size / CHUNK_BYTES + 1


def test_a_manifest_read_counts_rows() -> None:
    read = fragments_of([fragment(1, 10, 4).SerializeToString(), fragment(4, 5).SerializeToString()])
    assert (read.count, read.physical_rows, read.deleted_rows, read.last_id) == (2, 15, 4, 4)


@pytest.mark.parametrize("numbers", [[1, 1], [2, 1], [0, 5, 4], [0, 0]])
def test_ids_that_do_not_ascend_are_refused(numbers: list[int]) -> None:
    """Lance clients then take other rows than those asked for, and says nothing (Lance fact 11.1)."""
    with pytest.raises(ValueError, match="must ascend"):
        fragments_of([fragment(number).SerializeToString() for number in numbers])


def test_ids_that_do_not_ascend_are_found_across_chunks() -> None:
    many = [fragment(number).SerializeToString() for number in [*range(4000), 3000]]
    with pytest.raises(ValueError, match="fragment 3000 comes after fragment 3999"):
        fragments_of(many)
