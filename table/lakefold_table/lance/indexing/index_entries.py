"""What is wrong with an entry that a proposal adds to the index section.

An index that covers what it doesn't know hides rows from every filtered scan, and one that names what isn't
there breaks them; pylance commits most of either without a word (Lance fact 10.5). So an entry is held
against the table, and its files are looked for.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL, coverage, type_of
from lakefold_table.lance.manifests.naming import index_path, is_inside
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_protos.lance.table_pb2 import IndexFile, IndexMetadata
    from lakefold_table.lance.rows.bitmaps import Bitmap
    from lakefold_table.lance.version_builder import VersionBuilder

UUID_BYTES = 16
RESERVED = "__lance_"
OWN_KINDS = MappingProxyType({FRAGMENT_REUSE: "FragmentReuseIndexDetails", MEM_WAL: "MemWalIndexDetails"})
"""The indices that say something of the table itself: by their names, their types."""
MAIN_FILES = MappingProxyType(
    {
        "BTreeIndexDetails": "page_lookup.lance",
        "BitmapIndexDetails": "bitmap_page_lookup.lance",
        "LabelListIndexDetails": "bitmap_page_lookup.lance",
        "ZoneMapIndexDetails": "zonemap.lance",
        "BloomFilterIndexDetails": "bloomfilter.lance",
        "NGramIndexDetails": "ngram_postings.lance",
        "VectorIndexDetails": "index.idx",
    }
)
"""A file that an index of a type always has (Lance fact 10.6), looked for if an entry lists no files."""
JSON = "JsonIndexDetails"
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; far beyond it pylance panics (Lance fact 10.5)."""


def paths_of(index: IndexMetadata) -> Iterator[str]:
    """The paths of the index's files in the table; files under another base aren't looked at."""
    if index.HasField("base_id") or len(index.uuid.uuid) != UUID_BYTES:
        return
    yield from files_of(index.uuid.uuid, index.files, type_of(index))


def files_of(uuid: bytes, files: Iterable[IndexFile], kind: str) -> Iterator[str]:
    """The paths of the files listed; where none is, of the one that an index of this type always has."""
    listed = [one.path for one in files]
    if not listed and kind in MAIN_FILES:
        listed = [MAIN_FILES[kind]]
    yield from (index_path(uuid, path) for path in listed if is_inside(path))


def entry_fault(table: VersionBuilder, index: IndexMetadata, read_version: int) -> Invalid | None:
    """Why the entry can't be one of the table's; the fields it is on are not looked at."""
    late = time_fault(index)
    if late is not None:
        return late
    if len(index.uuid.uuid) != UUID_BYTES:
        return Invalid(
            f"index {index.name!r} has a uuid of {len(index.uuid.uuid)} bytes", f"give {UUID_BYTES}"
        )
    if index.covering_fields:
        return Invalid(
            f"index {index.name!r} has covering fields, a feature (flag 128) that this release doesn't know",
            "create it without them",
        )
    if index.HasField("base_id") and index.base_id not in table.base_ids:
        return Invalid(
            f"base {index.base_id} of index {index.name!r} is not one of the table's", "add it first"
        )
    if not 0 < index.dataset_version <= read_version:
        return Invalid(
            f"index {index.name!r} is said to be built from version {index.dataset_version}, "
            f"the transaction read {read_version}",
            "give the version that it was built from",
        )
    return (
        _kind_fault(index)
        or _coverage_fault(table, index)
        or names_fault(index.name, index.files)
        or files_fault(index.name, dict(_listed(index)), table.observed.sizes)
    )


def time_fault(index: IndexMetadata) -> Invalid | None:
    """Why no client could say when an index was made; of one that is removed the version tells it too."""
    if index.created_at <= LATEST_MS:
        return None
    return Invalid(
        f"index {index.name!r} was created {index.created_at} ms after 1970, which no client can show",
        "give milliseconds, or leave the time out",
    )


def names_fault(name: str, files: Iterable[IndexFile]) -> Invalid | None:
    """Why an index can't have files of these names."""
    wrong = [one.path for one in files if not is_inside(one.path)]
    if not wrong:
        return None
    return Invalid(
        f"files {some(wrong)} of index {name!r} leave its folder or have no plain names",
        "name them relative to the folder of the index",
    )


def files_fault(name: str, listed: Mapping[str, int], sizes: Mapping[str, int | None]) -> Invalid | None:
    """What is wrong with the files of an index: `listed` their sizes by path (0: not known)."""
    for path, expected in listed.items():
        if path not in sizes:
            continue
        size = sizes[path]
        if size is None:
            return Invalid(
                f"file {path} of index {name!r} is missing", "write the index before it is proposed"
            )
        if expected not in {0, size}:
            return Invalid(
                f"file {path} of index {name!r} has {size} bytes, the transaction says {expected}",
                "it was changed or not written to its end: build the index again",
            )
    return None


def overlap_fault(indices: Iterable[IndexMetadata]) -> Invalid | None:
    """Why these can't stand side by side: two of one uuid, or two segments that cover one fragment.

    pylance's `validate()` calls either corrupt (Lance fact 10.5).
    """
    covered: dict[str, Bitmap] = {}
    seen: set[bytes] = set()
    for index in indices:
        if index.uuid.uuid in seen:
            return Invalid(f"two indices have the uuid {index.uuid.uuid.hex()}", "give each its own")
        seen.add(index.uuid.uuid)
        fragments = coverage(index)
        if fragments is None:
            continue
        there = covered.get(index.name)
        if there is not None and not there.isdisjoint(fragments):
            return Invalid(
                f"index {index.name!r} would cover fragments {some(list(there & fragments))} twice",
                "remove the older index in the same transaction, or give the new one another name",
            )
        covered[index.name] = fragments if there is None else there | fragments
    return None


def _kind_fault(index: IndexMetadata) -> Invalid | None:
    name, kind = index.name, type_of(index)
    if name in OWN_KINDS:
        if kind == OWN_KINDS[name] and not index.fields:
            return None
        return Invalid(
            f"index {name!r} must be of type {OWN_KINDS[name]} and on no field", "use another name"
        )
    if not name or name.startswith(RESERVED) or kind in OWN_KINDS.values():
        return Invalid(
            f"{name!r} can't be the name of an index of type {kind!r}",
            f"use one that doesn't begin with {RESERVED}",
        )
    if not index.fields:
        return Invalid(f"index {name!r} is on no field", "name the ids of the fields it is on")
    if kind == JSON and not index.index_details.value:
        return Invalid(
            f"index {name!r} has no details, without which pylance can't open the table",
            "give those of the index",
        )
    return None


def _coverage_fault(table: VersionBuilder, index: IndexMetadata) -> Invalid | None:
    try:
        covered = coverage(index)
    except DamagedError as error:
        return Invalid(f"the fragment bitmap of {error.reason}", "give a portable 32-bit Roaring bitmap")
    if covered is None:
        if index.name in OWN_KINDS:
            return None
        return Invalid(
            f"index {index.name!r} doesn't say which fragments it covers", "give its fragment bitmap"
        )
    highest = table.numbering.max_id
    if covered and (highest is None or covered.max() > highest):
        return Invalid(
            f"index {index.name!r} covers fragment {covered.max()}, but ids were used up to {highest}",
            "an index covers fragments of the version that it was built from",
        )
    return None


def _listed(index: IndexMetadata) -> Iterator[tuple[str, int]]:
    sizes = {
        index_path(index.uuid.uuid, one.path): one.size_bytes for one in index.files if is_inside(one.path)
    }
    for path in paths_of(index):
        yield path, sizes.get(path, 0)
