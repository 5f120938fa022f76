"""Whether a Rewrite kept the order of its rows, and what it wrote into each of its new fragments.

Lance's message of a Rewrite doesn't say where each row went. If the rows of a group keep their order (the old
fragments as they are listed, in each the rows that are not deleted, ascending), each row's address follows
from the deletion files that the Rewrite read. All of Lance's compactions keep this order: they renumber row
ids and index entries by it (Lance fact 6.17). But a Rewrite may as well sort the rows of its group. So a
Rewrite is only trusted to keep the order if there is evidence: its transaction has the property
`lakefold.row-order`, it carries a fragment-reuse index (whose meaning is this order), its row ids show it, or
Lance itself has committed it.

The committer adds the property to each Rewrite of which it knows the order. If all rows of a new fragment
were deleted meanwhile, that fragment is left out of the version, and a second property states how many rows
it had, since the addresses of the rows after it depend on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.manifests.features import has_stable_row_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, Manifest

ROW_ORDER, KEPT = "lakefold.row-order", "kept"
"""The property by which a Rewrite states that the rows keep their order, and its only value."""
EMPTIED = "lakefold.emptied-fragments"
"""The property with new fragments that are not in the version, as `group:index:rows`, with commas between."""
LANCE = "lance"
"""What Lance's own clients call themselves in a manifest."""

Group = Transaction.Rewrite.RewriteGroup
Emptied = dict[int, dict[int, int]]
"""The rows of new fragments that were left out, by the index of the group and their index in it."""


def states_order(transaction: Transaction) -> bool:
    """Returns whether a Rewrite states by its property that it keeps the order of the rows."""
    return transaction.transaction_properties.get(ROW_ORDER) == KEPT


def committed_in_order(transaction: Transaction, head: Manifest | None, *, carries_reuse: bool) -> bool:
    """Returns whether a Rewrite that was committed is known to have kept the order.

    `head`: the manifest of its version, None if a committer made it.
    """
    if states_order(transaction) or carries_reuse:
        return True
    if head is None or head.writer_version.library != LANCE:
        return False
    new = [fragment for group in groups_of(transaction.rewrite) for fragment in group.new_fragments]
    if has_stable_row_ids(head):
        return all(fragment.WhichOneof("row_id_sequence") for fragment in new)
    # A compaction reserves the ids of its fragments first, a Rewrite that was made by hand need not.
    return all(fragment.id for fragment in new)


def groups_of(rewrite: Transaction.Rewrite) -> Sequence[Group]:
    """Returns the groups of old and new fragments; an older form of the message has a single group."""
    if rewrite.groups or not (rewrite.old_fragments or rewrite.new_fragments):
        return rewrite.groups
    return [Group(old_fragments=rewrite.old_fragments, new_fragments=rewrite.new_fragments)]


def written_groups(transaction: Transaction, last_id: int) -> list[Group] | None:
    """Returns the groups with no more than ids, numbers of rows and deletion files.

    Fragments that were left out of the version are among the new ones, with the id 0. `last_id`: the highest
    id that was used up to this version; new fragments without an id got the last ones. Returns None if the
    property of the emptied fragments can't be read, or if there are fewer ids.
    """
    emptied = _emptied(transaction)
    groups = groups_of(transaction.rewrite)
    unnumbered = sum(not fragment.id for group in groups for fragment in group.new_fragments)
    if emptied is None or last_id < unnumbered:
        return None
    ids = iter(range(last_id - unnumbered + 1, last_id + 1))
    written: list[Group] = []
    for number, group in enumerate(groups):
        new = [_bare(fragment, fragment.id or next(ids)) for fragment in group.new_fragments]
        for index, rows in sorted(emptied.get(number, {}).items()):
            new.insert(index, _bare_empty(rows))
        old = [_bare(fragment, fragment.id) for fragment in group.old_fragments]
        written.append(Group(old_fragments=old, new_fragments=new))
    return written


def record_order(transaction: Transaction, emptied: Mapping[int, Mapping[int, int]]) -> None:
    """Adds the properties to a Rewrite that is known to keep the order."""
    transaction.transaction_properties[ROW_ORDER] = KEPT
    parts = [
        f"{group}:{index}:{rows}"
        for group, fragments in sorted(emptied.items())
        for index, rows in sorted(fragments.items())
    ]
    if parts:
        transaction.transaction_properties[EMPTIED] = ",".join(parts)


def _emptied(transaction: Transaction) -> Emptied | None:
    emptied: Emptied = {}
    try:
        for group, index, rows in _numbers(transaction.transaction_properties.get(EMPTIED, "")):
            emptied.setdefault(group, {})[index] = rows
    except ValueError:
        return None
    return emptied


def _numbers(text: str) -> Iterator[tuple[int, int, int]]:
    for part in filter(None, text.split(",")):
        group, index, rows = map(int, part.split(":"))
        if min(group, index, rows) < 0:
            raise ValueError(part)
        yield group, index, rows


def _bare(fragment: DataFragment, number: int) -> DataFragment:
    bare = type(fragment)(id=number, physical_rows=fragment.physical_rows)
    if fragment.HasField("deletion_file"):
        bare.deletion_file.CopyFrom(fragment.deletion_file)
    return bare


def _bare_empty(rows: int) -> DataFragment:
    group = Group()
    return group.new_fragments.add(physical_rows=rows)
