"""Coverage of indices read through the fragment-reuse index, compaction after compaction."""

from __future__ import annotations

import pytest

from lakefold_protos.lance.table_pb2 import (
    UUID,
    BasePath,
    FragmentReuseIndexDetails,
    IndexMetadata,
    IndexSection,
    Manifest,
)
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, coverage
from lakefold_table.lance.indexing.reuse import needs_of_section, remapped, rewritten_by, versions_of

HEAD = Manifest(
    base_paths=[BasePath(id=4, path="file:///source", is_dataset_root=True), BasePath(id=5, path="x")]
)
FILE = "_indices/72727272-7272-7272-7272-727272727272/details.binpb"


def version(number: int, *groups: tuple[list[int], list[int]]) -> FragmentReuseIndexDetails.Version:
    version = FragmentReuseIndexDetails.Version(dataset_version=number)
    for old, new in groups:
        group = version.groups.add()
        for each in old:
            group.old_fragments.add(id=each)
        for each in new:
            group.new_fragments.add(id=each)
    return version


def reuse(*versions: FragmentReuseIndexDetails.Version) -> IndexMetadata:
    return rewritten_by(IndexMetadata(uuid=UUID(uuid=b"r" * 16), name=FRAGMENT_REUSE), versions)


def external(
    size: int = 10, offset: int = 0, path: str = "details.binpb", base: int | None = None
) -> IndexMetadata:
    entry = IndexMetadata(uuid=UUID(uuid=b"r" * 16), name=FRAGMENT_REUSE, base_id=base)
    details = FragmentReuseIndexDetails()
    details.external.path, details.external.offset, details.external.size = path, offset, size
    entry.index_details.value = details.SerializeToString()
    return entry


def index(*covers: int) -> IndexMetadata:
    return IndexMetadata(name="i", fields=[0], fragment_bitmap=encode_bitmap(Bitmap(covers)))


def nothing(_path: str) -> bytes | None:
    return None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 1], []),
        ([0, 1, 2, 9], [6, 7, 9]),
        ([0, 2], []),
        ([2, 3], [3]),
        ([5, 2], [6, 7]),
        ([9], [9]),
    ],
)
def test_coverage_follows_the_rows(before: list[int], after: list[int]) -> None:
    reported = reuse(version(3, ([0, 1], [5])), version(4, ([5, 2], [6, 7])))
    entries = [reported, index(*before)]
    read = remapped(HEAD, entries, nothing)
    assert list(coverage(read[1]) or []) == after
    assert read[0] is reported
    assert (read is entries) == (before == after)


def test_tables_without_one_are_read_as_they_are() -> None:
    entries = [index(1), IndexMetadata(name="without coverage")]
    assert remapped(HEAD, entries, nothing) is entries
    with_reuse = [*entries, reuse(version(3, ([0], [5])))]
    assert remapped(HEAD, with_reuse, nothing) is with_reuse


def test_the_entry_covers_all_new_fragments() -> None:
    index = reuse(version(3, ([0, 1], [5]), ([2], [6])), version(8, ([5], [7])))
    assert coverage(index) == Bitmap([5, 6, 7])
    assert index.dataset_version == 8


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        (reuse(version(3)), {}),
        (external(), {FILE: 10}),
        (external(5, 7), {FILE: 12}),
        (external(base=4), {f"file:///source/{FILE}": 10}),
        (external(base=5), {}),
        (external(base=6), {}),
        (external(path="../x"), {}),
        (external(2**40), {}),
    ],
)
def test_which_file_is_asked_for(entry: IndexMetadata, wanted: dict[str, int]) -> None:
    section = IndexSection(indices=[index(1), entry]).SerializeToString()
    assert dict(needs_of_section(HEAD, section).contents) == wanted


def test_sections_without_one_ask_for_nothing() -> None:
    assert not needs_of_section(HEAD, b"").contents
    assert not needs_of_section(HEAD, IndexSection(indices=[index(1)]).SerializeToString()).contents


def test_details_are_read_from_their_place_in_the_file() -> None:
    inline = FragmentReuseIndexDetails.InlineContent(versions=[version(3, ([0], [5]))])
    data = inline.SerializeToString()
    files = {FILE: b"before" + data + b"behind"}
    (reported,) = versions_of(HEAD, external(len(data), 6), files.get)
    assert reported == inline.versions[0]


@pytest.mark.parametrize("data", [None, b"short", b"\xff" * 20])
def test_details_that_can_not_be_read_are_damage(data: bytes | None) -> None:
    with pytest.raises(DamagedError, match=FRAGMENT_REUSE):
        versions_of(HEAD, external(), lambda _path: data)


def test_an_entry_that_is_none_is_damage() -> None:
    entry = reuse()
    entry.index_details.value = b"\xff"
    with pytest.raises(DamagedError, match="decoded"):
        versions_of(HEAD, entry, nothing)
    assert not needs_of_section(HEAD, IndexSection(indices=[entry]).SerializeToString()).contents
