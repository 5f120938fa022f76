"""What a compaction adds to the fragment-reuse index (Lance facts 3.4 and 10.7).

Instead of remapping the indices, a compaction may say where the rows went. Lance's message has no field for
that, so it lies beside it in the envelope: the whole index as its author would have it, of which what he adds
counts. What is in the table's own stays as it is there, be it trimmed since, or extended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.indexing import reuse
from lakefold_table.lance.indexing.index_entries import entry_fault
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, coverage
from lakefold_table.lance.rows.bitmaps import Bitmap, decode_treemap
from lakefold_table.lance.rows.deleted_rows import deleted_rows
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, IndexMetadata
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.version_builder import VersionBuilder

TELL = "tell of the fragments of the same transaction, old and new, with their reserved ids"


def with_reuse(
    table: VersionBuilder,
    indices: Indices,
    proposed: IndexMetadata,
    groups: Sequence[Transaction.Rewrite.RewriteGroup],
) -> Indices | Invalid:
    """The indices with the fragment-reuse index last, what the rewrite of `groups` did added to it."""
    if table.stable_row_ids:
        return Invalid(
            "rows with stable ids need no fragment-reuse index (nor can pylance read one)", "leave it out"
        )
    if proposed.name != FRAGMENT_REUSE:
        return Invalid(f"the fragment-reuse index is called {proposed.name!r}", f"call it {FRAGMENT_REUSE}")
    current = reuse.reuse_index(indices)
    try:
        fault = entry_fault(table, proposed, table.version - 1)
        versions = [] if fault else reuse.versions_of(table.head, proposed, table.content)
        there = [] if current is None else reuse.versions_of(table.head, current, table.content)
        own = next((one for one in reversed(versions) if _tells_of(one, groups)), None)
        if fault is None and own is not None:
            fault = _version_fault(table, own, groups)
    except DamagedError as error:
        return Invalid(
            f"the fragment-reuse index can't be read: {error.reason}", "write its details before it is sent"
        )
    if fault is not None:
        return fault
    if own is None:
        return Invalid("the fragment-reuse index doesn't tell of this rewrite", TELL)
    if any(one.dataset_version == own.dataset_version for one in there):
        return Invalid(
            f"the table's {FRAGMENT_REUSE} tells of a compaction of version {own.dataset_version} already",
            "give the version that the new fragments were reserved at",
        )
    wanted = [*there, own]
    entry = reuse.rewritten_by(proposed, wanted)
    if list(versions) == wanted and coverage(entry) == coverage(proposed):
        entry = proposed
    others = (index for index in indices if index is not current and index.uuid != entry.uuid)
    return (*others, entry)


def _tells_of(
    version: FragmentReuseIndexDetails.Version, groups: Sequence[Transaction.Rewrite.RewriteGroup]
) -> bool:
    """Whether a version of the index tells of just these groups, by the ids of their fragments."""
    return sorted(map(_ids, version.groups)) == sorted(map(_ids, groups))


def _ids(
    group: FragmentReuseIndexDetails.Group | Transaction.Rewrite.RewriteGroup,
) -> tuple[list[int], list[int]]:
    old, new = group.old_fragments, group.new_fragments
    return sorted(one.id for one in old), sorted(one.id for one in new)


def _version_fault(
    table: VersionBuilder,
    version: FragmentReuseIndexDetails.Version,
    groups: Sequence[Transaction.Rewrite.RewriteGroup],
) -> Invalid | None:
    """What is wrong with what is told: rows that aren't there, or aren't all."""
    if not 0 < version.dataset_version < table.version:
        return Invalid(
            f"the fragment-reuse index tells of version {version.dataset_version}",
            f"give the version that was rewritten, up to {table.version - 1}",
        )
    new = {one.id: one.physical_rows for group in groups for one in group.new_fragments}
    there = table.get([one.id for group in groups for one in group.old_fragments])
    for group in version.groups:
        wrong = [one.id for one in group.new_fragments if one.physical_rows != new[one.id]]
        rows = decode_treemap(group.changed_row_addrs, FRAGMENT_REUSE)
        wrong += rows.keys() - {one.id for one in group.old_fragments}
        for one in group.old_fragments:
            fragment = there[one.id]
            deleted = deleted_rows(table, fragment)
            live = Bitmap(range(fragment.physical_rows)) - deleted
            same = (one.physical_rows, one.num_deleted_rows) == (fragment.physical_rows, len(deleted))
            if not same or rows.get(one.id, Bitmap()) != live:
                wrong.append(one.id)
        if wrong:
            return Invalid(
                f"the fragment-reuse index tells of other rows than fragments {some(wrong)} have",
                "tell of every row that isn't deleted",
            )
    return None
