"""The fragment-reuse index: where compactions moved rows that indices still refer to by old addresses.

A compaction may leave indices as they are and record instead where the rows went. Readers then translate old
addresses to new addresses, and the coverage of an index must be translated in the same way: pylance does so
before every commit, and an operation that removes a fragment from an index's coverage must find it under its
new id. Each compaction adds a version to the index; it is trimmed when no index needs that version any more,
and taken away if it is outdated.

Source: Lance facts 8.3 and 10.7. The details are in the entry itself or, from about 200 KB, in a file in the
folder of the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import (
    FragmentReuseIndexDetails,
    IndexMetadata,
    IndexSection,
    Manifest,
)
from lakefold_table.allocation import check_allocated
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, Indices, Live, coverage, covering
from lakefold_table.lance.manifests.naming import index_path, is_inside
from lakefold_table.lance.schemas.columns import some
from lakefold_table.roots import below

Version = FragmentReuseIndexDetails.Version
Content = Callable[[str], bytes | None]
"""Returns the bytes of a file by its path in the table, None if they were not fetched."""

KIND = "FragmentReuseIndexDetails"
TYPE_URL = f"/lance.table.{KIND}"
MOST_BYTES = 2**28
"""The largest file of details that is read: a bit for each of two thousand million rows."""


def reuse_index(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """Returns the table's fragment-reuse index, None if it has none."""
    return next((index for index in indices if index.name == FRAGMENT_REUSE), None)


def reuse_of_section(index_section: bytes) -> IndexMetadata | None:
    """Returns the fragment-reuse index of an encoded index section, None if it has none."""
    if FRAGMENT_REUSE.encode() not in index_section:
        return None
    return reuse_index(IndexSection.FromString(index_section).indices)


def needs_of_section(head: Manifest, index_section: bytes) -> Requirements:
    """Returns the requirements for reading the table's own indices: a file of fragment-reuse details."""
    reuse = reuse_of_section(index_section)
    return Requirements() if reuse is None else needs_of(head, reuse)


def needs_of(head: Manifest, index: IndexMetadata) -> Requirements:
    """Returns the requirements for reading a fragment-reuse index: its file of details, if it exists."""
    try:
        details = _details(index)
    except DamagedError:
        return Requirements()
    location = _location(head, index, details)
    size = details.external.offset + details.external.size
    return Requirements(contents={location: size} if location and size <= MOST_BYTES else {})


def versions_of(head: Manifest, index: IndexMetadata, content: Content) -> Sequence[Version]:
    """Returns what each compaction did, oldest first. Raises `DamagedError` if that can't be read."""
    details = _details(index)
    if details.WhichOneof("content") != "external":
        return details.inline.versions
    location = _location(head, index, details)
    data = content(location) if location else None
    begin, end = details.external.offset, details.external.offset + details.external.size
    if data is None or len(data) < end:
        raise DamagedError(f"{FRAGMENT_REUSE}: its details are missing or too short", where=location)
    try:
        inline = FragmentReuseIndexDetails.InlineContent.FromString(data[begin:end])
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(
            f"{FRAGMENT_REUSE}: its details can't be decoded: {error}", where=location
        ) from error
    return inline.versions


def rewritten_by(index: IndexMetadata, versions: Sequence[Version]) -> IndexMetadata:
    """Returns the entry with other versions; its coverage is all their new fragments."""
    changed = IndexMetadata()
    changed.CopyFrom(index)
    details = FragmentReuseIndexDetails()
    details.inline.versions.extend(versions)
    changed.index_details.type_url = TYPE_URL
    changed.index_details.value = details.SerializeToString(deterministic=True)
    changed.dataset_version = max(
        (version.dataset_version for version in versions), default=changed.dataset_version
    )
    new = (
        fragment.id for version in versions for group in version.groups for fragment in group.new_fragments
    )
    return covering(changed, Bitmap(new))


def remapped(head: Manifest, indices: Indices, content: Content) -> Indices:
    """Returns the indices with their coverage translated to the fragments in which the rows are now.

    Returns the same objects if nothing changes. Raises `DamagedError` if the fragment-reuse index can't be
    read.
    """
    reuse = reuse_index(indices)
    if reuse is None:
        return indices
    moves = _moves_of(versions_of(head, reuse, content))
    changed = tuple(index if index is reuse else _translated(index, moves) for index in indices)
    return indices if all(map(_is, changed, indices)) else changed


def _moves_of(versions: Iterable[Version]) -> list[tuple[Bitmap, Bitmap]]:
    """Returns the ids of the old and the new fragments of each group, in the order of the compactions."""
    return [
        (
            Bitmap([fragment.id for fragment in group.old_fragments]),
            Bitmap([fragment.id for fragment in group.new_fragments]),
        )
        for version in versions
        for group in version.groups
    ]


def dropped_fault(head: Manifest, before: Indices, after: Indices, content: Content) -> Invalid | None:
    """Returns why the fragment-reuse index can't lose the versions that it loses from `before` to `after`.

    An index that was built before a compaction and covers its new fragments may refer to rows by old
    addresses only. An index that was remapped since looks the same and is counted too: a version dropped too
    early costs rows (in pylance, Lance fact 10.7), a version kept too long only space.
    """
    reuse, trimmed = reuse_index(before), reuse_index(after)
    if reuse is None:
        return None
    remaining = (
        set()
        if trimmed is None
        else {version.dataset_version for version in versions_of(head, trimmed, content)}
    )
    named: set[str] = set()
    for version in versions_of(head, reuse, content):
        if version.dataset_version not in remaining:
            named |= _needing(after, version)
    if not named:
        return None
    return Invalid(
        f"indices {some(named)} may need versions of {FRAGMENT_REUSE} that would be dropped",
        "build these indices again first, on the newest version",
    )


def is_outdated(versions: Sequence[Version], live: Live) -> bool:
    """Returns whether rows are no longer in the fragments to which the compactions of the index moved them.

    True as well if all rows of such a fragment were deleted.
    """
    leads_to = set[int]()
    for version in versions:
        for group in version.groups:
            leads_to -= {fragment.id for fragment in group.old_fragments}
            leads_to |= {fragment.id for fragment in group.new_fragments}
    return len(live(leads_to)) < len(leads_to)


def without_reuse(indices: Indices, versions: Sequence[Version]) -> Indices:
    """Returns the indices without the fragment-reuse index, which has these versions.

    They cover only fragments that are older than all of its compactions. Those that it has replaced may be
    among them: they are gone (decision 0114). pylance's compaction remaps an index by the addresses that its
    files hold. If these are older than the fragment-reuse index, it finds none of them among the rows that it
    moved, and yet the entry covers the new fragments: a BTREE, an INVERTED or an NGRAM index then hides their
    rows (Lance fact 10.11). Such an entry looks like a sound one, also after pylance has added other rows to
    it. But the fragment-reuse index leads to fragments that the table no longer has (`is_outdated`). So then
    all that indices cover since its first compaction is in doubt.
    """
    reuse = reuse_index(indices)
    new = [
        fragment.id for version in versions for group in version.groups for fragment in group.new_fragments
    ]
    first = min(new, default=None)
    return tuple(_until(index, first) for index in indices if index is not reuse)


def _needing(indices: Indices, version: Version) -> set[str]:
    """Returns the names of the indices that are older than a compaction and cover its new fragments."""
    new = Bitmap([fragment.id for group in version.groups for fragment in group.new_fragments])
    older = (index for index in indices if index.fields and index.dataset_version < version.dataset_version)
    return {index.name for index in older if not new.isdisjoint(coverage(index) or Bitmap())}


def _translated(index: IndexMetadata, moves: Iterable[tuple[Bitmap, Bitmap]]) -> IndexMetadata:
    """Returns the entry with its coverage translated by the moves.

    If it covers only a part of a group, it covers nothing of the group afterwards (Lance fact 10.7).
    """
    covered = coverage(index)
    if covered is None:
        return index
    translated = covered
    for old, new in moves:
        inside = old & translated
        if inside:
            translated = (translated - old) | (new if len(inside) == len(old) else Bitmap())
    return index if translated == covered else covering(index, translated)


def _until(index: IndexMetadata, first: int | None) -> IndexMetadata:
    """Returns the entry without the fragments from `first` on. An unknown coverage becomes an empty one."""
    if first is None or not index.fields:
        return index
    covered = coverage(index) or Bitmap()
    remaining = Bitmap(number for number in covered if number < first)
    return index if remaining == covered and index.fragment_bitmap else covering(index, remaining)


def _location(head: Manifest, index: IndexMetadata, details: FragmentReuseIndexDetails) -> str:
    """Returns the path or URI of the file of details; empty if the details are in the entry."""
    if details.WhichOneof("content") != "external" or not is_inside(details.external.path):
        return ""
    path = index_path(index.uuid.uuid, details.external.path)
    if not index.HasField("base_id"):
        return path
    roots = [base.path for base in head.base_paths if base.id == index.base_id and base.is_dataset_root]
    return below(roots[0], path) if roots else ""


def _details(index: IndexMetadata) -> FragmentReuseIndexDetails:
    try:
        return FragmentReuseIndexDetails.FromString(index.index_details.value)
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"{FRAGMENT_REUSE}: its details can't be decoded: {error}") from error


def _is(before: object, after: object) -> bool:
    return before is after
