"""Invariants of what stands beside the fragments: numbers that only grow, schema, flags, bases, indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.lance.manifests.features import Flag, flags_of, has_stable_row_ids
from lakefold_table.lance.rows.bitmaps import decode_bitmap
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.schema import check_structure
from lakefold_table.marks.marks import decode_marks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_table.lance.invariants.step import Step

UUID_BYTES = 16
FROM_CONTENT = int(Flag.DELETION_FILES | Flag.TABLE_CONFIG | Flag.BASE_PATHS)
"""The flags that the content alone decides. Of the others a version has at least what its content asks."""


def version_follows(step: Step) -> str:
    """The number is the next one, and the time a later one."""
    if step.before is None:
        return "" if step.after.version else "the version has the number 0"
    if step.after.version != step.before.version + 1:
        return f"version {step.after.version} is made to follow version {step.before.version}"
    if step.after.time_us <= step.before.time_us:
        return f"its time {step.after.time_us} µs is not after that of the one before"
    return ""


def ids_stay_used(step: Step) -> str:
    """No id of a fragment or row that was ever given can be given again."""
    head = step.after.head
    highest = _highest(head)
    if step.after.fragments.last_id > highest:
        return f"fragment {step.after.fragments.last_id} is above the highest id ever used, {highest}"
    if step.before is None:
        return ""
    before = step.before.head
    if highest < _highest(before):
        return f"the highest fragment id falls from {_highest(before)} to {highest}"
    if head.next_row_id < before.next_row_id:
        return f"the next row id falls from {before.next_row_id} to {head.next_row_id}"
    return ""


def row_ids_stay_stable(step: Step) -> str:
    """Whether rows keep their ids is decided once, when the table is made."""
    if step.before is None:
        return ""
    was, now = has_stable_row_ids(step.before.head), has_stable_row_ids(step.after.head)
    return "" if was == now else f"stable row ids are switched {'on' if now else 'off'}"


def schema_is_sound(step: Step) -> str:
    """Fields form trees whose parents stand before their children."""
    head = step.after.head
    if step.before is not None and step.before.head.fields == head.fields:
        return ""
    check_structure(head.fields)
    return ""


def flags_tell_content(step: Step) -> str:
    """Readers are warned of all that they must know, and of nothing that isn't there."""
    head = step.after.head
    reader, writer = flags_of(head, deletions=step.after.fragments.has_deletions)
    for who, are, should in (
        ("readers", head.reader_feature_flags, reader),
        ("writers", head.writer_feature_flags, writer),
    ):
        if should & ~are or (are & FROM_CONTENT) != (should & FROM_CONTENT):
            return f"the flags for {who} are {are}, the content asks for {should}"
    return ""


def bases_are_known(step: Step) -> str:
    """A file that lies under another root names one that the table has."""
    paths = step.after.head.base_paths
    known = {base.id for base in paths}
    if len(known) < len(paths):
        return "two base paths have one id"
    for number, what in _used_bases(step):
        if number not in known:
            return f"{what} lies under base {number}, which the table doesn't have"
    return ""


def _used_bases(step: Step) -> Iterator[tuple[int, str]]:
    for fragment, files in zip(step.fragments, step.files, strict=True):
        for file in files:
            if file.HasField("base_id"):
                yield file.base_id, f"data file {file.path}"
        if fragment.HasField("deletion_file") and fragment.deletion_file.HasField("base_id"):
            yield fragment.deletion_file.base_id, f"the deletion file of fragment {fragment.id}"
    for index in step.indices:
        if index.HasField("base_id"):
            yield index.base_id, f"index {index.name}"


def indices_name_what_was(step: Step) -> str:
    """Each index has a uuid of its own, fields of the schema, and covers only ids that were ever used."""
    fields = {field.id for field in step.after.head.fields}
    seen: set[bytes] = set()
    highest = _highest(step.after.head)
    for index in step.indices:
        uuid = index.uuid.uuid
        if len(uuid) != UUID_BYTES or uuid in seen:
            return f"index {index.name} has no uuid of its own"
        seen.add(uuid)
        if unknown := set(index.fields) - fields:
            return f"index {index.name} is on field ids {some(unknown)}, which the schema doesn't have"
        if not index.fragment_bitmap:
            continue
        covered = decode_bitmap(index.fragment_bitmap, f"index {index.name}")
        if covered and covered.max() > highest:
            return f"index {index.name} covers fragment {covered.max()}, but ids were used up to {highest}"
    return ""


def marks_grow(step: Step) -> str:
    """The log's positions and the owner's epoch never go back, and the marks name the version they are in.

    A move is the exception: the position then goes on behind where the move says that the table stands.
    """
    marks = decode_marks(step.after.metadata)
    before = None if step.before is None else decode_marks(step.before.metadata)
    if marks is None:
        return ""
    if marks.version > step.after.version:
        return f"its marks were made for version {marks.version}"
    if before is None or before.version > marks.version or before.table_id != marks.table_id:
        return ""
    is_moved = bool(marks.moves) and marks.moves[-1:] != before.moves[-1:]
    least = marks.moves[-1].after if is_moved else before.position
    if least is not None and (marks.position is None or marks.position < least):
        return f"the position goes back from {least} to {marks.position}"
    behind = [name for name, offset in before.file_logs if dict(marks.file_logs).get(name, offset) < offset]
    if behind:
        return f"the positions of the file logs {some(behind)} go back"
    return "" if marks.epoch >= before.epoch else f"the epoch falls from {before.epoch} to {marks.epoch}"


def _highest(head: Manifest) -> int:
    """The highest fragment id ever used, -1 where none was."""
    return head.max_fragment_id if head.HasField("max_fragment_id") else -1
