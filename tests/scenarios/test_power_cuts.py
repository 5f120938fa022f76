"""A table on a local disk when the power is cut or a committer is killed, after each of its system calls.

What is left is the old version or the new, whole, with its data files, its files of deleted rows and each
checkpoint that names it, whatever of what wasn't synced the disk has kept; what was reported exists; and the
next committer folds the same entries to the same answers (one-commit-point).

Promises: synced-before-committed, proposed-files-synced (docs/operations/promises.md).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from lakefold_committer.tables.refs import write_tags
from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.format.source import Source
from lakefold_reader.formats import FORMATS, LATER
from lakefold_reader.versions.cursor import Cursor
from lakefold_table.delta.log_segment.names import LAST_CHECKPOINT, SIDECARS
from lakefold_table.entry import Committed
from lakefold_table.lance.rows.deletions import deletion_path
from lakefold_table.storage.local import LocalStorage
from lakefold_table.tag_proposal import TagChange, TagTarget
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.versions import HINT, Versions, format_at
from tests.contracts.crash_states import CrashingDisk, Died, distinct, lay
from tests.folding import FORMAT, append, versions_at
from tests.foreign import commit
from tests.scenarios.cut_tables import TABLES, CutTable, DeltaTable, LanceTable, local
from tests.scenarios.test_files_before_versions import Meeting, deleted_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.storage.syncs import Calls

both_modes = pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
both_formats = pytest.mark.parametrize("kind", TABLES)


def died_at(table: CutTable, number: int) -> bool:
    """Folds until the committer is killed at its call of this number, and revives the disk.

    Returns whether it made as many calls.
    """
    table.disk.dies_at = number
    try:
        table.fold(table.committer())
    except Died:
        table.disk.revive()
        return True
    return False


@both_formats
@both_modes
def test_a_cut_at_any_moment_leaves_the_old_or_the_new_version(
    tmp_path: Path, kind: type[CutTable], *, unnamed: bool
) -> None:
    table = kind(tmp_path, unnamed=unnamed)
    committer = table.committer()
    before = len(table.disk.moments)
    table.fold(committer)
    left = set()
    trees = distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
    for path in table.after_cuts(trees):
        left.add(table.new_versions(path))
        table.check_recovery(path)
    assert left == {0, 1}, "the version was put at a moment that was looked at"


@both_formats
@both_modes
def test_what_was_reported_exists_after_any_cut(
    tmp_path: Path, kind: type[CutTable], *, unnamed: bool
) -> None:
    table = kind(tmp_path, unnamed=unnamed)
    table.fold(table.committer())
    for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert table.new_versions(path) == 1


def test_the_version_of_a_delta_table_that_is_cut_off_has_each_kind_of_file(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path)
    table.fold(table.committer())
    assert (table.path / LAST_CHECKPOINT).exists()
    assert list((table.path / SIDECARS).iterdir())
    assert list(table.path.glob("deletion_vector_*"))


@both_formats
@both_modes
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_the_next_committer_reports_exists_after_any_cut(
    tmp_path: Path, kind: type[CutTable], *, unnamed: bool, after: bool, all_faults: bool
) -> None:
    """The first committer is killed at each of its calls; the next may find its version, not synced yet.

    Without `--all-faults` it is killed before some of its calls and after others.
    """
    for number in count(1) if all_faults else count(1 + after, kind.spread):
        (tmp_path / f"{number}").mkdir()
        table = kind(tmp_path / f"{number}", unnamed=unnamed)
        table.disk.after = after
        if not died_at(table, number):
            break
        table.fold(table.committer())
        for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
            assert table.new_versions(path) in {1, 2}
    assert number > kind.calls


@both_modes
def test_the_files_that_proposals_name_exist_with_their_version(tmp_path: Path, *, unnamed: bool) -> None:
    """Their writers have synced neither them nor the folders that they made."""
    meeting = Meeting()
    table = LanceTable(tmp_path, unnamed=unnamed, meeting=meeting)
    added = append("new", read=2)
    added.table = meeting.uri
    deleted = meeting.table.delete({0: [4]})
    (file,) = (fragment.deletion_file for fragment in deleted.lance.delete.updated_fragments)
    named = deletion_path(0, file)
    written = {"data/new-0.lance": b"r" * 1000, named: meeting.storage.get(named)}
    for name, data in written.items():
        whole = table.path / name
        whole.parent.mkdir(exist_ok=True)
        whole.write_bytes(data)
    table.group = meeting.entries(added, deleted)
    before = len(table.disk.moments)
    storage = LocalStorage(table.path, unnamed=unnamed, calls=cast("Calls", table.disk))
    answers = table.fold(table.writer(storage, check_sizes=True))
    assert {type(answer) for answer in answers} == {Committed}
    left = set()
    for path in table.after_cuts(
        distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
    ):
        storage = local(path)
        count_left = len(list(storage.list("_versions")))
        left.add(count_left)
        if count_left > 2:
            assert {name: storage.get(name) for name in written} == written
    assert left == {2, 3}
    for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert len(list(local(path).list("_versions"))) == 3


@both_modes
def test_a_foreign_version_that_was_built_on_is_there_after_any_cut(tmp_path: Path, *, unnamed: bool) -> None:
    """Other clients sync nothing of what they commit."""
    meeting = Meeting()
    table = LanceTable(tmp_path, unnamed=unnamed, meeting=meeting)
    name = versions_at(meeting.uri).path(commit(meeting.uri, "reserve_fragments"))
    (table.path / name).write_bytes(meeting.storage.get(name))
    table.fold(table.committer())
    for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert table.versions(path) == [*table.before, {}, table.after]


@both_formats
@both_modes
def test_what_a_consumer_has_read_exists_after_any_cut(
    tmp_path: Path, kind: type[CutTable], *, unnamed: bool
) -> None:
    """The committer is killed at each of its calls; its version can be read before it is synced."""
    read = set()
    for number in count(1):
        (tmp_path / f"{number}").mkdir()
        table = kind(tmp_path / f"{number}", unnamed=unnamed)
        if not died_at(table, number):
            break
        storage = LocalStorage(table.path, unnamed=unnamed, calls=cast("Calls", table.disk))
        source = Source.on(storage, format_at(storage, (*FORMATS, *LATER)))
        versions = source.versions.numbers()
        Consumers(source).begin("night", Cursor("", "", versions[-1]))
        read.add(len(versions))
        for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
            assert (path / "_lakefold" / "consumers" / "night.json").exists()
            assert len(table.versions(path)) >= len(versions)
    assert read == {2, 3}


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
    table = LanceTable(tmp_path, unnamed=unnamed)
    storage = LocalStorage(table.path, unnamed=unnamed, calls=cast("Calls", table.disk))
    first, moved = (TagChange("x", TagTarget("", version), version == 1, version) for version in (1, 2))
    acts: list[tuple[str, Callable[[], object]]] = [
        ("old", lambda: write_tags(storage, [first], lambda: False)),
        ("new", lambda: write_tags(storage, [moved], lambda: False)),
    ]
    for (name, act), allowed in zip(acts, [(None, 1), (1, 2)], strict=True):
        before = len(table.disk.moments)
        act()
        table.folder = tmp_path / name
        table.folder.mkdir()
        last = distinct(table.disk.moments[-1].trees())
        trees = distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
        values = [_tagged(local(path)) for path in table.after_cuts(trees)]
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
    table = LanceTable(tmp_path)
    (table.path / "_versions" / HINT).write_bytes(hint)
    table.check_recovery(table.path)
