"""Proposals that wait in the log and name an old version: a clean-up keeps it, so they can be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.branching.chosen_version import VersionChoice
from lakefold.branching.ref_proposals import branching, restoring, tagging
from lakefold.console.options import Point
from lakefold_committer.tables.branches import open_branch
from lakefold_maintenance.scheduling.waiting_proposals import waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Tagged
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.oracle.committing import fold
from tests.oracle.test_compacting import made
from tests.oracle.test_upkeep import LATER, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold.branching.chosen_version import ChosenVersion

OLD, NEWEST = 3, 9
NAMING: dict[str, tuple[Callable[[ChosenVersion], Envelope], str]] = {
    "tag": (lambda chosen: tagging(chosen, "x", move=False), ""),
    "restore": (lambda chosen: restoring(chosen, NEWEST), ""),
    "branch": (lambda chosen: branching(chosen, "audit"), "audit"),
}
"""What names a version: how its proposal is built, and the branch that it is for."""


@pytest.mark.parametrize("name", NAMING)
def test_a_version_that_waits_to_be_named_stays(tmp_path: Path, name: str) -> None:
    around = Surroundings(made(tmp_path / "t", stable=False, version="2.1"))
    build, branch = NAMING[name]
    envelope = build(VersionChoice(OLD, None, None, Point(None, None)).find(str(around.table), {}))
    around.waiting = waiting_of([envelope], "")
    around.now += LATER
    report = around.upkeep(compaction="false").round()
    assert around.versions() == list(range(OLD, NEWEST + 1))
    assert report.kept_for_waiting == NEWEST - OLD
    (result,) = fold(open_branch(TableAddress(canonical(around.table)), branch), [envelope], 500)
    assert isinstance(result, Committed | Tagged), result
    around.waiting = waiting_of([], "")
    around.upkeep(compaction="false").round()
    assert len(around.versions()) < NEWEST + 1 - OLD


def clone(version: int, source: str | None) -> Envelope:
    envelope = Envelope(branch="new")
    envelope.lance.read_version = envelope.lance.clone.ref_version = version
    if source is not None:
        envelope.lance.clone.ref_name = source
    return envelope


@pytest.mark.parametrize(
    ("source", "branch", "is_kept"),
    [
        (None, "", True),
        ("", "", True),
        ("main", "", True),
        ("dev", "dev", True),
        # Its path may be that of the branch.
        (None, "dev", True),
        ("dev", "", False),
        ("main", "dev", False),
        ("release-1", "", False),
    ],
)
def test_a_new_branch_needs_the_version_of_its_source(
    source: str | None, branch: str, *, is_kept: bool
) -> None:
    waiting = waiting_of([clone(4, source)], branch)
    assert (waiting.count, waiting.oldest_read) == (0, 4 if is_kept else None)


@pytest.mark.parametrize(("read", "version", "needed"), [(9, 3, 3), (3, 3, 3), (2, 3, 2)])
def test_a_restore_needs_the_older_of_its_versions(read: int, version: int, needed: int) -> None:
    envelope = Envelope()
    envelope.lance.read_version, envelope.lance.restore.version = read, version
    assert waiting_of([envelope], "").oldest_read == needed
