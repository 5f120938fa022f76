"""What is true of every version of a Delta table that a committer publishes, each invariant with its reason.

Other clients don't check most of them: a file that is removed under a deletion vector that it doesn't have
stays, and one that is added under a second one has its rows twice (Delta fact 3.2). They look at the actions
of one commit, so what a check costs depends on these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.commit_head import MARKS_APP
from lakefold_table.delta.record_counts import statistics_of
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.delta.table_features.row_tracking import FEATURE as ROW_TRACKING
from lakefold_table.delta.table_features.row_tracking import high_water_mark
from lakefold_table.invariants import Invariant, faults, unpublished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

VECTORS: Final = "deletionVectors"


@dataclass(frozen=True)
class CommitStep:
    """A version `after` with the actions of its commit, and the version `before` (None if it is the first).

    `restores`: the commit restores an older version.
    """

    before: DeltaSnapshot | None
    after: DeltaSnapshot
    actions: Sequence[Action]
    restores: bool = False

    @cached_property
    def adds(self) -> Sequence[AddFile]:
        """The files that the commit adds."""
        return [action for action in self.actions if isinstance(action, AddFile)]

    @cached_property
    def removes(self) -> Sequence[RemoveFile]:
        """The files that the commit removes."""
        return [action for action in self.actions if isinstance(action, RemoveFile)]

    @cached_property
    def present(self) -> Mapping[str, AddFile]:
        """The files of the version before, by path."""
        return {} if self.before is None else self.before.files


def version_follows(step: CommitStep) -> str:
    """A version has the number after the one before it."""
    expected = 0 if step.before is None else step.before.version + 1
    return "" if step.after.version == expected else f"version {step.after.version} comes before {expected}"


def files_are_named_once(step: CommitStep) -> str:
    """A commit adds a path once, removes a logical file once, and doesn't do both with the same one."""
    added = {file.path: file.key for file in step.adds}
    if len(added) < len(step.adds):
        return "a file is added twice"
    removed = {file.key for file in step.removes}
    if len(removed) < len(step.removes):
        return "a file is removed twice"
    both = removed.intersection(added.values())
    return f"the file {min(both)[0]!r} is added and removed" if both else ""


def removed_files_were_there(step: CommitStep) -> str:
    """A removed file was part of the table, with the same deletion vector."""
    for file in step.removes:
        stored = step.present.get(file.path)
        if stored is None or stored.key != file.key:
            what = "was not there" if stored is None else "had another deletion vector"
            return f"the removed file {file.path!r} {what}"
    return ""


def rows_are_added_once(step: CommitStep) -> str:
    """A file that is there is added again only unchanged, or if it is removed with its old vector."""
    removed = {file.key for file in step.removes}
    for file in step.adds:
        stored = step.present.get(file.path)
        if stored is not None and stored.key != file.key and stored.key not in removed:
            return f"the file {file.path!r} would be there with two deletion vectors"
    return ""


def deleted_rows_stay_deleted(step: CommitStep) -> str:
    """A deleted row comes back only by a restore."""
    for file in () if step.restores else step.adds:
        stored = step.present.get(file.path)
        before = None if stored is None else stored.deletion_vector
        now = file.deletion_vector
        if before is not None and (now is None or now.cardinality < before.cardinality):
            count = 0 if now is None else now.cardinality
            return f"{before.cardinality} rows of {file.path!r} were deleted, now {count} are"
    return ""


def vectors_fit(step: CommitStep) -> str:
    """A deletion vector is of a table that has the feature, and deletes no more rows than the file has."""
    for file in step.adds:
        vector = file.deletion_vector
        if vector is None:
            continue
        if VECTORS not in writer_features(step.after.protocol):
            return f"the file {file.path!r} has a deletion vector, which the table's protocol doesn't allow"
        rows = statistics_of(file).stored_rows
        if rows is not None and vector.cardinality > rows:
            return f"{vector.cardinality} of the {rows} rows of {file.path!r} are deleted"
    return ""


def partitions_fit(step: CommitStep) -> str:
    """A file has a value for each partition column."""
    count = len(step.after.metadata.partition_columns)
    for file in step.adds:
        if len(file.partition_values) != count:
            return f"the file {file.path!r} has {len(file.partition_values)} partition values, not {count}"
    return ""


def row_ids_fit(step: CommitStep) -> str:
    """If the table tracks rows, each added file has row ids up to the high-water mark, from some version."""
    if not step.adds or ROW_TRACKING not in writer_features(step.after.protocol):
        return ""
    highest = high_water_mark(step.after)
    for file in step.adds:
        base, version = file.base_row_id, file.default_row_commit_version
        if base is None or version is None:
            return f"the rows of {file.path!r} have no row ids"
        last = base + (statistics_of(file).stored_rows or 0) - 1
        if last > highest:
            return f"row id {last} of {file.path!r} is above the high-water mark {highest}"
        if version > step.after.version:
            return f"the rows of {file.path!r} are from version {version}, which doesn't exist yet"
    return ""


def commit_times_ascend(step: CommitStep) -> str:
    """The time that a commit gives is later than that of the one before."""
    before, now = None if step.before is None else step.before.in_commit_ms, step.after.in_commit_ms
    return "" if before is None or now is None or now > before else f"its time {now} is not after {before}"


def marks_name_the_version(step: CommitStep) -> str:
    """The marks are of this version, so that the next committer continues behind it."""
    marks = step.after.apps.get(MARKS_APP)
    is_own = marks is not None and marks.version == step.after.version
    return "" if is_own else "its marks are of another version"


INVARIANTS: Sequence[Invariant[CommitStep]] = (
    Invariant("version-follows", "a reader can't continue after a gap", version_follows),
    Invariant("files-are-named-once", "clients differ in what such a commit means", files_are_named_once),
    Invariant("removed-files-were-there", "the rows of the file would stay", removed_files_were_there),
    Invariant("rows-are-added-once", "the rows of the file would be there twice", rows_are_added_once),
    Invariant("deleted-rows-stay-deleted", "a delete is undone", deleted_rows_stay_deleted),
    Invariant("vectors-fit", "clients would read deleted rows, or none", vectors_fit),
    Invariant("partitions-fit", "a partition column would have no value", partitions_fit),
    Invariant("row-ids-fit", "an id would be given twice", row_ids_fit),
    Invariant("commit-times-ascend", "a version couldn't be found by its time", commit_times_ascend),
    Invariant("marks-name-the-version", "entries would be folded again", marks_name_the_version),
)
"""All invariants."""


def check(step: CommitStep) -> None:
    """Checks a version that is about to be published. Raises `StopError`: the fault is in this program."""
    for invariant, fault in faults(INVARIANTS, step):
        raise unpublished(invariant, fault, step.after.version)
