"""Each invariant of Delta's versions holds on a sound step, and is broken by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile, removal_of
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.commit_head import MARKS_APP
from lakefold_table.delta.invariants import INVARIANTS, CommitStep, check
from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
from lakefold_table.errors import StopError
from lakefold_table.invariants import faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.delta.actions.table_actions import Action

FEATURES = ("deletionVectors", "rowTracking", "domainMetadata")
PROTOCOL = TableProtocol(3, 7, ("deletionVectors",), FEATURES)
METADATA = TableMetadata("id", '{"type": "struct", "fields": []}', partition_columns=("p",))


def vector(rows: int, name: str = "a") -> DeletionVector:
    return DeletionVector("i", name, 10, rows)


def file(path: str, base: int | None, *, rows: int = 10, deleted: DeletionVector | None = None) -> AddFile:
    return AddFile(
        path,
        {"p": "1"},
        size=1,
        modified_ms=1,
        data_change=True,
        stats=f'{{"numRecords": {rows}}}',
        deletion_vector=deleted,
        base_row_id=base,
        default_row_commit_version=None if base is None else 4,
    )


def snapshot(version: int, files: Sequence[AddFile], *, highest: int = 29, at: int = 0) -> DeltaSnapshot:
    apps = {MARKS_APP: AppTransaction(MARKS_APP, version)}
    domain = DomainMetadata("delta.rowTracking", f'{{"rowIdHighWaterMark": {highest}}}')
    by_path = {each.path: each for each in files}
    domains = {"delta.rowTracking": domain}
    return DeltaSnapshot(version, PROTOCOL, METADATA, by_path, {}, apps, domains, 0, at or version)


KEPT, CHANGED = file("kept", 0), file("changed", 10, deleted=vector(2))
BEFORE = snapshot(4, [KEPT, CHANGED])
NEW, LATER = file("new", 20), file("changed", 10, deleted=vector(3, "b"))
ACTIONS: tuple[Action, ...] = (NEW, LATER, removal_of(CHANGED, data_change=True))
SOUND = CommitStep(BEFORE, snapshot(5, [KEPT, NEW, LATER]), ACTIONS)


def added(*actions: Action) -> CommitStep:
    """A step that does this as well."""
    return replace(SOUND, actions=(*ACTIONS, *actions))


def removed(file: AddFile) -> RemoveFile:
    return removal_of(file, data_change=True)


def after(changed: DeltaSnapshot) -> CommitStep:
    return replace(SOUND, after=changed)


BROKEN: dict[str, Sequence[CommitStep]] = {
    "version-follows": [
        after(replace(SOUND.after, version=6, apps={MARKS_APP: AppTransaction(MARKS_APP, 6)}))
    ],
    "files-are-named-once": [
        added(NEW),
        added(removed(KEPT), removed(KEPT)),
        added(removed(KEPT), KEPT),
    ],
    "removed-files-were-there": [
        added(removed(file("gone", 0))),
        replace(SOUND, actions=[removed(LATER)]),
    ],
    "rows-are-added-once": [replace(SOUND, actions=[LATER])],
    "deleted-rows-stay-deleted": [
        replace(SOUND, actions=[file("changed", 10), removed(CHANGED)]),
        replace(SOUND, actions=[file("changed", 10, deleted=vector(1, "b")), removed(CHANGED)]),
    ],
    "vectors-fit": [
        added(file("full", 0, deleted=vector(11))),
        after(replace(SOUND.after, protocol=TableProtocol(1, 7, None, ("rowTracking", "domainMetadata")))),
    ],
    "partitions-fit": [added(replace(file("bare", 0), partition_values={}))],
    "row-ids-fit": [
        added(file("without", None)),
        added(file("beyond", 25)),
        added(replace(file("early", 0), default_row_commit_version=6)),
    ],
    "commit-times-ascend": [after(replace(SOUND.after, in_commit_ms=4))],
    "marks-name-the-version": [
        after(replace(SOUND.after, apps={})),
        after(replace(SOUND.after, apps=BEFORE.apps)),
    ],
}


def test_a_sound_step_breaks_none() -> None:
    check(SOUND)
    check(CommitStep(None, replace(snapshot(0, [NEW], at=1)), [replace(NEW, default_row_commit_version=0)]))


@pytest.mark.parametrize("name", BROKEN)
def test_each_is_broken_by_hand_and_nothing_is_published(name: str) -> None:
    for step in BROKEN[name]:
        assert [invariant.name for invariant, _ in faults(INVARIANTS, step)] == [name]
        with pytest.raises(StopError, match=f"it would break {name}: ") as caught:
            check(step)
        assert "nothing was published" in (caught.value.hint or "")


def test_each_invariant_has_a_case() -> None:
    assert [invariant.name for invariant in INVARIANTS] == list(BROKEN)


def test_a_restore_brings_deleted_rows_back() -> None:
    step = replace(SOUND, actions=[file("changed", 10), removed(CHANGED)], restores=True)
    assert list(faults(INVARIANTS, step)) == []
