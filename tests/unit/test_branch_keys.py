"""A branch knows the keys of the rows that it begins with; a clone elsewhere is another table and knows none.

Promise: keys-of-a-branch (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Entry
from lakefold_table.marks.marks import APP, MARK
from lakefold_table.marks.rollbacks import rolled_back
from lakefold_table.versions.stored_table import StoredTable
from tests import foreign
from tests.folding import FORMAT, append, changed, creation, entries, opened, versions_at
from tests.memory_storage import MemoryStorage
from tests.replaying import Listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.entry import Result

NAME = "branch_keys"
HERE = f"memory://{NAME}/lake/t"
KEYS = [("a", 0), ("a", 1), ("a", 2), ("b", 7)]


def folder(branch: str) -> str:
    return f"{HERE}/tree/{branch}" if branch else HERE


@dataclass
class Branches:
    """A table and its branches, each folded by a committer that begins anew for each entry."""

    log: list[Entry] = field(default_factory=list)

    def fold(self, envelope: Envelope, branch: str = "") -> Result:
        def named(it: Envelope) -> None:
            it.table, it.branch = HERE, branch

        self.log += entries([changed(envelope, named)], len(self.log))
        return opened(folder(branch)).fold(self.log[-1:]).outcomes[0].result

    def send(self, app: str, batch: int, branch: str = "") -> Result:
        read = versions_at(folder(branch)).latest()
        name = f"{app}-{batch}-{len(self.log)}"
        return self.fold(append(name, app=app, batch=batch, read=read), branch)

    def uuid(self, name: str, branch: str = "") -> Result:
        return self.fold(append(name, read=versions_at(folder(branch)).latest()), branch)

    def begin(self, name: str, version: int, source: str = "") -> Result:
        envelope = Envelope()
        envelope.lance.uuid, envelope.lance.read_version = f"clone {name}", version
        begun = envelope.lance.clone
        begun.is_shallow, begun.ref_version, begun.branch_name = True, version, name
        begun.ref_path = folder(source)
        if source:
            begun.ref_name = source
        return self.fold(envelope, name)

    def verdicts(self, branch: str) -> set[Verdict]:
        stored = StoredTable(FORMAT, versions_at(folder(branch)))
        return {each.verdict for each in replay(stored, Listed(self.log))}


@pytest.fixture
def table() -> Iterator[Branches]:
    """Version 1 is empty, versions 2 to 5 have a batch each, and version 6 a proposal without a key."""
    MemoryStorage.forget(NAME)
    made = Branches()
    made.fold(creation())
    for app, batch in KEYS:
        made.send(app, batch)
    made.uuid("keyless")
    yield made
    MemoryStorage.forget(NAME)


def test_a_batch_of_its_rows_is_a_duplicate_on_the_branch(table: Branches) -> None:
    assert isinstance(table.begin("dev", 6), Committed)
    assert [table.send(app, batch, "dev") for app, batch in KEYS] == [Duplicate(2 + n) for n in range(4)]
    assert table.uuid("keyless", "dev") == Duplicate(6)
    assert table.begin("dev", 6) == Duplicate(6)
    later = table.send("a", 3, "dev")
    assert isinstance(later, Committed)
    assert isinstance(table.uuid("another", "dev"), Committed)
    assert table.send("a", 3, "dev") == Duplicate(later.version)
    assert table.verdicts("dev") == {Verdict.SAME}
    marks = opened(folder("dev")).table.marks
    assert marks.table_id != opened(HERE).table.marks.table_id
    assert marks.position is not None
    assert isinstance(table.send("a", 3), Committed), "the table knows nothing of its branch"


def test_a_batch_after_the_version_that_it_begins_at_is_new(table: Branches) -> None:
    table.begin("dev", 3)
    answers = [table.send(app, batch, "dev") for app, batch in KEYS]
    assert [type(answer) for answer in answers] == [Duplicate, Duplicate, Committed, Committed]
    assert isinstance(table.uuid("keyless", "dev"), Committed)


def test_a_branch_of_a_branch_knows_those_of_both(table: Branches) -> None:
    table.begin("dev", 4)
    table.send("b", 8, "dev")
    assert isinstance(table.begin("dev2", 5, "dev"), Committed)
    keys = [*KEYS[:3], ("b", 8), ("b", 7)]
    answers = [table.send(app, batch, "dev2") for app, batch in keys]
    assert [type(answer) for answer in answers] == [Duplicate] * 4 + [Committed]
    assert table.verdicts("dev2") == {Verdict.SAME}


def test_what_a_restore_left_out_of_the_table_is_left_out_of_the_branch(table: Branches) -> None:
    restore = Envelope()
    restore.lance.uuid, restore.lance.read_version, restore.lance.restore.version = "restore", 6, 3
    assert isinstance(table.fold(restore), Committed)
    table.begin("dev", 7)
    assert table.send("a", 2, "dev") == Duplicate(4, rolled_back_by=7)
    assert table.send("a", 1, "dev") == Duplicate(3)


def test_a_restore_on_the_branch_keeps_the_keys_that_it_began_with(table: Branches) -> None:
    table.begin("dev", 6)
    table.send("a", 3, "dev")
    restore = Envelope()
    restore.lance.uuid, restore.lance.read_version, restore.lance.restore.version = "restore", 7, 6
    assert isinstance(table.fold(restore, "dev"), Committed)
    assert table.send("a", 2, "dev") == Duplicate(4)
    assert table.send("a", 3, "dev") == Duplicate(7, rolled_back_by=8)


@pytest.mark.usefixtures("table")
def test_a_clone_elsewhere_knows_none() -> None:
    elsewhere = f"memory://{NAME}/lake/u"
    envelope = Envelope(table=elsewhere)
    envelope.lance.uuid, envelope.lance.read_version = "clone", 6
    clone = envelope.lance.clone
    clone.is_shallow, clone.ref_version, clone.ref_path = True, 6, HERE
    log = entries([envelope, append("new", app="a", batch=2, read=6)], 20)
    opened(elsewhere).fold(log[:1])
    assert opened(elsewhere).table.marks.apps == {}
    envelope = changed(log[1].envelope, lambda it: setattr(it, "table", elsewhere))
    assert isinstance(opened(elsewhere).fold(entries([envelope], 21)).outcomes[0].result, Committed)


@pytest.mark.parametrize("removed", [APP, MARK])
def test_of_a_version_whose_marks_are_gone_a_branch_knows_none(table: Branches, removed: str) -> None:
    def without(head: object) -> None:
        metadata = head.table_metadata  # type: ignore[attr-defined]
        for key in [each for each in metadata if each.startswith(removed)]:
            del metadata[key]

    version = foreign.commit(HERE, "update_config", without)
    table.begin("dev", version)
    assert isinstance(table.send("a", 2, "dev"), Committed)


def test_before_its_first_fold_a_restored_branch_has_the_marks_that_it_began_with(table: Branches) -> None:
    metadata = StoredTable(FORMAT, versions_at(HERE)).read_state(4).metadata
    table.begin("dev", 4)
    for batch in range(3, 30):
        table.send("a", batch, "dev")
    marks = opened(folder("dev")).table.marks
    after = rolled_back(marks, 40, 4, metadata)
    assert after.apps["a"].rolled_back == ((3, 29, 40),)
