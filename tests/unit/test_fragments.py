"""The list of fragments, kept encoded: the same bytes as a plain manifest's, in few chunks."""

import math
import random

import pytest

from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_table.lance.fragments import CHUNK_BYTES, Fragments, Numbered, fragments_of


def fragment(number: int, rows: int = 3, deleted: int = 0) -> DataFragment:
    one = DataFragment(id=number, physical_rows=rows)
    one.files.add(path=f"{number:050}.lance", fields=[0, 1], column_indices=[0, 1], file_size_bytes=1000)
    if deleted:
        one.deletion_file.num_deleted_rows = deleted
    return one


def numbered(number: int, rows: int = 3) -> Numbered:
    return Numbered(number, fragment(number, rows).SerializeToString(deterministic=True), rows)


def encoded(fragments: Fragments) -> bytes:
    return b"".join(chunk.encoded for chunk in fragments.chunks)


def plain(numbers: list[int]) -> bytes:
    return Manifest(fragments=[fragment(number) for number in numbers]).SerializeToString(deterministic=True)


def listed(fragments: Fragments) -> list[int]:
    return [one.id for one in fragments]


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
    assert most <= 2 * fragments.size / CHUNK_BYTES + math.log2(CHUNK_BYTES)


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
        fragments = fragments.added([numbered(number + one) for one in range(count)])
        number += count
        few = 2 * fragments.size / CHUNK_BYTES + math.log2(CHUNK_BYTES) + 1
        assert len(fragments.chunks) <= few
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
    assert next(iter(more.chunks[0].records())) == odd
    assert (listed(more), more.deleted_rows) == ([5, 7, 9], 2)


def test_ids_that_are_taken_are_found_without_reading_all() -> None:
    fragments = Fragments()
    for start in range(0, 9000, 3000):
        fragments = fragments.added([numbered(number) for number in range(start, start + 3000, 2)])
    assert len(fragments.chunks) > 1
    assert fragments.taken({0, 1, 2, 3001, 3002, 8998, 8999, 50_000}) == {0, 2, 3002, 8998}
    assert fragments.taken(()) == set()


def test_a_manifest_read_counts_rows() -> None:
    read = fragments_of([fragment(1, 10, 4).SerializeToString(), fragment(4, 5).SerializeToString()])
    assert (read.count, read.physical_rows, read.deleted_rows, read.last_id) == (2, 15, 4, 4)


@pytest.mark.parametrize("numbers", [[1, 1], [2, 1], [0, 5, 4], [0, 0]])
def test_ids_that_do_not_ascend_are_refused(numbers: list[int]) -> None:
    """Lance clients then take other rows than those asked for, and says nothing (tried)."""
    with pytest.raises(ValueError, match="must ascend"):
        fragments_of([fragment(number).SerializeToString() for number in numbers])


def test_ids_that_do_not_ascend_are_found_across_chunks() -> None:
    many = [fragment(number).SerializeToString() for number in [*range(4000), 3000]]
    with pytest.raises(ValueError, match="fragment 3000 stands after fragment 3999"):
        fragments_of(many)
