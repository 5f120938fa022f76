"""Takes the fragment-reuse index away, with all coverage that relies on it (decision 0114).

pylance's compaction remaps an index by the addresses that its files hold. If these are older than the
fragment-reuse index, it finds none of them among the rows that it moved, and yet the entry covers the new
fragments: a BTREE, an INVERTED or an NGRAM index then hides their rows (Lance fact 10.11). Such an entry
looks like a sound one, also after pylance has added other rows to it. But the fragment-reuse index leads to
fragments that the table no longer has. So then all that indices cover since its first compaction is in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.indexing.indices import coverage, covering
from lakefold_table.lance.indexing.reuse import reuse_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_table.lance.indexing.indices import Indices, Live
    from lakefold_table.lance.indexing.reuse import Version


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
    among them: they are gone.
    """
    reuse = reuse_index(indices)
    new = [
        fragment.id for version in versions for group in version.groups for fragment in group.new_fragments
    ]
    first = min(new, default=None)
    return tuple(_until(index, first) for index in indices if index is not reuse)


def _until(index: IndexMetadata, first: int | None) -> IndexMetadata:
    """Returns the entry without the fragments from `first` on. An unknown coverage becomes an empty one."""
    if first is None or not index.fields:
        return index
    covered = coverage(index) or Bitmap()
    remaining = Bitmap(number for number in covered if number < first)
    return index if remaining == covered and index.fragment_bitmap else covering(index, remaining)
