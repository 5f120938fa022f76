"""A table on a local disk when the power is cut or a committer is killed, after each of its system calls.

What is left is the old version or the new, whole, whatever of what wasn't synced the disk has kept; what
was told is there; and the next committer folds the same entries to the same answers (one-commit-point).

Promises: synced-before-committed, proposed-files-synced (docs/operations.md).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed
from lakefold_table.lance.rows.deletions import deletion_path
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.syncs import Doubts
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.versions import HINT, Versions
from tests.contracts.crash_states import UNSYNCED, CrashingDisk, Died, Tree, distinct, lay
from tests.folding import FORMAT, append, versions_at
from tests.foreign import commit
from tests.scenarios.test_files_before_versions import DELETED, Meeting, deleted_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from lakefold_table.entry import Result
    from lakefold_table.storage.syncs import Calls

both_modes = pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])


class Disk:
    """A table on a crashing disk, as `Meeting` made it; its folder is `lake/t` below `top`."""

    def __init__(
        self,
        folder: Path,
        *,
        unnamed: bool,
        disk: Callable[[Path], CrashingDisk] = CrashingDisk,
        meeting: Meeting | None = None,
    ) -> None:
        self.meeting = meeting or Meeting()
        self.folder = folder
        self.top = folder / "disk"
        self._unnamed = unnamed
        self._doubts = Doubts()
        self._cuts = count()
        for name in ("_deletions", "_versions"):
            (self.top / "lake" / "t" / name).mkdir(parents=True)
            for listed in self.meeting.storage.list(name):
                (self.top / "lake" / "t" / listed.path).write_bytes(self.meeting.storage.get(listed.path))
        self.disk = disk(self.top)

    def committer(self, *, check_sizes: bool = False) -> TableWriter:
        """A table that works on the crashing disk."""
        calls = cast("Calls", self.disk)
        storage = LocalStorage(
            self.top / "lake" / "t", unnamed=self._unnamed, calls=calls, doubts=self._doubts
        )
        return self._owned(storage, check_sizes=check_sizes)

    def _owned(self, storage: LocalStorage, *, check_sizes: bool = False) -> TableWriter:
        versions = Versions(storage, FORMAT.folder, FORMAT.detect)
        return TableWriter(FORMAT, versions, self.meeting.uri, check_sizes=check_sizes)

    def fold(self, owned: TableWriter) -> list[Result]:
        """Fold the three Deletes; their answers."""
        return [outcome.result for outcome in owned.fold(self.meeting.group).outcomes]

    def after_cuts(self, trees: Iterable[Tree]) -> Iterator[LocalStorage]:
        """The table after each of these power cuts, on a disk that works."""
        for tree in trees:
            top = self.folder / f"cut-{next(self._cuts)}"
            lay(tree, top)
            yield LocalStorage(top / "lake" / "t", calls=cast("Calls", UNSYNCED))

    def versions_in(self, storage: LocalStorage) -> list[dict[int, set[int]]]:
        """What is deleted in each version, every one of which must be whole."""
        versions = Versions(storage, FORMAT.folder, FORMAT.detect)
        return [deleted_in(versions, number) for number in versions.numbers()]

    def check_recovery(self, storage: LocalStorage) -> None:
        """The next committer folds what is missing, and answers as the first did."""
        answers = self.fold(self._owned(storage))
        assert answers == self.fold(self._owned(storage))
        first, second, *more = self.versions_in(storage)
        assert first == second == {}
        assert more
        assert all(values == DELETED for values in more), (
            "one that takes over begins with a version of its own"
        )


@both_modes
def test_a_cut_at_any_moment_leaves_the_old_or_the_new_version(tmp_path: Path, *, unnamed: bool) -> None:
    table = Disk(tmp_path, unnamed=unnamed)
    committer = table.committer()
    before = len(table.disk.moments)
    table.fold(committer)
    left = set()
    trees = distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
    for storage in table.after_cuts(trees):
        documents = table.versions_in(storage)
        assert documents in ([{}, {}], [{}, {}, DELETED])
        left.add(len(documents))
        table.check_recovery(storage)
    assert left == {2, 3}, "the version was put at a moment that was looked at"


@both_modes
def test_what_was_reported_exists_after_any_cut(tmp_path: Path, *, unnamed: bool) -> None:
    table = Disk(tmp_path, unnamed=unnamed)
    table.fold(table.committer())
    for storage in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert table.versions_in(storage) == [{}, {}, DELETED]


@both_modes
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_the_next_committer_reports_exists_after_any_cut(
    tmp_path: Path, *, unnamed: bool, after: bool, all_faults: bool
) -> None:
    """The first committer is killed at each of its calls; the next may find its version, not synced yet.

    Without `--all-faults` it is killed before every second call and after the others.
    """
    for number in count(1) if all_faults else count(1 + after, 2):
        (tmp_path / f"{number}").mkdir()
        table = Disk(tmp_path / f"{number}", unnamed=unnamed)
        table.disk.dies_at, table.disk.after = number, after
        try:
            table.fold(table.committer())
        except Died:
            pass
        else:
            break
        table.disk.revive()
        table.fold(table.committer())
        for storage in table.after_cuts(distinct(table.disk.moments[-1].trees())):
            assert table.versions_in(storage)[2:] in ([DELETED], [DELETED, DELETED])
    assert number > 10


@both_modes
def test_the_files_that_proposals_name_exist_with_their_version(tmp_path: Path, *, unnamed: bool) -> None:
    """Their writers have synced neither them nor the folders that they made."""
    table = Disk(tmp_path, unnamed=unnamed)
    added = append("new", read=2)
    added.table = table.meeting.uri
    deleted = table.meeting.table.delete({0: [4]})
    (file,) = (fragment.deletion_file for fragment in deleted.lance.delete.updated_fragments)
    named = deletion_path(0, file)
    written = {"data/new-0.lance": b"r" * 1000, named: table.meeting.storage.get(named)}
    for path, data in written.items():
        whole = table.top / "lake" / "t" / path
        whole.parent.mkdir(exist_ok=True)
        whole.write_bytes(data)
    group = table.meeting.entries(added, deleted)
    before = len(table.disk.moments)
    answers = table.committer(check_sizes=True).fold(group).outcomes
    assert [outcome.result for outcome in answers if not isinstance(outcome.result, Committed)] == []
    left = set()
    for storage in table.after_cuts(
        distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
    ):
        count_left = len(list(storage.list("_versions")))
        left.add(count_left)
        if count_left > 2:
            assert {path: storage.get(path) for path in written} == written
    assert left == {2, 3}
    for storage in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert len(list(storage.list("_versions"))) == 3


@both_modes
def test_a_foreign_version_that_was_built_on_is_there_after_any_cut(tmp_path: Path, *, unnamed: bool) -> None:
    """Other clients sync nothing of what they commit."""
    table = Disk(tmp_path, unnamed=unnamed)
    path = versions_at(table.meeting.uri).path(commit(table.meeting.uri, "reserve_fragments"))
    (table.top / "lake" / "t" / path).write_bytes(table.meeting.storage.get(path))
    table.fold(table.committer())
    for storage in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert table.versions_in(storage) == [{}, {}, {}, DELETED]


@both_modes
def test_a_new_table_is_there_or_not(tmp_path: Path, *, unnamed: bool) -> None:
    """Its folders are as new as its first version."""
    meeting = Meeting()
    top = tmp_path / "disk"
    top.mkdir()
    disk = CrashingDisk(top)
    storage = LocalStorage(top / "lake" / "t", unnamed=unnamed, calls=cast("Calls", disk))
    path = next(iter(meeting.storage.list("_versions"))).path
    storage.put_if_absent(path, [meeting.storage.get(path)])
    left = set()
    trees = distinct(tree for moment in disk.moments for tree in moment.trees())
    last = distinct(disk.moments[-1].trees())
    for number, tree in enumerate(trees):
        lay(tree, tmp_path / f"cut-{number}")
        versions = Versions(LocalStorage(tmp_path / f"cut-{number}" / "lake/t"), FORMAT.folder, FORMAT.detect)
        numbers = versions.numbers()
        assert [deleted_in(versions, number) for number in numbers] in ([], [{}])
        assert numbers or tree not in last
        left.add(len(numbers))
    assert left == {0, 1}


@both_modes
def test_a_tag_is_the_old_or_the_new_one(tmp_path: Path, *, unnamed: bool) -> None:
    table = Disk(tmp_path, unnamed=unnamed)
    storage = LocalStorage(table.top / "lake" / "t", unnamed=unnamed, calls=cast("Calls", table.disk))
    refs = Refs(storage)
    acts: list[tuple[str, Callable[[], object]]] = [
        ("old", lambda: refs.create_tag("x", 1)),
        ("new", lambda: refs.update_tag("x", 2)),
    ]
    for (name, act), allowed in zip(acts, [(None, 1), (1, 2)], strict=True):
        before = len(table.disk.moments)
        act()
        table.folder = tmp_path / name
        table.folder.mkdir()
        last = distinct(table.disk.moments[-1].trees())
        trees = distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
        values = [_tagged(storage) for storage in table.after_cuts(trees)]
        assert set(values) == set(allowed)
        assert {first for first, tree in zip(values, trees, strict=True) if tree in last} == {allowed[1]}


def _tagged(storage: LocalStorage) -> int | None:
    tags = Refs(storage).tags()
    return tags["x"].version if tags else None


@pytest.mark.parametrize(
    "hint", [b"", b'{"vers', b"\0" * 16, b"[]", b'{"version":1e999}', b'{"version":"x"}', b"\xff"]
)
def test_a_hint_that_a_cut_has_garbled_is_no_obstacle(tmp_path: Path, hint: bytes) -> None:
    """Other clients note the newest version without syncing it."""
    table = Disk(tmp_path, unnamed=True)
    (table.top / "lake" / "t" / "_versions" / HINT).write_bytes(hint)
    table.check_recovery(LocalStorage(table.top / "lake" / "t"))
