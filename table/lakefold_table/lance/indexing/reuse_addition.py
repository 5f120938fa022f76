"""Adds a compaction to the fragment-reuse index (Lance facts 3.4 and 10.7).

Instead of remapping indices, a compaction may record where the rows went. Lance's message has no field for
that, so it is a field of the envelope: the whole index as the writer would commit it. Only the version that
it adds is used. The other versions are taken from the table's own index, which may have been trimmed or
extended since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.bitmaps import Bitmap, decode_treemap
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.indexing import reuse
from lakefold_table.lance.indexing.index_entries import entry_fault
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, Indices, coverage
from lakefold_table.lance.rows.deleted_rows import deleted_rows
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, FragmentReuseIndexDetails, IndexMetadata
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.table_view import TableView

REUSE_HINT = "describe the old and new fragments of the same transaction, with their reserved ids"


def with_reuse(
    table: TableView,
    indices: Indices,
    proposed: IndexMetadata,
    groups: Sequence[Transaction.Rewrite.RewriteGroup],
    old: Mapping[int, DataFragment],
) -> Indices | Invalid:
    """Returns the indices with the fragment-reuse index last, to which the rewrite of `groups` is added.

    `old`: the old fragments as the rewrite read them.
    """
    if table.stable_row_ids:
        return Invalid(
            "a table with stable row ids needs no fragment-reuse index, and pylance can't read one",
            "leave it out",
        )
    if proposed.name != FRAGMENT_REUSE:
        return Invalid(f"the fragment-reuse index is called {proposed.name!r}", f"name it {FRAGMENT_REUSE}")
    current = reuse.reuse_index(indices)
    try:
        fault = entry_fault(table, proposed, table.version - 1)
        versions = [] if fault else reuse.versions_of(table.head, proposed, table.content)
        stored = [] if current is None else reuse.versions_of(table.head, current, table.content)
        own = next((version for version in reversed(versions) if _describes(version, groups)), None)
        if fault is None and own is not None:
            fault = _version_fault(table, own, groups, old)
    except DamagedError as error:
        return Invalid(
            f"the fragment-reuse index can't be read: {error.reason}",
            "write its details before you send the transaction",
        )
    if fault is not None:
        return fault
    if own is None:
        return Invalid("the fragment-reuse index doesn't describe this rewrite", REUSE_HINT)
    if any(version.dataset_version == own.dataset_version for version in stored):
        return Invalid(
            f"the table's {FRAGMENT_REUSE} has a compaction of version {own.dataset_version} already",
            "state the version in which the ids of the new fragments were reserved",
        )
    combined = [*stored, own]
    entry = reuse.rewritten_by(proposed, combined)
    if list(versions) == combined and coverage(entry) == coverage(proposed):
        entry = proposed
    others = (index for index in indices if index is not current and index.uuid != entry.uuid)
    return (*others, entry)


def _describes(
    version: FragmentReuseIndexDetails.Version, groups: Sequence[Transaction.Rewrite.RewriteGroup]
) -> bool:
    """Returns whether a version of the index describes exactly these groups, by their fragment ids."""
    return sorted(map(_ids, version.groups)) == sorted(map(_ids, groups))


def _ids(
    group: FragmentReuseIndexDetails.Group | Transaction.Rewrite.RewriteGroup,
) -> tuple[list[int], list[int]]:
    old, new = group.old_fragments, group.new_fragments
    return sorted(fragment.id for fragment in old), sorted(fragment.id for fragment in new)


def _version_fault(
    table: TableView,
    version: FragmentReuseIndexDetails.Version,
    groups: Sequence[Transaction.Rewrite.RewriteGroup],
    old: Mapping[int, DataFragment],
) -> Invalid | None:
    """Returns a fault if the version lists other rows than the live rows of the old fragments."""
    if not 0 < version.dataset_version < table.version:
        return Invalid(
            f"the fragment-reuse index is for version {version.dataset_version}",
            f"state the version that was rewritten, at most {table.version - 1}",
        )
    new = {listed.id: listed.physical_rows for group in groups for listed in group.new_fragments}
    for group in version.groups:
        wrong = [listed.id for listed in group.new_fragments if listed.physical_rows != new[listed.id]]
        rows = decode_treemap(group.changed_row_addrs, FRAGMENT_REUSE)
        wrong += rows.keys() - {listed.id for listed in group.old_fragments}
        for listed in group.old_fragments:
            fragment = old[listed.id]
            deleted = deleted_rows(table, fragment)
            live = Bitmap(range(fragment.physical_rows)) - deleted
            same = (listed.physical_rows, listed.num_deleted_rows) == (fragment.physical_rows, len(deleted))
            if not same or rows.get(listed.id, Bitmap()) != live:
                wrong.append(listed.id)
        if wrong:
            return Invalid(
                f"the fragment-reuse index lists other rows than fragments {some(wrong)} have",
                "list every row that isn't deleted",
            )
    return None
