"""A proposal that was built on another table of its name is refused, whatever it is.

The table was removed and made anew, its branch was, or it was restored to an earlier copy. Each table here is
as the other one was, byte by byte but for its marks, so that nothing else refuses the proposal.

Promise: other-tables (docs/operations/promises.md).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

import lakefold
from lakefold.branching.chosen_version import ChosenVersion, VersionChoice, newest_id
from lakefold.branching.ref_proposals import branching, deleting, restoring, tagging, untagging
from lakefold.console.options import Point
from lakefold.console.settings import Settings
from lakefold_committer.tables.branches import located, open_branch
from lakefold_committer.tables.rebinding import publish_move
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_reader.formats import open_branch as source_of
from lakefold_table.entry import Committed, Invalid, Rejected, Result, Tagged
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.table_address import TableAddress
from tests.delta_logs.actions import text
from tests.delta_logs.pairs import PairTable
from tests.folding import fold_at
from tests.oracle.pair_operations import BY_HAND, operations
from tests.oracle.pairs import Base, Operation, transaction_of
from tests.tagging import set_tag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_committer.fold.fold import FoldedTable

DELTA = {
    "append": "+c",
    "delete": "-f",
    "delete of rows": "r1",
    "replacement": "-f +c",
    "compaction": "~f ~c",
    "metadata": "m:note",
    "domain": "d1",
    "batch of another app": "+c @x:5",
}
REFUSED_ALWAYS = {"overlay f0", "overlay f1", "clone"}
"""Kinds that no table takes (decision 0011), and the one that begins a table."""
NO_LOG = "mem wal"
"""The kind that needs a write-ahead log, which the tables here don't have."""
LANCE = [
    "append",
    "delete f0",
    "delete all f0",
    "update f0",
    "update column f0",
    "overwrite",
    "index a f0 f1",
    "rewrite f0 f1",
    "merge",
    "merge keeping",
    "project",
    "project keeping",
    "restore",
    "config k",
    "table metadata",
    "schema metadata",
    "field 0 metadata",
    "replacement f0",
    "reserve",
    "mem wal",
    "bases",
]


class World:
    """A table in a folder, which is made again and again from the same files."""

    branch = ""
    checks_files = False

    def __init__(self, folder: Path) -> None:
        self.path, self.kept, self.offset = folder / "t", folder / "kept", 0
        self.begin()
        self.uri = canonical(self.path)

    def begin(self) -> None:
        """Writes the files from which the table is made."""
        raise NotImplementedError

    def first(self) -> Envelope:
        """What a committer folds into the table first, so that it has marks."""
        raise NotImplementedError

    def proposal(self, name: str, read: int) -> Envelope:
        """A proposal of this kind, built on a version."""
        raise NotImplementedError

    def make(self) -> None:
        """Makes the table anew."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.kept, self.path, copy_function=os.link)
        self.commit(self.first())

    def fold(self, envelope: Envelope) -> Result:
        """Folds a proposal at the next position of the log."""
        self.offset += 1
        table = open_branch(TableAddress(self.uri), envelope.branch)
        if not self.checks_files:
            stored = located(TableAddress(self.uri), envelope.branch)
            table = TableWriter(stored, check_sizes=False)
        return fold_at(table, [envelope], self.offset)[0].result

    def commit(self, envelope: Envelope) -> None:
        assert isinstance(self.fold(envelope), Committed)

    def id(self) -> str:
        marks = lakefold.open(self.uri, branch=self.branch or None).marks
        return "" if marks is None else marks.full_id

    def copied(self, do: Callable[[], None]) -> None:
        """Does something to the table, then takes it back to the copy from before, as the verb accepts it."""
        copy = self.path.with_name("copy")
        shutil.copytree(self.path, copy)
        do()
        shutil.rmtree(self.path)
        shutil.move(copy, self.path)

    def rebind(self, *, fold_again: bool = False) -> None:
        """Continues with the copy, as `rebind --restored` does."""
        self.offset += 1

        def decide(table: FoldedTable) -> Rebinding:
            before = table.marks.position
            assert before is not None
            after = before if fold_again else replace(before, offset=self.offset)
            return Rebinding(RebindReason.RESTORED, before, after, self.offset)

        publish_move(located(TableAddress(self.uri), self.branch), decide)


class LanceWorld(World):
    """A Lance table: version 3 is the first of a committer."""

    def begin(self) -> None:
        self.base = Base(self.kept)
        self.operations: dict[str, Operation] = {**operations(self.base), **BY_HAND}
        for name, operation in self.operations.items():
            if name not in REFUSED_ALWAYS and not isinstance(operation, Transaction):
                self.operations[name] = transaction_of(self.base, operation)
        created = cast("Transaction", self.operations["index a f0 f1"]).create_index
        folder = self.kept / "_indices" / str(UUID(bytes=created.new_indices[0].uuid.uuid))
        folder.mkdir(parents=True)
        (folder / "page_data.lance").write_bytes(b"index")

    def first(self) -> Envelope:
        return self.config("first")

    def config(self, value: str) -> Envelope:
        envelope = Envelope(table=self.uri, branch=self.branch)
        envelope.lance.uuid = f"config {value} {self.offset}"
        envelope.lance.read_version = 2
        envelope.lance.update_config.config_updates.update_entries.add(key="mine", value=value)
        return envelope

    def proposal(self, name: str, read: int = 3) -> Envelope:
        envelope = Envelope(table=self.uri, branch=self.branch)
        envelope.lance.CopyFrom(self.operations[name])
        envelope.lance.read_version = read
        return envelope


class BranchWorld(LanceWorld):
    """The branch of such a table, which is made anew in the same table."""

    branch = "side"

    def make(self) -> None:
        if not self.path.exists():
            shutil.copytree(self.kept, self.path, copy_function=os.link)
            self.commit_to_main()
        shutil.rmtree(self.path / "tree", ignore_errors=True)
        shutil.rmtree(self.path / "_refs", ignore_errors=True)
        self.commit(branching(chosen(self.uri), self.branch))

    def commit_to_main(self) -> None:
        envelope = self.config("first")
        envelope.branch = ""
        self.commit(envelope)


class DeltaWorld(World):
    """A Delta table: version 1 is the first of a committer."""

    def begin(self) -> None:
        self.pair = PairTable(self.kept, "WriteSerializable")
        for actions in DELTA.values():
            self.pair.actions(actions)

    def first(self) -> Envelope:
        envelope = Envelope(table=self.uri)
        envelope.delta.actions = text(self.pair.actions("+b:z"))
        return envelope

    def proposal(self, name: str, read: int = 1) -> Envelope:
        envelope = Envelope(table=self.uri)
        envelope.delta.actions = text(self.pair.actions(DELTA[name]))
        envelope.delta.read_version = read
        return envelope


def chosen(uri: str, number: int | None = None, branch: str | None = None) -> ChosenVersion:
    """The version as `tag`, `branch` and `restore` choose it."""
    return VersionChoice(number, None, branch, Point(None, None)).find(uri, {})


WORLDS: dict[type[World], list[str]] = {LanceWorld: LANCE, BranchWorld: LANCE, DeltaWorld: list(DELTA)}
EACH = [
    pytest.param(world, name, id=f"{world.__name__}, {name}")
    for world, names in WORLDS.items()
    for name in names
]
FIRST = {LanceWorld: 3, BranchWorld: 3, DeltaWorld: 1}
"""The first version that a committer made."""


def check_refused(result: Result) -> None:
    assert isinstance(result, Rejected), result
    assert result.conflict.retryable
    assert "made anew or restored" in result.conflict.message


def is_unsure(kind: type[World], name: str) -> bool:
    """Whether the proposal is Invalid here by itself: on a branch fragments have files in another base."""
    return name == NO_LOG or kind is BranchWorld


def named(envelope: Envelope, table_id: str) -> Envelope:
    envelope.table_id = table_id
    return envelope


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_a_table_or_branch_that_was_made_anew_refuses_what_was_built_before(
    kind: type[World], name: str, tmp_path: Path
) -> None:
    world, results = kind(tmp_path), list[Result]()
    world.make()
    before = world.id()
    for table_id in (before, None, ""):
        world.make()
        assert world.id() not in ("", before)
        proposal = world.proposal(name, FIRST[kind])
        results.append(world.fold(named(proposal, world.id() if table_id is None else table_id)))
    other, same, unknown = results
    check_refused(other)
    assert type(same) is type(unknown)
    assert isinstance(same, Committed) or is_unsure(kind, name), same


@pytest.mark.parametrize(("kind", "name"), EACH)
@pytest.mark.parametrize("fold_again", [False, True])
def test_a_table_that_was_restored_from_a_copy_refuses_what_was_built_before(
    kind: type[World], name: str, tmp_path: Path, *, fold_again: bool
) -> None:
    """Unless what was folded after the copy is folded again: then it becomes the table that it was."""
    world = kind(tmp_path)
    world.make()
    before, lost = world.id(), world.proposal("append", FIRST[kind])
    world.copied(lambda: world.commit(lost))
    world.rebind(fold_again=fold_again)
    proposal = named(world.proposal(name, FIRST[kind] + 1), before)
    if not fold_again:
        assert world.id() not in ("", before)
        check_refused(world.fold(proposal))
        proposal.table_id = world.id()
    result = world.fold(proposal)
    assert isinstance(result, Committed) or is_unsure(kind, name), result


PROPOSED: dict[str, Callable[[str], Envelope]] = {
    "a tag": lambda uri: tagging(chosen(uri), "x", move=False),
    "a tag that is moved": lambda uri: tagging(chosen(uri), "x", move=True),
    "a tag of a branch": lambda uri: tagging(chosen(uri, branch="side"), "x", move=False),
    "a tag that is removed": lambda uri: untagging(uri, "x", Settings()),
    "the end of a branch": lambda uri: deleting(uri, "side", newest_id(source_of(uri, "side", {}))),
    "a branch": lambda uri: branching(chosen(uri), "other"),
    "a branch of a branch": lambda uri: branching(chosen(uri, branch="side"), "other"),
    "a restore": lambda uri: restoring(chosen(uri, 3), 3),
    "a restore of a branch": lambda uri: restoring(chosen(uri, 3, "side"), 3),
}
OF_A_BRANCH = {name for name in PROPOSED if "branch" in name} - {"a branch"}


class WholeWorld(BranchWorld):
    """A table with its branch, both made anew."""

    def make(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        super().make()


@pytest.mark.parametrize("name", PROPOSED)
@pytest.mark.parametrize("kind", [WholeWorld, BranchWorld])
@pytest.mark.parametrize("says", ["table_id", "version_mark"])
def test_what_verbs_propose_means_the_version_that_they_saw(
    kind: type[BranchWorld], name: str, says: str, tmp_path: Path
) -> None:
    """The id of the table and the mark of the version are each enough, where a proposal has both."""
    world = kind(tmp_path)
    world.checks_files = True
    world.make()
    set_tag(LocalStorage(world.path), "y", 3)
    proposal = PROPOSED[name](world.uri)
    world.make()
    is_other = kind is WholeWorld or name in OF_A_BRANCH
    if not getattr(proposal, says) or not is_other:
        return
    proposal.ClearField("version_mark" if says == "table_id" else "table_id")
    if says == "table_id" and name == "a tag of a branch" and kind is BranchWorld:
        # Its table is the main branch, which is the same.
        return
    result = world.fold(proposal)
    if says == "table_id":
        check_refused(result)
    else:
        assert isinstance(result, Invalid), result
        assert "is another one than when this was proposed" in result.message


@pytest.mark.parametrize("name", PROPOSED)
def test_what_verbs_propose_is_committed_if_nothing_was_made_anew(name: str, tmp_path: Path) -> None:
    world = WholeWorld(tmp_path)
    world.checks_files = True
    world.make()
    set_tag(LocalStorage(world.path), "x", 3)
    proposal = PROPOSED[name](world.uri)
    assert proposal.table_id or proposal.version_mark
    if name in {"a tag", "a tag of a branch"}:
        proposal.tag.name = "new"
    assert isinstance(world.fold(proposal), Committed | Tagged)
