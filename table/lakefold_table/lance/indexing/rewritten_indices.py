"""How indices change when fragments are rewritten into others (Lance fact 10.3).

The transaction lists remapped indices with their new uuids and files. Of the other indices, those that refer
to rows by stable ids cover the new fragments as they did the old fragments; those that refer to rows by
address cover none of them.

An index by stable ids still has the rows that were deleted from the old fragments. pylance leaves them out
of the nearest rows only if the index covers a fragment that is gone or has deletions (Lance fact 10.12). So
old fragments with deleted rows stay in the coverage of indices that are asked for the best few rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Invalid
from lakefold_table.lance.indexing.index_entries import UUID_BYTES, files_fault, files_of, names_fault
from lakefold_table.lance.indexing.indices import coverage, covering, is_address_based, kind_of_url, type_of
from lakefold_table.lance.manifests.naming import index_path, is_inside
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.table_view import TableView

OF_BEST_ROWS: Final = frozenset({"VectorIndexDetails", "InvertedIndexDetails", ""})
"""Types of indices that are asked for the best few rows; older releases of Lance stated none for vectors."""
Moves = list[tuple[Bitmap, Bitmap]]


def paths_of_rewritten(remapped: Iterable[Transaction.Rewrite.RewrittenIndex]) -> Iterator[str]:
    """Yields the paths of the files of remapped indices."""
    for index in remapped:
        if len(index.new_id.uuid) == UUID_BYTES:
            kind = index.new_index_details.type_url.rpartition(".")[2]
            yield from files_of(index.new_id.uuid, index.new_index_files, kind)


def rewritten(
    table: TableView,
    groups: Sequence[Transaction.Rewrite.RewriteGroup],
    remapped: Sequence[Transaction.Rewrite.RewrittenIndex],
) -> Indices | Invalid:
    """Returns the indices after `groups` were rewritten. `remapped`: the indices that were remapped.

    A remapped index that the table no longer has was dropped since and stays dropped, as in pylance (Lance
    fact 6.7).
    """
    by_uuid = {index.old_id.uuid: index for index in remapped}
    fault = _remapped_fault(table, remapped, by_uuid)
    if fault is not None:
        return fault
    moves = [
        (
            Bitmap([fragment.id for fragment in group.old_fragments]),
            Bitmap([fragment.id for fragment in group.new_fragments]),
        )
        for group in groups
    ]
    with_deletions = Bitmap(
        fragment.id
        for group in groups
        for fragment in group.old_fragments
        if fragment.HasField("deletion_file")
    )
    after: list[IndexMetadata] = []
    for index in table.indices:
        remap = by_uuid.get(index.uuid.uuid)
        changed_index = (
            _after_rewrite(index, moves, with_deletions, stable=table.stable_row_ids)
            if remap is None
            else _remapped(index, moves, remap)
        )
        if isinstance(changed_index, Invalid):
            return changed_index
        after.append(changed_index)
    changed = any(new is not old for new, old in zip(after, table.indices, strict=True))
    return tuple(after) if changed else table.indices


def _remapped_fault(
    table: TableView,
    remapped: Sequence[Transaction.Rewrite.RewrittenIndex],
    by_uuid: Mapping[bytes, Transaction.Rewrite.RewrittenIndex],
) -> Invalid | None:
    used = {index.uuid.uuid for index in table.indices}
    new = [index.new_id.uuid for index in remapped]
    if len(by_uuid) < len(remapped) or len(set(new)) < len(new) or not used.isdisjoint(new):
        return Invalid("an index is remapped twice, or to a uuid in use", "use a new uuid for each index")
    if any(len(uuid) != UUID_BYTES for uuid in new):
        return Invalid("a remapped index has no uuid", f"send {UUID_BYTES} bytes")
    for index in remapped:
        sizes = {
            index_path(index.new_id.uuid, file.path): file.size_bytes
            for file in index.new_index_files
            if is_inside(file.path)
        }
        paths = paths_of_rewritten([index])
        name = index.new_id.uuid.hex()
        fault = names_fault(name, index.new_index_files) or files_fault(
            name, {path: sizes.get(path, 0) for path in paths}, table.fetched.sizes
        )
        if fault is not None:
            return fault
    return None


def _after_rewrite(
    index: IndexMetadata, moves: Moves, with_deletions: Bitmap, *, stable: bool
) -> IndexMetadata | Invalid:
    covered = coverage(index)
    if covered is None or not stable:
        return index
    if is_address_based(index):
        remaining = covered - Bitmap().union(*(old for old, _ in moves))
        return index if remaining == covered else covering(index, remaining)
    translated = _translated(index.name, covered, moves)
    if isinstance(translated, Invalid):
        return translated
    if translated == covered:
        return index
    gone = covered & with_deletions if type_of(index) in OF_BEST_ROWS else Bitmap()
    return covering(index, translated | gone)


def _remapped(
    index: IndexMetadata, moves: Moves, rewrite: Transaction.Rewrite.RewrittenIndex
) -> IndexMetadata | Invalid:
    covered = coverage(index)
    if covered is None:
        return Invalid(
            f"index {index.name!r} doesn't state which fragments it covers, so it can't be remapped",
            "build the index again",
        )
    translated = _translated(index.name, covered, moves)
    if isinstance(translated, Invalid):
        return translated
    if translated == covered:
        return Invalid(
            f"index {index.name!r} is remapped, but covers none of the rewritten fragments",
            "leave it out: its new addresses would be wrong",
        )
    if rewrite.HasField("new_index_details") and kind_of_url(rewrite.new_index_details.type_url) != type_of(
        index
    ):
        return Invalid(
            f"index {index.name!r} of type {type_of(index)} is remapped to another type",
            "remapping changes only the addresses of rows: keep the type",
        )
    remapped = covering(index, translated)
    remapped.uuid.uuid = rewrite.new_id.uuid
    remapped.ClearField("base_id")
    if rewrite.HasField("new_index_details"):
        remapped.index_details.CopyFrom(rewrite.new_index_details)
        remapped.index_version = rewrite.new_index_version
    del remapped.files[:]
    remapped.files.extend(rewrite.new_index_files)
    return remapped


def _translated(name: str, covered: Bitmap, moves: Moves) -> Bitmap | Invalid:
    """Returns the coverage after the moves.

    Returns `Invalid` if only a part of a group is covered, which pylance refuses too.
    """
    translated = Bitmap(covered)
    for old, new in moves:
        inside = old & covered
        if inside and len(inside) < len(old):
            return Invalid(
                f"index {name!r} covers only {some(list(inside))} of the fragments {some(list(old))}, "
                "which are rewritten together",
                "rewrite fragments that an index covers separately from others",
            )
        translated = (translated - old) | new if inside else translated
    return translated
