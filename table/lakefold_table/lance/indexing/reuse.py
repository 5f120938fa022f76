"""The fragment-reuse index: how a compaction moved rows that indices still know by their old addresses.

A compaction may leave indices as they are and say instead where the rows went. Readers then follow an index
from the old addresses to the new ones, and what an index covers is to be read in the same way: pylance does
so before every commit, and an operation that takes a fragment from an index's coverage must find it
there under its new id. Each compaction adds a version to the index; once no index needs it, it is trimmed.

Source: Lance facts 8.3 and 10.7. The details lie in the entry itself, or, from about 200 KB on, in a file in
the folder of the index.
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
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, Indices, coverage, covering
from lakefold_table.lance.manifests.allocation import check_allocated
from lakefold_table.lance.manifests.naming import index_path, is_inside
from lakefold_table.lance.rows.bitmaps import Bitmap
from lakefold_table.lance.schemas.columns import some
from lakefold_table.roots import below

Version = FragmentReuseIndexDetails.Version
Content = Callable[[str], bytes | None]
"""The bytes of a file by its path in the table, None where they weren't brought."""

KIND = "FragmentReuseIndexDetails"
TYPE_URL = f"/lance.table.{KIND}"
MOST_BYTES = 2**28
"""The largest file of details that is read: a bit for each of two thousand million rows."""


def reuse_index(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """The table's fragment-reuse index, None where it has none."""
    return next((index for index in indices if index.name == FRAGMENT_REUSE), None)


def needs_of_section(head: Manifest, index_section: bytes) -> Requirements:
    """The file of details that the table's own indices can't be read without."""
    if FRAGMENT_REUSE.encode() not in index_section:
        return Requirements()
    reuse = reuse_index(IndexSection.FromString(index_section).indices)
    return Requirements() if reuse is None else needs_of(head, reuse)


def needs_of(head: Manifest, index: IndexMetadata) -> Requirements:
    """The file in which the details of a fragment-reuse index lie, if they lie in one."""
    try:
        details = _details(index)
    except DamagedError:
        return Requirements()
    place = _place(head, index, details)
    size = details.external.offset + details.external.size
    return Requirements(contents={place: size} if place and size <= MOST_BYTES else {})


def versions_of(head: Manifest, index: IndexMetadata, content: Content) -> Sequence[Version]:
    """What each compaction did, oldest first. Raises `DamagedError` where that can't be read."""
    details = _details(index)
    if details.WhichOneof("content") != "external":
        return details.inline.versions
    place = _place(head, index, details)
    data = content(place) if place else None
    begin, end = details.external.offset, details.external.offset + details.external.size
    if data is None or len(data) < end:
        raise DamagedError(f"{FRAGMENT_REUSE}: its details are missing or too short", where=place)
    try:
        inline = FragmentReuseIndexDetails.InlineContent.FromString(data[begin:end])
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"{FRAGMENT_REUSE}: its details can't be decoded: {error}", where=place) from error
    return inline.versions


def rewritten_by(index: IndexMetadata, versions: Sequence[Version]) -> IndexMetadata:
    """The entry with other versions, and with the coverage that follows from them: all new fragments."""
    changed = IndexMetadata()
    changed.CopyFrom(index)
    details = FragmentReuseIndexDetails()
    details.inline.versions.extend(versions)
    changed.index_details.type_url = TYPE_URL
    changed.index_details.value = details.SerializeToString(deterministic=True)
    changed.dataset_version = max((one.dataset_version for one in versions), default=changed.dataset_version)
    new = (fragment.id for one in versions for group in one.groups for fragment in group.new_fragments)
    return covering(changed, Bitmap(new))


def remapped(head: Manifest, indices: Indices, content: Content) -> Indices:
    """The indices of a table as they are to be read: coverage by the fragments that the rows lie in now.

    The very objects where nothing changes. Raises `DamagedError` where the fragment-reuse index can't be
    read.
    """
    reuse = reuse_index(indices)
    if reuse is None:
        return indices
    moves = _moves_of(versions_of(head, reuse, content))
    changed = tuple(index if index is reuse else _followed(index, moves) for index in indices)
    return indices if all(map(_is, changed, indices)) else changed


def _moves_of(versions: Iterable[Version]) -> list[tuple[Bitmap, Bitmap]]:
    """For each group, in the order of the compactions, the ids of its old fragments and of its new ones."""
    return [
        (
            Bitmap([fragment.id for fragment in group.old_fragments]),
            Bitmap([fragment.id for fragment in group.new_fragments]),
        )
        for version in versions
        for group in version.groups
    ]


def dropped_fault(head: Manifest, before: Indices, after: Indices, content: Content) -> Invalid | None:
    """Why the fragment-reuse index can't lose what it loses from `before` to `after`.

    An index that was built before a compaction and covers what came of it may know the rows by their old
    addresses only. One that was remapped since looks the same and counts too: a lost version costs rows (in
    pylance, Lance fact 10.7), a kept one costs room.
    """
    reuse, left = reuse_index(before), reuse_index(after)
    if reuse is None:
        return None
    kept = set() if left is None else {one.dataset_version for one in versions_of(head, left, content)}
    named: set[str] = set()
    for version in versions_of(head, reuse, content):
        if version.dataset_version not in kept:
            named |= _needing(after, version)
    if not named:
        return None
    return Invalid(
        f"indices {some(named)} may know rows only by what {FRAGMENT_REUSE} would no longer tell",
        "build them anew first, on the newest version",
    )


def _needing(indices: Indices, version: Version) -> set[str]:
    """The names of the indices that are older than a compaction and cover what came of it."""
    new = Bitmap([fragment.id for group in version.groups for fragment in group.new_fragments])
    older = (one for one in indices if one.fields and one.dataset_version < version.dataset_version)
    return {one.name for one in older if not new.isdisjoint(coverage(one) or Bitmap())}


def _followed(index: IndexMetadata, moves: Iterable[tuple[Bitmap, Bitmap]]) -> IndexMetadata:
    """The entry with its coverage followed through the moves.

    Of a group that it covers in part, it covers nothing afterwards (Lance fact 10.7).
    """
    covered = coverage(index)
    if covered is None:
        return index
    now = covered
    for old, new in moves:
        inside = old & now
        if inside:
            now = (now - old) | (new if len(inside) == len(old) else Bitmap())
    return index if now == covered else covering(index, now)


def _place(head: Manifest, index: IndexMetadata, details: FragmentReuseIndexDetails) -> str:
    """Where the file of details is: a path in the table, a whole URI under another base; empty for none."""
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


def _is(one: object, other: object) -> bool:
    return one is other
