"""`lakefold drop`: what it removes in which order, what it leaves, and how it continues later.

Promise: dropped-by-a-version (docs/operations/promises.md).
"""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold.binding import drop_table as dropping
from lakefold.binding.drop_table import publish_dropped
from lakefold.binding.rebinding import Override, RebindTarget, rebind_branches
from lakefold.branching.branch_removal import remove_files
from lakefold.branching.ref_proposals import deleting
from lakefold.cli import run
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.branches import branch_names, open_branch
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import PreconditionError, RetryError, StopError
from lakefold_table.lance.manifests.naming import VERSIONS, detect
from lakefold_table.marks.marks import RebindReason
from lakefold_table.position import Position
from lakefold_table.storage import OPENERS
from lakefold_table.uri import canonical
from lakefold_table.versions.drop_note import Dropped, DroppedBranch, read_dropped, was_dropped, write_dropped
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.removal import remove_branch, remove_rest
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.versions import Versions
from tests.contracts.manifest_stores import Kept
from tests.folding import FORMAT, LOG, append, changed, creation, fold_at, opened, versions_at
from tests.foreign import commit
from tests.memory_storage import MemoryStorage
from tests.proposals import append as append_rows
from tests.proposals import creation as create
from tests.proposals import rows
from tests.reported import Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "dropping"
HERE = f"memory://{NAME}/lake/t"
NEWEST = 4


def named(envelope: Envelope) -> Envelope:
    return changed(envelope, lambda it: setattr(it, "table", HERE))


@pytest.fixture
def store() -> Iterator[MemoryStorage]:
    """A table of four versions, the last of which follows no log; a branch of it, with a file."""
    fold_at(opened(HERE), [named(creation())], 0)
    for offset in (1, 2):
        fold_at(opened(HERE), [named(append(f"f{offset}"))], offset)
    storage = MemoryStorage(HERE)
    for path in ("data/f1-0.lance", "data/f2-0.lance", "_refs/tags/x.json", "_lakefold/claims/x"):
        storage.put(path, [b"x"])
    assert drop("detach", "--unanswered")[0] == 0
    yield storage
    MemoryStorage.forget(NAME)


def drop(verb: str, *options: str) -> tuple[int, str]:
    """Its exit code and all that it prints."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = run([verb, HERE, *options])
    return code, out.getvalue()


def with_branch(storage: MemoryStorage) -> None:
    """A branch that was folded up to offset 7, as `branching` leaves it."""
    for file in list(storage.list("_versions")):
        storage.put(f"tree/b/{file.path}", [storage.get(file.path)])
    storage.put("_refs/branches/b.json", [b'{"parentVersion":2,"createAt":1,"manifestSize":1}'])


def test_nothing_is_left_but_the_note(store: MemoryStorage) -> None:
    with_branch(store)
    code, text = drop("drop", "--yes")
    assert (code, "dropped, its last version was 4" in text) == (0, True), text
    assert not store.anything_at_root()
    assert [*MemoryStorage(f"memory://{NAME}").everything()] == ["lake/.lakefold-dropped/t"]
    dropped = read_dropped(TableAddress(HERE))
    assert dropped is not None
    assert not dropped.removing
    assert [(branch.branch, branch.version) for branch in dropped.branches] == [("b", NEWEST), ("", NEWEST)]
    assert dropped.covers("", Position(LOG, 2))
    assert not dropped.covers("", Position(LOG, 3))


def test_a_table_that_is_bound_stays(store: MemoryStorage) -> None:
    before = [*store.everything()]
    MemoryStorage(HERE).delete(versions_at(HERE).path(NEWEST))
    code, text = drop("drop", "--yes")
    assert (code, "`lakefold detach` first" in text) == (3, True)
    assert len([*store.everything()]) == len(before) - 1
    assert read_dropped(TableAddress(HERE)) is None


def test_a_note_of_before_is_kept(store: MemoryStorage) -> None:
    write_dropped(TableAddress(HERE), Dropped(0, (DroppedBranch("old", "id", 3, (Position(LOG, 9),)),)))
    assert drop("drop", "--yes")[0] == 0
    dropped = read_dropped(TableAddress(HERE))
    assert dropped is not None
    assert dropped.covers("old", Position(LOG, 9))
    assert store.size("_versions/x") is None


def test_a_note_that_can_not_be_read_is_written_again(store: MemoryStorage) -> None:
    MemoryStorage(f"memory://{NAME}/lake").put(".lakefold-dropped/t", [b"x"])
    assert drop("drop", "--yes")[0] == 0
    assert not store.anything_at_root()


@pytest.mark.usefixtures("store")
def test_another_name_than_the_table_s_drops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x\n"))
    code, text = drop("drop")
    assert (code, "nothing was deleted" in text) == (2, True)
    assert versions_at(HERE).latest() == NEWEST
    monkeypatch.setattr("sys.stdin", io.StringIO("t\n"))
    assert drop("drop")[0] == 0
    assert versions_at(HERE).latest() == 0


class Watched(MemoryStorage):
    """Fails after so many removals, and checks the table after each."""

    left = 10**9

    def delete(self, path: str) -> None:
        if self.left == 0:
            raise RetryError("the store went away")
        self.left -= 1
        super().delete(path)
        check_whole()


def check_whole() -> None:
    """The table is at its newest version with all files of it, or it is gone."""
    numbers = versions_at(HERE).numbers()
    if numbers:
        assert numbers[-1] == NEWEST
        files = {file.path for file in MemoryStorage(HERE).list("data")}
        assert {"data/f1-0.lance", "data/f2-0.lance"} <= files


def watched(left: int = 10**9) -> Watched:
    storage = Watched(HERE)
    storage.left = left
    return storage


@pytest.mark.usefixtures("store")
def test_the_newest_version_goes_last_and_files_after_it() -> None:
    storage = watched()
    remove_branch(Versions(storage, FORMAT.folder, FORMAT.detect))
    assert versions_at(HERE).numbers() == []
    numbers: list[int] = []
    # A file, a tag, a claim, and the transaction of each version.
    assert remove_rest(storage, numbers.append, "data/f1-0.lance".__eq__) == 7
    assert numbers == [7]
    assert [*storage.everything()] == ["data/f1-0.lance"]


@pytest.mark.parametrize("left", range(13))
def test_a_table_is_whole_or_gone_if_its_removal_is_interrupted(store: MemoryStorage, left: int) -> None:
    """The same command continues."""
    write_dropped(TableAddress(HERE), Dropped(0, (DroppedBranch("", "id", NEWEST, ()),), removing=True))
    storage = watched(left)
    try:
        remove_branch(Versions(storage, FORMAT.folder, FORMAT.detect))
        remove_rest(storage, lambda _: None, lambda _: False)
    except RetryError:
        assert left < 12
    check_whole()
    code, text = drop("drop", "--yes")
    assert code == 0, text
    assert not store.anything_at_root()
    dropped = read_dropped(TableAddress(HERE))
    assert dropped is not None
    assert not dropped.removing


def test_versions_that_others_put_meanwhile_go_as_well(store: MemoryStorage) -> None:
    class Busy(MemoryStorage):
        more = 2

        def delete(self, path: str) -> None:
            if self.more:
                self.more -= 1
                commit(HERE, "delete")
            super().delete(path)

    busy = Busy(HERE)
    remove_branch(Versions(busy, FORMAT.folder, FORMAT.detect))
    assert store.names("_versions") == []
    assert busy.more == 0


def test_a_client_that_never_stops_putting_versions_is_reported(store: MemoryStorage) -> None:
    class Endless(MemoryStorage):
        def delete(self, path: str) -> None:
            commit(HERE, "delete")
            super().delete(path)

    with pytest.raises(RetryError, match="versions are being put while they are removed"):
        remove_branch(Versions(Endless(HERE), FORMAT.folder, FORMAT.detect))
    assert store.names("_versions")


def test_versions_that_a_manifest_store_records_are_forgotten_there() -> None:
    kept = Kept("dropping-kept")
    storage = kept.open()
    for number in (1, 2, 3):
        storage.put_if_absent(f"{VERSIONS}/{2**64 - 1 - number:020}.manifest", [b"x"])
    assert len(kept.manifests.items) == 3
    remove_branch(Versions(storage, VERSIONS, detect))
    assert kept.manifests.items == {}
    assert not storage.anything_at_root()
    assert storage.put_if_absent(f"{VERSIONS}/{2**64 - 2:020}.manifest", [b"y"]).value == "stored"
    kept.close()


def test_a_folder_on_a_local_disk(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "flights"
    uri = canonical(path)
    table = open_branch(TableAddress(uri), "")
    assert isinstance(fold_at(table, [create(uri)], 0)[0].result, Committed)
    assert run(["detach", str(path), "--unanswered"]) == 0
    others = [path.with_name("flights.0123abcd.dropped"), path.with_name("flights.dropped")]
    for other in others:
        other.mkdir()
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(["drop", str(path), "--yes", "--json"]) == 0
    assert json.loads(out.getvalue()) == {"table": uri, "version": 2}
    assert {entry.name for entry in path.parent.iterdir()} == {
        ".lakefold-dropped",
        *(other.name for other in others),
    }, "a folder that only is called like one that was moved aside may be another table"


def on_disk(path: Path, *, folded: bool = True) -> str:
    """A table of two versions that follows no log; `folded`: no more than the second version says so."""
    uri = canonical(path)
    if folded:
        assert isinstance(fold_at(open_branch(TableAddress(uri), ""), [create(uri)], 0)[0].result, Committed)
        assert run(["detach", str(path), "--unanswered"]) == 0
    else:
        lance.write_dataset(rows([1]), str(path))
    return uri


def append_of(uri: str) -> Envelope:
    return append_rows(uri, rows([2]), 1, "app", 2)


def bound(uri: str, *, keep: bool = False) -> str:
    """Binds the table to the log, as `lakefold adopt` does."""
    target = RebindTarget(Position(LOG, 40, "transactions"), "0@0")
    assert list(
        rebind_branches(
            TableAddress(uri), RebindReason.ADOPTED, target, None, override=Override(dropped=keep)
        )
    )
    return uri


@pytest.mark.parametrize("stage", ["asked", "decided"])
def test_a_table_that_is_bound_while_it_is_dropped_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """The prompt may wait for hours; and another process may keep a table that is dropped at any moment."""
    path = tmp_path / "flights"
    uri = on_disk(path)
    if stage == "asked":
        monkeypatch.setattr("click.prompt", lambda *_, **__: bound(uri).rpartition("/")[2])
    else:
        monkeypatch.setattr("click.prompt", lambda *_, **__: "flights")
        rename = Path.rename

        def late(self: Path, target: Path) -> Path:
            if self == path:
                bound(uri, keep=True)
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", late)
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = run(["drop", str(path)])
    assert code == 3, out.getvalue()
    assert "bound to" in out.getvalue()
    assert isinstance(fold_at(open_branch(TableAddress(uri), ""), [append_of(uri)], 41)[0].result, Committed)
    assert {path.name for path in tmp_path.iterdir()} <= {".lakefold-dropped", "flights"}
    dropped = read_dropped(TableAddress(uri))
    assert dropped is None or not (dropped.removing or dropped.aside)


@pytest.mark.parametrize("folded", [False, True], ids=["foreign", "detached"])
def test_nothing_is_folded_or_bound_once_a_table_is_condemned(tmp_path: Path, *, folded: bool) -> None:
    """Also by a committer that opened it before, and binds a foreign table by the first entry it folds."""
    uri = on_disk(tmp_path / "flights", folded=folded)
    before = open_branch(TableAddress(uri), "")
    assert [line.version for line in publish_dropped(TableAddress(uri))] == [2 if folded else 1]
    for table in (before, open_branch(TableAddress(uri), "")):
        refused = fold_at(table, [append_of(uri)], 41)[0].result
        assert isinstance(refused, Invalid)
        assert refused.message == "the table is being dropped"
    with pytest.raises(PreconditionError, match="is being dropped"):
        bound(uri)
    bound(uri, keep=True)
    assert isinstance(fold_at(open_branch(TableAddress(uri), ""), [append_of(uri)], 41)[0].result, Committed)


def test_a_committer_that_has_read_the_last_version_notices_that_the_table_is_gone(
    tmp_path: Path,
) -> None:
    """It was parked for good, and so were proposals for a table that was created there afterwards."""
    uri = on_disk(tmp_path / "flights")
    table, late = open_branch(TableAddress(uri), ""), [append_of(uri), append_of(uri)]
    branches = publish_dropped(TableAddress(uri))
    assert isinstance(fold_at(table, [late[0]], 41)[0].result, Invalid)
    dropping.remove(TableAddress(uri), branches, lambda _: None)
    with pytest.raises(StopError, match="the table was dropped"):
        fold_at(table, [late[1]], 42)
    assert isinstance(fold_at(open_branch(TableAddress(uri), ""), [create(uri)], 43)[0].result, Committed)


@pytest.mark.parametrize(
    ("left", "meanwhile"),
    [(0, 0), (2, 0), (10**9, 0), (0, 3)],
    ids=["its versions", "its files", "nothing", "nothing after the first looks"],
)
def test_entries_for_a_branch_that_was_deleted_before_the_drop_are_answered(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch, left: int, meanwhile: int
) -> None:
    """Its last entry is after those of the other branches, whatever of it is left by then, or meanwhile."""
    branch, outcomes = f"{HERE}/tree/b", Outcomes()
    store.delete("_refs/tags/x.json")
    begun = Envelope(table=HERE, branch="b")
    clone = Transaction.Clone(is_shallow=True, ref_path=HERE, ref_version=2, branch_name="b")
    begun.lance.clone.CopyFrom(clone)
    for offset, envelope in enumerate([begun, deleting(HERE, "b")], 7):
        outcomes.report(fold_at(opened(branch), [envelope], offset))
    with monkeypatch.context() as patch:
        patch.setitem(OPENERS, "memory", Watched)
        patch.setattr(Watched, "left", left)
        with suppress(RetryError):
            if not meanwhile:
                remove_files(TableAddress(HERE), "b", lambda _: None)
    assert (versions_at(branch).latest() > 0, "b" in Refs(store).branches()) == (left == 0, left <= 2)
    looks = count(1)

    def listed(address: TableAddress) -> list[str]:
        if next(looks) == meanwhile:
            remove_files(TableAddress(HERE), "b", lambda _: None)
        return branch_names(address)

    monkeypatch.setattr(dropping, "branch_names", listed)
    assert drop("drop", "--yes")[0] == 0
    assert next(looks) > 3, "two looks before the decision, and then one at least"
    recovery = RecoveryContext(LOG, lambda: 100, outcome_index=outcomes)
    late = TableWriter(StoredTable(FORMAT, versions_at(branch)), check_sizes=False, recovery=recovery)
    envelope = changed(append("late", read=2), lambda it: it.MergeFrom(Envelope(table=HERE, branch="b")))
    assert isinstance(fold_at(late, [envelope], 9)[0].result, Invalid)


NESTED = [
    "inner",
    "data/inner",
    "_deletions/d",
    "_versions/x",
    "tree/x",
    "tree/b/inner",
    "_lakefold/claims/q",
]


def begun_inside(uri: str) -> None:
    """A table that a committer began which may not read the table around it."""
    first = changed(creation(), lambda it: setattr(it, "table", uri))
    assert isinstance(fold_at(opened(uri, roots=[uri]), [first], 5)[0].result, Committed)


def moved_inside(store: MemoryStorage, inside: str) -> None:
    """A table under a name that no committer would begin, moved there by whoever owns it."""
    elsewhere = f"memory://{NAME}/elsewhere"
    begun_inside(elsewhere)
    made = MemoryStorage(elsewhere)
    for path in made.everything():
        store.put(f"{inside}/{path}", [made.get(path)])
        made.delete(path)


@pytest.mark.parametrize("inside", NESTED)
def test_a_table_with_another_one_inside_stays(store: MemoryStorage, inside: str) -> None:
    with_branch(store)
    uri = f"{HERE}/{inside}"
    if inside.startswith("_"):
        moved_inside(store, inside)
        assert opened(uri).table.version == 1
    else:
        begun_inside(uri)
    before = {*store.everything()}
    code, output = drop("drop", "--yes")
    assert (code, f"other tables are stored inside its folder: {inside}" in output) == (3, True), output
    assert "drop them or move them elsewhere" in output
    assert {*store.everything()} == before, "not even a version that says that it is dropped"
    assert read_dropped(TableAddress(HERE)) is None


@pytest.mark.parametrize("inside", NESTED)
def test_a_folder_with_another_table_inside_stays(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "flights"
    uri = on_disk(path)
    lance.dataset(str(path)).create_branch("b")
    nested = on_disk(path / inside, folded=False)
    before = {*path.rglob("*")}
    err = io.StringIO()
    with redirect_stderr(err):
        assert run(["drop", str(path), "--yes"]) == 3
    assert f"other tables are stored inside its folder: {inside}\n" in err.getvalue()
    assert {*path.rglob("*")} == before
    assert read_dropped(TableAddress(uri)) is None
    assert run(["drop", nested, "--yes"]) == 0
    assert run(["drop", str(path), "--yes"]) == 0
    assert not path.exists()
    noted = read_dropped(TableAddress(uri))
    assert noted is not None
    assert [*noted.inside] == [inside]


@pytest.mark.parametrize("inside", ["inner", ".hidden", "data/a/inner", "tree/x"])
def test_a_table_that_lay_inside_and_was_dropped_before_is_still_known_as_dropped(
    store: MemoryStorage, inside: str
) -> None:
    """Or a committer that folded it would wait for it: its own note went with the folder."""
    uri, line = f"{HERE}/{inside}", DroppedBranch("", inside, 3, (Position(LOG, 9),))
    write_dropped(TableAddress(uri), Dropped(0, (line, DroppedBranch("b", inside, 3, (Position(LOG, 8),)))))
    write_dropped(TableAddress(f"{uri}/deeper"), Dropped(0, (replace(line, positions=(Position(LOG, 30),)),)))
    store.put("_deletions/.lakefold-dropped/torn", [b"{"])
    assert drop("drop", "--yes")[0] == 0
    assert not store.anything_at_root()
    assert was_dropped(TableAddress(uri), Position(LOG, 9))
    assert was_dropped(TableAddress(f"{uri}/tree/b"), Position(LOG, 8))
    assert not was_dropped(TableAddress(uri), Position(LOG, 10))
    assert was_dropped(TableAddress(f"{uri}/deeper"), Position(LOG, 30))
    assert not was_dropped(TableAddress(f"{HERE}/other"), Position(LOG, 1))
    # What is noted later of the outer table takes none of it away.
    assert isinstance(fold_at(opened(HERE), [named(creation())], 7)[0].result, Committed)
    assert drop("detach", "--unanswered")[0] == 0
    assert drop("drop", "--yes")[0] == 0
    assert was_dropped(TableAddress(uri), Position(LOG, 9))


def test_a_branch_that_lance_left_is_no_other_table(tmp_path: Path) -> None:
    """Lance leaves the folder of a deleted branch if another branch is inside it."""
    path = tmp_path / "flights"
    on_disk(path, folded=False)
    dataset = lance.dataset(str(path))
    for name in ("b", "b/c"):
        dataset.create_branch(name)
    dataset.branches.delete("b")
    assert list((path / "tree" / "b" / "_versions").iterdir())
    assert run(["drop", str(path), "--yes"]) == 0
    assert not path.exists()


def test_a_table_made_inside_once_the_drop_is_decided_puts_the_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flights"
    uri = on_disk(path)
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        if self == path:
            on_disk(path / "data" / "inner", folded=False)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    err = io.StringIO()
    with redirect_stderr(err):
        assert run(["drop", str(path), "--yes"]) == 3
    monkeypatch.undo()
    assert "other tables are stored inside its folder: data/inner" in err.getvalue()
    assert lance.dataset(str(path / "data" / "inner")).count_rows() == 1
    dropped = read_dropped(TableAddress(uri))
    assert dropped is None or not (dropped.removing or dropped.aside)
    bound(uri, keep=True)
    assert isinstance(fold_at(open_branch(TableAddress(uri), ""), [append_of(uri)], 41)[0].result, Committed)


@pytest.mark.parametrize("moment", ["decided", "removing"])
def test_a_table_made_inside_while_objects_are_removed_stays(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the first version of the outer table is removed, and before the first other object is."""
    uri = f"{HERE}/data/inner"
    made: list[str] = []
    point = {"decided": "publish_move", "removing": "remove_branch"}[moment]
    do = getattr(dropping, point)

    def late(*args: object) -> object:
        if not made:
            begun_inside(uri)
            made.extend(path for path in store.everything() if path.startswith("data/inner/"))
        return do(*args)

    monkeypatch.setattr(dropping, point, late)
    code, output = drop("drop", "--yes")
    assert (code, "other tables are stored inside its folder: data/inner" in output) == (3, True), output
    monkeypatch.undo()
    assert made
    assert {*made} <= {*store.everything()}
    assert bool(versions_at(HERE).numbers()) == (moment == "decided")
    for path in made:
        store.delete(path)
    assert drop("drop", "--yes")[0] == 0
    assert not store.anything_at_root()


class StoppedError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("step", range(9))
def test_a_drop_on_a_local_disk_that_is_cut_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At each step that writes, before and after it; also where files were removed in part."""
    path = tmp_path / "flights"
    on_disk(path)
    steps = 0

    def counted(of: object, name: str, *, partial: Callable[..., object] | None = None) -> None:
        do = getattr(of, name)

        def stopping(*args: object, **options: object) -> object:
            nonlocal steps
            steps += 1
            if steps - 1 == step:
                if partial is not None:
                    partial(*args)
                raise StoppedError
            return do(*args, **options)

        monkeypatch.setattr(of, name, stopping)

    counted(dropping, "publish_move")
    counted(dropping, "write_dropped")
    counted(Path, "rename")
    counted(shutil, "rmtree", partial=lambda folder: max((folder / "_versions").iterdir()).unlink())
    if step < 6:
        with pytest.raises(StoppedError):
            run(["drop", str(path), "--yes"])
    monkeypatch.undo()
    gone = not path.exists() and not list(tmp_path.glob("*.dropped"))
    assert gone == (step == 5), "by then only the note is to be written"
    assert run(["drop", str(path), "--yes"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [".lakefold-dropped"]
    dropped = read_dropped(TableAddress(canonical(path)))
    assert dropped is not None
    assert (dropped.removing, dropped.aside) == (False, "")


def test_a_missing_table_without_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEFOLD_BOOTSTRAP_SERVERS", raising=False)
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        assert run(["drop", str(tmp_path / "none"), "--yes"]) == 2
    assert "no table exists here" in out.getvalue()
    assert "name the brokers" in out.getvalue()
