"""Branches that are deleted through the log: what is answered before and after, and when which files go."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock
from urllib.parse import quote

import lance
import pytest

import lakefold
from lakefold import cli
from lakefold.branching import branch_removal
from lakefold.branching.branch_removal import is_deleted, remove_files
from lakefold.branching.ref_proposals import deleting
from lakefold.console.output import operations_text
from lakefold_committer.observability.metrics import operation_of
from lakefold_committer.recovery.open_table import open_table
from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import open_branch
from lakefold_committer.tables.rebinding import publish_move
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import decode, outcome_message, outcome_value
from lakefold_log.read.file_log import framed
from lakefold_maintenance.scheduling.waiting_proposals import waiting_of
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_table.entry import Committed, Entry, Invalid, Result, Tagged
from lakefold_table.errors import PreconditionError, RetryError, StopError
from lakefold_table.marks.marks import Rebinding, RebindReason
from lakefold_table.position import Position
from lakefold_table.storage import OPENERS
from lakefold_table.uri import canonical
from lakefold_table.versions.drop_note import DELETED
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.table_address import TableAddress
from tests import proposals
from tests.folding import FORMAT, LOG, append, changed, creation, entries, entry, fold_at, opened, versions_at
from tests.memory_storage import LoseAnswer, MemoryStorage, Refuse
from tests.replaying import Listed as Log
from tests.reported import Outcomes
from tests.tagging import set_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_committer.fold.fold import FoldedTable

NAME = "deleted_branches"
HERE = f"memory://{NAME}/lake/t"
DEV, NOTE = f"{HERE}/tree/dev", f"{DELETED}/dev"


def on(branch: str, envelope: Envelope) -> Envelope:
    def named(it: Envelope) -> None:
        it.table, it.branch = HERE, branch

    return changed(envelope, named)


def clone(name: str, version: int = 2, source: str = "") -> Envelope:
    """The proposal that begins a branch at a version of the main branch, or of `source`."""
    envelope = Envelope(table=HERE, branch=name)
    envelope.lance.uuid, envelope.lance.read_version = f"clone {name}", version
    begun = envelope.lance.clone
    begun.is_shallow, begun.ref_version, begun.branch_name = True, version, name
    begun.ref_path = f"{HERE}/tree/{source}" if source else HERE
    if source:
        begun.ref_name = source
    return envelope


def by_folder(envelope: Envelope) -> Envelope:
    """The proposal sent to the folder of `dev`, as clients can that name a branch by its folder."""

    def named(it: Envelope) -> None:
        it.table, it.branch = DEV, ""

    return changed(envelope, named)


def rows(name: str, read: int = 2) -> Envelope:
    return on("dev", append(name, read=read))


def deletion() -> Envelope:
    return changed(deleting(HERE, "dev"), lambda it: setattr(it.delete_branch, "uuid", "deletion"))


@pytest.fixture(autouse=True)
def store() -> Iterator[MemoryStorage]:
    """The store of the table."""
    begin()
    yield MemoryStorage(HERE)
    MemoryStorage.forget(NAME)


def begin() -> None:
    """Stores two versions, and the branch `dev`: positions 0 to 2, and 3 for a row of the branch."""
    MemoryStorage.forget(NAME)
    fold_at(opened(HERE), [on("", creation())], 0)
    fold_at(opened(HERE), [on("", append("a"))], 1)
    fold_at(opened(DEV), [clone("dev")], 2)
    fold_at(opened(DEV), [rows("b")], 3)


def result(table: TableWriter, envelope: Envelope, offset: int) -> Result:
    return fold_at(table, [envelope], offset)[0].result


def dev(outcomes: Outcomes | None = None) -> TableWriter:
    """A committer that opens the branch. `outcomes`: what was reported."""
    recovery = RecoveryContext(LOG, lambda: 100, outcome_index=outcomes)
    return TableWriter(StoredTable(FORMAT, versions_at(DEV)), check_sizes=False, recovery=recovery)


def remove() -> None:
    remove_files(TableAddress(HERE), "dev", lambda _: None)


def keep_dev() -> None:
    """Keeps the branch that was deleted, as `lakefold adopt --keep` does."""

    def keep(table: FoldedTable) -> Rebinding:
        after = Position(LOG, 4, "transactions")
        return Rebinding(RebindReason.ADOPTED, table.marks.position, after, 1)

    publish_move(StoredTable(FORMAT, versions_at(DEV)), keep)


def files_of_dev() -> list[str]:
    return [
        path
        for path in MemoryStorage(HERE).everything()
        if path.startswith("tree/dev/") or "dev.json" in path
    ]


def message(result: Result) -> str:
    assert isinstance(result, Invalid), result
    assert result.hint
    return result.message


def test_what_is_before_it_is_folded_and_what_is_after_it_is_refused() -> None:
    table = dev()
    group = entries([rows("c", 3), deletion(), rows("d", 4), clone("dev")], 4)
    folded: list[Result] = []
    while len(folded) < len(group):
        folded += [outcome.result for outcome in table.fold(group[len(folded) :]).outcomes]
    assert folded[:2] == [Committed(4, rows_added=3, first_fragment_id=2, num_fragment_ids=1), Committed(5)]
    for late in folded[2:]:
        assert message(late) == "the branch was deleted by the proposal at transactions/0@5"
    assert versions_at(DEV).latest() == 5
    assert dev().table.marks.deleted_by == Position(LOG, 5, "transactions")
    assert opened(HERE).table.version == 2, "the main branch is as it was"


def test_a_branch_that_others_need_is_not_deleted(store: MemoryStorage) -> None:
    table = dev()
    set_tag(store, "v1", 2, branch="dev")
    set_tag(store, "main-too", 2)
    assert message(result(table, deletion(), 4)) == "the branch dev is needed by tag v1"
    set_tag(store, "lakefold-consumer-x", 3, branch="dev")
    needed = "the branch dev is needed by tag lakefold-consumer-x, tag v1"
    assert message(result(table, deletion(), 5)) == needed
    refs = Refs(store)
    refs.delete_tag("v1")
    refs.delete_tag("lakefold-consumer-x")
    fold_at(opened(f"{HERE}/tree/next"), [clone("next", 3, "dev")], 6)
    assert message(result(table, deletion(), 7)) == "the branch dev is needed by branch next"
    store.put("_refs/tags/v2.json", [b"x"])
    assert "can't be read which tags" in message(result(table, deletion(), 8))
    elsewhere = opened(DEV, roots=["memory://elsewhere"])
    assert "can't be read which tags" in message(result(elsewhere, deletion(), 8))
    assert isinstance(result(dev(), rows("c", 3), 9), Committed), "it goes on"


def test_a_refusal_is_the_same_if_its_version_is_folded_again(store: MemoryStorage) -> None:
    """Nothing records which tags there were then."""
    set_tag(store, "v1", 2, branch="dev")
    table, group = dev(), [deletion(), rows("c", 3)]
    assert "is needed by tag v1" in message(result(table, group[0], 4))
    result(table, group[1], 5)
    Refs(store).delete_tag("v1")
    replayed = list(replay(StoredTable(FORMAT, versions_at(DEV)), Log(entries(group, 4)), 4))
    assert {each.verdict for each in replayed} == {Verdict.SAME}
    assert sum(each.refused for each in replayed) == 1


def test_what_is_no_branch_is_not_deleted() -> None:
    assert message(result(opened(HERE), deleting(HERE, ""), 4)) == "the main branch can't be deleted"
    nowhere = deleting(HERE, "nowhere")
    assert "has no branch nowhere" in message(result(opened(f"{HERE}/tree/nowhere"), nowhere, 5))
    keyed = changed(deletion(), lambda it: setattr(it, "app_id", "a"))
    assert "no batch id" in message(result(dev(), keyed, 6))
    assert dev().table.marks.deleted_by is None


@pytest.mark.parametrize("stored", [True, False])
def test_a_committer_that_dies_before_it_reports_leaves_the_answer(
    store: MemoryStorage, *, stored: bool
) -> None:
    """It dies before or after its put: what is folded again is the same, and so is the answer."""
    prepared = dev().prepare([entry(deletion(), 4)])
    if stored:
        assert dev().fold([entry(deletion(), 4)]).outcomes == prepared.folded.outcomes
    before = files_of_dev()
    successor = dev()
    again = fold_at(successor, [deletion(), rows("c", 3)][: 1 + stored], 4)
    assert again[0].result == Committed(4)
    assert successor.table.version == 4
    assert (files_of_dev() == before) == stored, "nothing is published twice"
    (version,) = replay(StoredTable(FORMAT, versions_at(DEV)), Log(entries([deletion()], 4)), 4)
    assert (version.verdict, version.committed) == (Verdict.SAME, 1)
    remove()
    assert files_of_dev() == []
    assert Refs(store).branches() == {}


def test_a_store_that_fails_deletes_nothing(store: MemoryStorage) -> None:
    table = dev()
    store.faults.plan(Refuse("the disk is full", ".manifest"))
    with pytest.raises(RetryError, match="the disk is full"):
        result(table, deletion(), 4)
    assert dev().table.version == 3
    store.faults.plan(LoseAnswer(stored=True, suffix=".manifest"))
    assert result(table, deletion(), 4) == Committed(4)


def test_a_suspended_committer_publishes_nothing_after_the_deletion() -> None:
    late = [dev(), dev()]
    prepared = [
        table.prepare([entry(envelope, 4)])
        for table, envelope in zip(late, [rows("c", 3), deletion()], strict=True)
    ]
    assert result(dev(), deletion(), 4) == Committed(4)
    for table, group in zip(late, prepared, strict=True):
        assert table.put(group) is (group is prepared[1]), "the same deletion is the same file"
    late[0].fall_back(lost=True)
    assert (
        message(result(late[0], rows("c", 3), 5))
        == "the branch was deleted by the proposal at transactions/0@4"
    )
    assert versions_at(DEV).latest() == 4


@pytest.mark.parametrize("envelope", [rows("c", 3), deletion()], ids=["rows", "deletion"])
def test_a_suspended_committer_creates_no_file_after_the_removal(envelope: Envelope) -> None:
    late = dev()
    prepared = late.prepare([entry(envelope, 4)])
    assert result(dev(), deletion(), 4) == Committed(4)
    remove()
    with pytest.raises(StopError, match="the table was dropped"):
        late.put(prepared)
    assert files_of_dev() == []


def test_a_branch_is_created_again_under_its_name() -> None:
    outcomes = Outcomes()
    owner = dev(outcomes)
    outcomes.report(fold_at(owner, [deletion()], 4))
    remove()
    with pytest.raises(StopError, match="the table was dropped"):
        result(owner, clone("dev", 1), 5)
    # The loop opens it again.
    owner = dev(outcomes)
    late = message(result(owner, rows("c", 3), 5))
    assert late.startswith(f"the branch dev of the table at {HERE} was deleted; the last proposal that was")
    assert late.endswith("committed to it is transactions/0@4")
    assert "was deleted" in message(result(owner, deletion(), 6))
    outcomes.report(fold_at(owner, [clone("dev", 1)], 7))
    assert owner.table.version == 1
    outcomes.report(fold_at(owner, [rows("e", 1)], 8))
    # The old deletion is read once more.
    reopened = dev(outcomes)
    assert "answered before" in message(result(reopened, deletion(), 4))
    assert reopened.table.marks.deleted_by is None


def test_a_tag_that_is_set_after_the_deletion_keeps_the_files(store: MemoryStorage) -> None:
    assert result(dev(), deletion(), 4) == Committed(4)
    set_tag(store, "v1", 3, branch="dev")
    before = files_of_dev()
    with pytest.raises(PreconditionError, match="its files are needed by tag v1"):
        remove()
    assert files_of_dev() == before


def test_a_tag_or_a_clone_of_a_deleted_branch_is_refused(store: MemoryStorage) -> None:
    """The files that it would name are about to be removed. A branch that is kept has them."""
    late = Envelope(table=HERE, tag=Tag(name="late", version=3, branch="dev"))
    unset = Envelope(table=HERE, tag=Tag(name="unset", delete=True))
    shallow = changed(clone("", 3, "dev"), lambda it: it.lance.clone.ClearField("branch_name"))
    shallow.table = f"memory://{NAME}/lake/other"
    deep = changed(shallow, lambda it: setattr(it.lance.clone, "is_shallow", False))
    deep.table = f"memory://{NAME}/lake/deep"

    def answers(first: int) -> list[Result]:
        """Those to a tag, a branch, and a table that shares its files."""
        group = {HERE: late, f"{HERE}/tree/next": clone("next", 3, "dev"), shallow.table: shallow}
        return [result(opened(uri), each, at) for at, (uri, each) in enumerate(group.items(), first)]

    assert result(dev(), deletion(), 4) == Committed(4)
    by = "was deleted by the proposal at transactions/0@4"
    clones = [f"the branch dev at {DEV} {by}"] * 2
    assert [message(each) for each in answers(5)] == [f"the branch {by}", *clones]
    assert (Refs(store).tags(), set(Refs(store).branches())) == ({}, {"dev"})
    set_tag(store, "unset", 3, branch="dev")
    assert result(opened(HERE), unset, 8) == Tagged(0, "unset")
    assert isinstance(result(opened(deep.table), deep, 9), Committed), "its files are copies"
    keep_dev()
    assert [type(each) for each in answers(10)] == [Tagged, Committed, Committed]


def test_the_files_of_a_branch_that_was_not_deleted_stay() -> None:
    before = files_of_dev()
    with pytest.raises(PreconditionError, match="was kept or created again"):
        remove()
    assert (files_of_dev(), is_deleted(TableAddress(HERE), "dev")) == (before, False)
    result(dev(), deletion(), 4)
    keep_dev()
    with pytest.raises(PreconditionError, match="was kept or created again"):
        remove()
    assert isinstance(result(dev(), rows("c", 3), 5), Committed)


class Failing(MemoryStorage):
    """Fails after so many removals."""

    left = 0

    def delete(self, path: str) -> None:
        if Failing.left == 0:
            raise RetryError("the store can't be reached")
        Failing.left -= 1
        super().delete(path)


def test_a_removal_that_is_interrupted_at_each_step_continues(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_at(opened(f"{HERE}/tree/dev/inner"), [clone("dev/inner")], 4)
    others = [path for path in store.everything() if path not in files_of_dev() or "inner" in path]
    result(dev(), deletion(), 5)
    rows_file = "tree/dev/data/f.lance"
    stored = {rows_file: b"x", **{path: store.get(path) for path in store.everything()}}
    steps = len(stored) - len(others)
    for step in range(steps):
        for path, data in stored.items():
            store.put(path, [data])
        with monkeypatch.context() as patch:
            patch.setitem(OPENERS, "memory", Failing)
            Failing.left = step
            with pytest.raises(RetryError, match="can't be reached"):
                remove()
        numbers = versions_at(DEV).numbers()
        assert not numbers or numbers[-1] == 4, "the newest version goes last"
        assert not numbers or store.size(rows_file), "and other files go after it"
        assert is_deleted(TableAddress(HERE), "dev")
        assert "dev" in Refs(store).branches()
        remove()
        assert sorted(store.everything()) == sorted([*others, NOTE])
        assert not is_deleted(TableAddress(HERE), "dev")
    assert set(Refs(store).branches()) == {"dev/inner"}


@pytest.mark.parametrize("begun", [clone("dev", 1), by_folder(clone("dev", 1))], ids=["name", "folder"])
def test_a_branch_of_the_same_name_waits_until_the_files_are_removed(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch, begun: Envelope
) -> None:
    """What it would have stored before that would be removed, or be in no list of branches."""
    result(dev(), deletion(), 4)
    store.put("tree/dev/data/f.lance", [b"x"])
    steps, answers, hints = len(files_of_dev()), list[str](), set[str]()

    class Raced(MemoryStorage):
        """Lets a committer fold a Clone before each removal."""

        def delete(self, path: str) -> None:
            with monkeypatch.context() as patch:
                patch.setitem(OPENERS, "memory", MemoryStorage)
                try:
                    answers.append(message(result(dev(), begun, 5)))
                except StopError as error:
                    answers.append(error.message)
                    hints.add(error.hint.rpartition(", ")[2])
            super().delete(path)

    with monkeypatch.context() as patch:
        patch.setitem(OPENERS, "memory", Raced)
        remove()
    deleted = "the branch was deleted by the proposal at transactions/0@4"
    waits = "the branch dev was deleted, and its files are being removed"
    assert answers == [deleted] * 3 + [waits] * (steps - 3), "three versions are removed first"
    assert hints == {f"`lakefold branch {HERE} dev --delete` continues it"}
    assert files_of_dev() == []
    assert result(dev(), begun, 5) == Committed(1)
    assert "dev" in Refs(store).branches()


def test_a_verb_that_was_suspended_removes_nothing_of_a_branch_that_was_created_again(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of its listings another verb removes the branch, and a committer begins it again."""
    suspended_at = 0

    class Suspended(MemoryStorage):
        """Lets others act before one of the listings."""

        listings = 0

        def names(self, prefix: str) -> Sequence[str]:
            self._listed()
            return super().names(prefix)

        def everything(self) -> Iterator[str]:
            paths = [*super().everything()]
            self._listed()
            return iter(paths)

        def _listed(self) -> None:
            Suspended.listings += 1
            if Suspended.listings == suspended_at:
                with monkeypatch.context() as patch:
                    patch.setitem(OPENERS, "memory", MemoryStorage)
                    remove()
                    fold_at(dev(), [clone("dev"), rows("e")], 5)
                    store.put("tree/dev/data/e.lance", [b"x"])
                    again.append(files_of_dev())

    while True:
        begin()
        result(dev(), deletion(), 4)
        store.put("tree/dev/data/f.lance", [b"x"])
        suspended_at, again = suspended_at + 1, list[list[str]]()
        with monkeypatch.context() as patch:
            patch.setitem(OPENERS, "memory", Suspended)
            Suspended.listings = 0
            with suppress(PreconditionError):
                remove()
        if not again:
            break
        assert files_of_dev() == again[0], suspended_at
    assert suspended_at > 10, "listings before, between and after the removals"
    assert files_of_dev() == []


def test_a_clone_that_was_published_late_keeps_the_files_that_it_uses(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = opened(f"{HERE}/tree/next")
    prepared = late.prepare([entry(clone("next", 3, "dev"), 4)])
    result(dev(), deletion(), 5)
    rows_file = "tree/dev/data/f.lance"
    store.put(rows_file, [b"x"])

    class Raced(MemoryStorage):
        def delete(self, path: str) -> None:
            if path == versions_at(DEV).path(3):
                assert late.put(prepared)
            super().delete(path)

    with monkeypatch.context() as patch:
        patch.setitem(OPENERS, "memory", Raced)
        for _ in range(2):
            with pytest.raises(PreconditionError, match="its files are needed by branch next"):
                remove()
            assert store.size(rows_file)
    assert "dev" in Refs(store).branches()


@pytest.mark.parametrize("step", [2, 4], ids=["an older version", "the newest version"])
def test_a_tag_that_is_set_between_two_steps_keeps_what_is_left(
    store: MemoryStorage, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Another client sets it, which asks no committer."""
    result(dev(), deletion(), 4)
    rows_file = "tree/dev/data/f.lance"
    store.put(rows_file, [b"x"])

    class Raced(MemoryStorage):
        def delete(self, path: str) -> None:
            if path == versions_at(DEV).path(step):
                set_tag(store, "late", 4, branch="dev")
            super().delete(path)

    with monkeypatch.context() as patch:
        patch.setitem(OPENERS, "memory", Raced)
        with pytest.raises(PreconditionError, match="its files are needed by tag late"):
            remove()
    assert versions_at(DEV).numbers() == ([4] if step == 2 else [])
    assert store.size(rows_file)
    Refs(store).delete_tag("late")
    remove()
    assert files_of_dev() == []


def test_a_removal_opens_the_branch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result(dev(), deletion(), 4)
    opened_at = Mock(side_effect=open_table)
    monkeypatch.setattr(branch_removal, "open_table", opened_at)
    remove()
    assert (opened_at.call_count, files_of_dev()) == (1, [])


@pytest.mark.parametrize("is_local", [False, True], ids=["store", "disk"])
@pytest.mark.parametrize("name", ["dev/data", "dev/data/x", "dev/_deletions"])
def test_a_branch_with_the_name_of_a_folder_of_data_is_removed_alone(
    store: MemoryStorage, tmp_path: Path, name: str, *, is_local: bool
) -> None:
    for path in ("data/f.lance", "_deletions/1.bin", "data/f/1.blob"):
        store.put(f"tree/dev/{path}", [b"x"])
    before = {*store.everything(), f"{DELETED}/{quote(name, safe='')}"}
    branch = open_branch(TableAddress(HERE), name)
    fold_at(branch, [clone(name)], 4)
    fold_at(branch, [deleting(HERE, name)], 5)
    store.put(f"tree/{name}/data/g.lance", [b"x"])
    if not is_local:
        remove_files(TableAddress(HERE), name, lambda _: None)
        assert set(store.everything()) == before
        return
    for path in store.everything():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(store.get(path))
    remove_files(TableAddress(canonical(tmp_path)), name, lambda _: None)
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    assert {str(path.relative_to(tmp_path)) for path in files} == before


def test_a_deletion_is_read_from_the_log_and_named_for_people() -> None:
    position = Position(LOG, 4, "transactions")
    read = decode(deletion().SerializeToString(), HERE.encode(), position, 10**15)
    assert isinstance(read, Entry)
    assert (operation_of(read), read.begins_table, bool(read.uuid)) == ("delete_branch", False, True)
    (outcome,) = dev().fold([read]).outcomes
    assert (outcome.result, outcome.branch, outcome.uuid) == (Committed(4), "dev", read.uuid)
    assert outcome_value(outcome_message(outcome)) == outcome
    row = next(iter(lakefold.open(DEV).history()))
    assert (row.version, row.entries, row.operations, row.refused) == (4, 1, {"delete_branch": 1}, 0)
    assert operations_text(row.operation, row.operations) == "delete_branch"
    assert dev().table.marks.moves[-1].time_us == read.time_us
    waiting = [waiting_of([deletion(), rows("c", 2)], branch) for branch in ("", "dev")]
    assert [(each.count, each.unknown) for each in waiting] == [(0, False), (2, False)]


def test_a_branch_on_a_local_disk_is_deleted_by_a_file_and_its_files_by_the_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The branch and its files are gone for pylance too, and its last version can be folded again."""
    path, files = tmp_path / "t", [str(tmp_path / name) for name in ("a", "b", "c")]
    uri = canonical(path)

    def here(envelope: Envelope, branch: str = "") -> Envelope:
        def named(it: Envelope) -> None:
            it.table, it.branch = uri, branch
            if it.lance.HasField("clone"):
                it.lance.clone.ref_path = str(path)

        return changed(envelope, named)

    def run(*words: str, code: int = 0) -> list[Any]:
        capsys.readouterr()
        assert cli.run([words[0], str(path), *words[1:], "--json"]) == code, capsys.readouterr()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    written = [here(proposals.creation(uri))]
    Path(files[0]).write_bytes(framed(written))
    run("fold", files[0])
    added = proposals.append(uri, proposals.rows([1]), 1)
    branches = [here(clone("dev", 1), "dev"), here(clone("dev/inner", 1), "dev/inner")]
    Path(files[1]).write_bytes(framed([added, *branches]))
    run("fold", files[1])
    late = here(proposals.append(uri, proposals.rows([2]), 1), "dev")
    Path(files[2]).write_bytes(framed([here(deletion(), "dev"), late]))
    before = sorted(path.rglob("*"))
    dry = run("fold", files[2], "--dry-run", code=3)
    assert sorted(path.rglob("*")) == before
    outcomes = run("fold", files[2], code=3)
    assert [outcome.get("committed", outcome.get("invalid")) for outcome in dry] == [
        outcome.get("committed", outcome.get("invalid")) for outcome in outcomes
    ]
    assert outcomes[0]["committed"]["version"] == "2"
    assert "deleted by the proposal" in outcomes[1]["invalid"]["message"]
    capsys.readouterr()
    assert cli.run(["replay", str(path / "tree/dev"), *(f"--file={file}" for file in files), "--check"]) == 0
    (done,) = run("branch", "dev", "--delete")
    assert (done["outcome"], done["files_removed"]) == (None, True)
    assert {each.name for each in (path / "tree/dev").iterdir()} == {"inner"}
    theirs = lance.dataset(str(path))
    assert set(theirs.branches.list()) == {"dev/inner"}
    assert theirs.to_table()["id"].to_pylist() == [1]
    assert theirs.checkout_version(("dev/inner", None)).to_table().num_rows == 0
    run("replay", *(f"--file={file}" for file in files), "--check")
