"""What becomes of indices where fragments are rewritten into others (Lance fact 10.3).

An index that was remapped is told by the transaction, with its new uuid and files. Of the others those that
know rows by stable ids describe the new fragments as they did the old ones; those that know them by address
describe nothing of them any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.lance.indexing.index_entries import UUID_BYTES, files_fault, files_of, names_fault
from lakefold_table.lance.indexing.indices import coverage, covering, is_address_based, kind_of_url, type_of
from lakefold_table.lance.manifests.naming import index_path, is_inside
from lakefold_table.lance.rows.bitmaps import Bitmap
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.version_builder import VersionBuilder

Moves = list[tuple[Bitmap, Bitmap]]


def paths_of_rewritten(told: Iterable[Transaction.Rewrite.RewrittenIndex]) -> Iterator[str]:
    """The paths of the files of remapped indices."""
    for one in told:
        if len(one.new_id.uuid) == UUID_BYTES:
            kind = one.new_index_details.type_url.rpartition(".")[2]
            yield from files_of(one.new_id.uuid, one.new_index_files, kind)


def rewritten(
    table: VersionBuilder,
    groups: Sequence[Transaction.Rewrite.RewriteGroup],
    told: Sequence[Transaction.Rewrite.RewrittenIndex],
) -> Indices | Invalid:
    """The indices after `groups` were rewritten. `told`: those that were remapped.

    One that is told and isn't there was dropped since, and stays so, as in pylance (Lance fact 6.7).
    """
    by_uuid = {one.old_id.uuid: one for one in told}
    fault = _told_fault(table, told, by_uuid)
    if fault is not None:
        return fault
    moves = [
        (Bitmap([one.id for one in group.old_fragments]), Bitmap([one.id for one in group.new_fragments]))
        for group in groups
    ]
    after: list[IndexMetadata] = []
    for index in table.indices:
        made = _moved(index, moves, by_uuid.get(index.uuid.uuid), stable=table.stable_row_ids)
        if isinstance(made, Invalid):
            return made
        after.append(made)
    changed = any(one is not index for one, index in zip(after, table.indices, strict=True))
    return tuple(after) if changed else table.indices


def _told_fault(
    table: VersionBuilder,
    told: Sequence[Transaction.Rewrite.RewrittenIndex],
    by_uuid: Mapping[bytes, Transaction.Rewrite.RewrittenIndex],
) -> Invalid | None:
    taken = {index.uuid.uuid for index in table.indices}
    new = [one.new_id.uuid for one in told]
    if len(by_uuid) < len(told) or len(set(new)) < len(new) or not taken.isdisjoint(new):
        return Invalid(
            "an index is remapped twice, or to a uuid that is taken", "give each a uuid of its own"
        )
    if any(len(uuid) != UUID_BYTES for uuid in new):
        return Invalid("a remapped index has no uuid", f"give {UUID_BYTES} bytes")
    for one in told:
        sizes = {
            index_path(one.new_id.uuid, file.path): file.size_bytes
            for file in one.new_index_files
            if is_inside(file.path)
        }
        paths = paths_of_rewritten([one])
        name = one.new_id.uuid.hex()
        fault = names_fault(name, one.new_index_files) or files_fault(
            name, {path: sizes.get(path, 0) for path in paths}, table.observed.sizes
        )
        if fault is not None:
            return fault
    return None


def _moved(
    index: IndexMetadata, moves: Moves, told: Transaction.Rewrite.RewrittenIndex | None, *, stable: bool
) -> IndexMetadata | Invalid:
    covered = coverage(index)
    if told is not None:
        return _remapped(index, covered, moves, told)
    if covered is None or not stable:
        return index
    if is_address_based(index):
        left = covered - Bitmap().union(*(old for old, _ in moves))
        return index if left == covered else covering(index, left)
    followed = _followed(index.name, covered, moves)
    if isinstance(followed, Invalid):
        return followed
    return index if followed == covered else covering(index, followed)


def _remapped(
    index: IndexMetadata, covered: Bitmap | None, moves: Moves, told: Transaction.Rewrite.RewrittenIndex
) -> IndexMetadata | Invalid:
    if covered is None:
        return Invalid(
            f"index {index.name!r} doesn't say which fragments it covers, so it can't be remapped",
            "build it anew",
        )
    followed = _followed(index.name, covered, moves)
    if isinstance(followed, Invalid):
        return followed
    if followed == covered:
        return Invalid(
            f"index {index.name!r} is remapped, but covers none of the fragments that are rewritten",
            "leave it out: it would look for rows where none are",
        )
    if told.HasField("new_index_details") and kind_of_url(told.new_index_details.type_url) != type_of(index):
        return Invalid(
            f"index {index.name!r} of type {type_of(index)} is remapped to another type",
            "remapping changes where rows are, not what the index is",
        )
    made = covering(index, followed)
    made.uuid.uuid = told.new_id.uuid
    made.ClearField("base_id")
    if told.HasField("new_index_details"):
        made.index_details.CopyFrom(told.new_index_details)
        made.index_version = told.new_index_version
    del made.files[:]
    made.files.extend(told.new_index_files)
    return made


def _followed(name: str, covered: Bitmap, moves: Moves) -> Bitmap | Invalid:
    """The coverage after the moves; a group that is covered in part has no answer, in pylance neither."""
    now = Bitmap(covered)
    for old, new in moves:
        inside = old & covered
        if inside and len(inside) < len(old):
            return Invalid(
                f"of the fragments {some(list(old))} that are made into one, index {name!r} covers only "
                f"{some(list(inside))}",
                "rewrite fragments that an index covers apart from others",
            )
        now = (now - old) | new if inside else now
    return now
