"""Checks of an entry that a proposal adds to the index section.

An index that claims to cover fragments that it doesn't know hides their rows from every filtered scan, and an
entry that names missing files breaks such scans; pylance commits most of these without an error (Lance fact
10.5). So an entry is checked against the table, and the sizes of its files against the store.
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
    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.lance.table_view import TableView

UUID_BYTES = 16
RESERVED = "__lance_"
OWN_KINDS = MappingProxyType({FRAGMENT_REUSE: "FragmentReuseIndexDetails", MEM_WAL: "MemWalIndexDetails"})
"""The types of the indices that describe the table itself, by name."""
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
"""A file that each index of a type has (Lance fact 10.6), which is checked if an entry lists no files."""
JSON = "JsonIndexDetails"
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; pylance panics on times far beyond it (Lance fact 10.5)."""


def paths_of(index: IndexMetadata) -> Iterator[str]:
    """Yields the paths of the index's files in the table. Files under another base are not checked."""
    if index.HasField("base_id") or len(index.uuid.uuid) != UUID_BYTES:
        return
    yield from files_of(index.uuid.uuid, index.files, type_of(index))


def files_of(uuid: bytes, files: Iterable[IndexFile], kind: str) -> Iterator[str]:
    """Yields the paths of the listed files, or of the main file of the type if none is listed."""
    listed = [file.path for file in files]
    if not listed and kind in MAIN_FILES:
        listed = [MAIN_FILES[kind]]
    yield from (index_path(uuid, path) for path in listed if is_inside(path))


def entry_fault(table: TableView, index: IndexMetadata, read_version: int) -> Invalid | None:
    """Returns why the entry can't be added to the table. Its fields are not checked here."""
    fault = time_fault(index)
    if fault is not None:
        return fault
    if len(index.uuid.uuid) != UUID_BYTES:
        return Invalid(
            f"index {index.name!r} has a uuid of {len(index.uuid.uuid)} bytes", f"send {UUID_BYTES} bytes"
        )
    if index.covering_fields:
        return Invalid(
            f"index {index.name!r} has covering fields, a feature (flag 128) that this release doesn't know",
            "create the index without them",
        )
    if index.HasField("base_id") and index.base_id not in table.base_ids:
        return Invalid(
            f"base {index.base_id} of index {index.name!r} is not one of the table's", "add the base first"
        )
    if not 0 < index.dataset_version <= read_version:
        return Invalid(
            f"index {index.name!r} claims to be built from version {index.dataset_version}, "
            f"the transaction's read version is {read_version}",
            "state the version from which it was built",
        )
    return (
        _kind_fault(index)
        or _coverage_fault(table, index)
        or names_fault(index.name, index.files)
        or files_fault(index.name, dict(_listed(index)), table.fetched.sizes)
    )


def time_fault(index: IndexMetadata) -> Invalid | None:
    """Returns a fault if an index's creation time is out of range.

    It is also checked for removed indices, since the version's transaction contains their entries too.
    """
    if index.created_at <= LATEST_MS:
        return None
    return Invalid(
        f"index {index.name!r} was created {index.created_at} ms after 1970, which no client can show",
        "use milliseconds, or leave the time out",
    )


def names_fault(name: str, files: Iterable[IndexFile]) -> Invalid | None:
    """Returns a fault if a file's name leads out of the index's folder or isn't a plain name."""
    wrong_names = [file.path for file in files if not is_inside(file.path)]
    if not wrong_names:
        return None
    return Invalid(
        f"files {some(wrong_names)} of index {name!r} are not plain names inside its folder",
        "name them relative to the folder of the index",
    )


def files_fault(name: str, listed: Mapping[str, int], sizes: Mapping[str, int | None]) -> Invalid | None:
    """Returns a fault if a file of an index is missing or has another size. `listed`: sizes, 0 if unknown."""
    for path, expected in listed.items():
        if path not in sizes:
            continue
        size = sizes[path]
        if size is None:
            return Invalid(
                f"file {path} of index {name!r} is missing", "write the index before you send the transaction"
            )
        if expected not in {0, size}:
            return Invalid(
                f"file {path} of index {name!r} has {size} bytes, the transaction says {expected}",
                "it was changed or only partly written: build the index again",
            )
    return None


def overlap_fault(indices: Iterable[IndexMetadata]) -> Invalid | None:
    """Returns a fault if two entries have the same uuid, or two segments of an index the same fragment.

    pylance's `validate()` reports either as corrupt (Lance fact 10.5).
    """
    covered: dict[str, Bitmap] = {}
    uuids: set[bytes] = set()
    for index in indices:
        if index.uuid.uuid in uuids:
            return Invalid(
                f"two indices have the uuid {index.uuid.uuid.hex()}", "use a different uuid for each"
            )
        uuids.add(index.uuid.uuid)
        fragments = coverage(index)
        if fragments is None:
            continue
        others = covered.get(index.name)
        if others is not None and not others.isdisjoint(fragments):
            return Invalid(
                f"index {index.name!r} would cover fragments {some(list(others & fragments))} twice",
                "remove the older index in the same transaction, or give the new one another name",
            )
        covered[index.name] = fragments if others is None else others | fragments
    return None


def _kind_fault(index: IndexMetadata) -> Invalid | None:
    name, kind = index.name, type_of(index)
    if name in OWN_KINDS:
        if kind == OWN_KINDS[name] and not index.fields:
            return None
        return Invalid(
            f"index {name!r} must be of type {OWN_KINDS[name]} and have no fields", "use another name"
        )
    if not name or name.startswith(RESERVED) or kind in OWN_KINDS.values():
        return Invalid(
            f"{name!r} can't be the name of an index of type {kind!r}",
            f"use a name that doesn't begin with {RESERVED}",
        )
    if not index.fields:
        return Invalid(f"index {name!r} has no fields", "list the ids of its fields")
    if kind == JSON and not index.index_details.value:
        return Invalid(
            f"index {name!r} has no details, without which pylance can't open the table",
            "send the details of the index",
        )
    return None


def _coverage_fault(table: TableView, index: IndexMetadata) -> Invalid | None:
    try:
        covered = coverage(index)
    except DamagedError as error:
        return Invalid(f"the fragment bitmap of {error.reason}", "send a portable 32-bit Roaring bitmap")
    if covered is None:
        if index.name in OWN_KINDS:
            return None
        return Invalid(
            f"index {index.name!r} doesn't state which fragments it covers", "send its fragment bitmap"
        )
    highest = table.highest_id
    if covered and (highest is None or covered.max() > highest):
        return Invalid(
            f"index {index.name!r} covers fragment {covered.max()}, but ids were used up to {highest}",
            "list only fragments of the version from which the index was built",
        )
    return None


def _listed(index: IndexMetadata) -> Iterator[tuple[str, int]]:
    sizes = {
        index_path(index.uuid.uuid, file.path): file.size_bytes
        for file in index.files
        if is_inside(file.path)
    }
    for path in paths_of(index):
        yield path, sizes.get(path, 0)
