"""Invariants of everything except the fragments: version, used ids, schema, flags, bases, indices, marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.bitmaps import decode_bitmap
from lakefold_table.durations import LATEST_US
from lakefold_table.lance.manifests.features import Flag, flags_of, has_stable_row_ids
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.schema import check_structure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_table.lance.invariants.step import Step

UUID_BYTES = 16
FROM_CONTENT = int(Flag.DELETION_FILES | Flag.TABLE_CONFIG | Flag.BASE_PATHS)
"""The flags that depend on the content alone. Of the other flags a version may have more than it needs."""


def version_follows(step: Step) -> str:
    """The version number is the next number, and the time is later, unless none can be."""
    if step.before is None:
        return "" if step.after.version else "the version has the number 0"
    if step.after.version != step.before.version + 1:
        return f"version {step.after.version} comes after version {step.before.version}"
    if step.after.time_us <= step.before.time_us < LATEST_US:
        return f"its time {step.after.time_us} µs is not after that of the one before"
    return ""


def ids_stay_used(step: Step) -> str:
    """An id of a fragment or a row that was ever used is never used again."""
    head = step.after.head
    highest = _highest(head)
    if step.after.fragments.last_id > highest:
        return f"fragment {step.after.fragments.last_id} is above the highest id ever used, {highest}"
    if step.before is None:
        return ""
    before = step.before.head
    if highest < _highest(before):
        return f"the highest fragment id decreases from {_highest(before)} to {highest}"
    if head.next_row_id < before.next_row_id:
        return f"the next row id decreases from {before.next_row_id} to {head.next_row_id}"
    return ""


def row_ids_stay_stable(step: Step) -> str:
    """Whether rows have stable ids is decided once, when the table is created."""
    if step.before is None:
        return ""
    before, after = has_stable_row_ids(step.before.head), has_stable_row_ids(step.after.head)
    return "" if before == after else f"stable row ids are switched {'on' if after else 'off'}"


def schema_is_sound(step: Step) -> str:
    """The fields form trees, with parents before their children."""
    head = step.after.head
    if step.before is not None and step.before.head.fields == head.fields:
        return ""
    check_structure(head.fields)
    return ""


def flags_match_content(step: Step) -> str:
    """The feature flags name everything that a client must support, and nothing that isn't used."""
    head = step.after.head
    reader, writer = flags_of(head, deletions=step.after.fragments.has_deletions)
    for clients, current, expected in (
        ("readers", head.reader_feature_flags, reader),
        ("writers", head.writer_feature_flags, writer),
    ):
        if expected & ~current or (current & FROM_CONTENT) != (expected & FROM_CONTENT):
            return f"the flags for {clients} are {current}, the content requires {expected}"
    return ""


def bases_are_known(step: Step) -> str:
    """Each file under another base names a base of the table."""
    paths = step.after.head.base_paths
    ids = {base.id for base in paths}
    if len(ids) < len(paths):
        return "two base paths have one id"
    for number, what in _used_bases(step):
        if number not in ids:
            return f"{what} is under base {number}, which the table doesn't have"
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


def indices_are_consistent(step: Step) -> str:
    """Each index has a unique uuid and fields of the schema, and covers only ids that were used."""
    fields = {field.id for field in step.after.head.fields}
    uuids: set[bytes] = set()
    highest = _highest(step.after.head)
    for index in step.indices:
        uuid = index.uuid.uuid
        if len(uuid) != UUID_BYTES or uuid in uuids:
            return f"index {index.name} has no uuid, or that of another index"
        uuids.add(uuid)
        if unknown := set(index.fields) - fields:
            return f"index {index.name} is on field ids {some(unknown)}, which the schema doesn't have"
        if not index.fragment_bitmap:
            continue
        covered = decode_bitmap(index.fragment_bitmap, f"index {index.name}")
        if covered and covered.max() > highest:
            return f"index {index.name} covers fragment {covered.max()}, but ids were used up to {highest}"
    return ""


def _highest(head: Manifest) -> int:
    """Returns the highest fragment id ever used, -1 if none was."""
    return head.max_fragment_id if head.HasField("max_fragment_id") else -1
