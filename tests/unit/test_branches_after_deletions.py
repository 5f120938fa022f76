"""Branches that are begun from a deleted one by others, or in its folder while its files are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.branching import branch_removal
from lakefold.branching.branch_removal import remove_files
from lakefold_committer.tables.branches import open_branch
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.branch_names import root_of
from lakefold_table.entry import Committed, Tagged
from lakefold_table.errors import PreconditionError
from lakefold_table.lance.state import LanceState
from lakefold_table.storage import open_canonical
from lakefold_table.uri import canonical
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.version_removals import VersionRemovals
from tests.folding import changed, fold_at, opened, versions_at
from tests.foreign import commit, file_as_others_write
from tests.memory_storage import MemoryStorage
from tests.unit.test_deleted_branches import (
    DEV,
    HERE,
    NAME,
    begin,
    clone,
    deletion,
    dev,
    files_of_dev,
    result,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    begin()
    yield
    MemoryStorage.forget(NAME)


@pytest.mark.parametrize("commits", [0, 1], ids=["cloned", "written to"])
def test_another_clients_clone_of_a_deleted_branch_was_not_deleted(commits: int) -> None:
    """Its versions carry the marks of the branch that it was made from."""
    assert result(dev(), deletion(), 4) == Committed(4)
    state = dev().table.state
    assert isinstance(state, LanceState)
    head, begun = Manifest(), Transaction(read_version=4, uuid="theirs")
    head.CopyFrom(state.head)
    head.branch = "copy"
    begun.clone.ref_version, begun.clone.ref_name, begun.clone.is_shallow = 4, "dev", True
    copy = f"{HERE}/tree/copy"
    MemoryStorage(copy).put(versions_at(DEV).path(4), [file_as_others_write(head, begun)])
    for _ in range(commits):
        commit(copy)
    named = Envelope(table=HERE, tag=Tag(name="x", version=4, branch="copy"))
    assert result(opened(HERE), named, 5) == Tagged(4, "x")
    assert isinstance(result(opened(f"{HERE}/tree/next"), clone("next", 4, "copy"), 6), Committed)


def test_a_branch_of_which_a_clean_up_removes_versions_stays_until_that_ends() -> None:
    """Versions of a branch that is created again have the same names."""
    result(dev(), deletion(), 4)
    removals, before = VersionRemovals(MemoryStorage(HERE)), files_of_dev()
    name = removals.announce("dev", [3])
    assert removals.begin(name, "dev", [3])
    with pytest.raises(PreconditionError, match="a clean-up removes 1 of its versions"):
        remove_files(TableAddress(HERE), "dev", lambda _: None)
    assert files_of_dev() == before
    removals.withdraw(name)
    remove_files(TableAddress(HERE), "dev", lambda _: None)
    assert files_of_dev() == []


@pytest.mark.parametrize("is_local", [False, True], ids=["store", "disk"])
@pytest.mark.parametrize(
    ("name", "later"), [("dev", "dev/inner"), ("other/data", "other")], ids=["inside", "around"]
)
def test_a_branch_that_is_created_during_a_removal_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, later: str, *, is_local: bool
) -> None:
    """The verb has looked already which branches have folders within each other."""
    uri = canonical(tmp_path / "t") if is_local else HERE
    storage = open_canonical(uri, None)

    def moved(envelope: Envelope) -> Envelope:
        return changed(envelope, lambda it: move(it, uri))

    for path in MemoryStorage(HERE).everything() if is_local else ():
        storage.put(path, [MemoryStorage(HERE).get(path)])
    if name != "dev":
        fold_at(open_branch(TableAddress(uri), name), [moved(clone(name))], 4)
    ended = moved(changed(deletion(), lambda it: setattr(it, "branch", name)))
    assert isinstance(result(open_branch(TableAddress(uri), name), ended, 5), Committed)
    storage.put(f"tree/{name}/data/f.lance", [b"x"])
    kept: dict[str, bytes] = {}
    looked = branch_removal._sharing

    def then_created(refs: Refs, branch: str) -> tuple[list[str], bool]:
        sharing = looked(refs, branch)
        if not kept:
            fold_at(open_branch(TableAddress(uri), later), [moved(clone(later))], 6)
            storage.put(f"tree/{later}/data/g.lance", [b"y"])
            folder = open_canonical(root_of(uri, later), None)
            kept.update(
                (path, folder.get(path))
                for path in ("_versions/18446744073709551613.manifest", "data/g.lance")
            )
        return sharing

    with monkeypatch.context() as patch:
        patch.setattr(branch_removal, "_sharing", then_created)
        with pytest.raises(PreconditionError, match="a branch was created meanwhile"):
            remove_files(TableAddress(uri), name, lambda _: None)
    remove_files(TableAddress(uri), name, lambda _: None)
    folder = open_canonical(root_of(uri, later), None)
    assert {path: folder.get(path) for path in kept} == kept
    assert (storage.size(f"tree/{name}/data/f.lance"), name in Refs(storage).branches()) == (None, False)


def move(envelope: Envelope, uri: str) -> None:
    """Names a table at another path in an envelope, and as the source of a Clone."""
    envelope.table = uri
    if envelope.lance.HasField("clone"):
        envelope.lance.clone.ref_path = uri
