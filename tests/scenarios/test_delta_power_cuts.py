"""A Delta table on a local disk when the power is cut after any system call of a version and its checkpoint.

What is left is the old version or the new one, with its data files, its file of deletion vectors, and each
checkpoint that names it; what was reported exists; and the next committer comes to the same rows.

Promises: synced-before-committed, proposed-files-synced (docs/operations.md).
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Final, cast

import pytest

from lakefold_committer.recovery.stored_versions import read_state
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.log_segment.names import FOLDER, LAST_CHECKPOINT, SIDECARS
from lakefold_table.delta.row_changes import vectors
from lakefold_table.delta.row_changes.vectors import Vectors, file_of
from lakefold_table.delta.state import DeltaState
from lakefold_table.entry import Committed
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.syncs import Doubts
from lakefold_table.versions.versions import Versions
from tests.contracts.crash_states import UNSYNCED, CrashingDisk, Died, distinct, lay
from tests.delta_logs.actions import LISTED, VECTORS, Members, add, metadata, remove, snapshot_in, text
from tests.folding import entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from lakefold_table.entry import Result
    from lakefold_table.storage.syncs import Calls
    from tests.contracts.crash_states import Tree

DELTA: Final = DeltaFormat()
URI: Final = "memory://cut/t"
V2: Final = {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"}
OLD, NEW = {"a": set[int](), "b": set[int]()}, {"a": {1, 2}, "b": {3}, "c": set[int]()}
"""The files of versions 1 and 2 with their deleted rows."""

both_modes = pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])


def proposal(*actions: Members, read: int | None = None) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.delta.actions = text(actions)
    if read is not None:
        envelope.delta.read_version = read
    return envelope


def added(name: str, rows: Iterable[int] = ()) -> Members:
    action = add(name, size=len(name.encode()), stats=json.dumps({"numRecords": 10}))
    deleted = Bitmap(list(rows))
    if deleted:
        action["add"]["deletionVector"] = members_of(inline_vector({0: deleted}))
    return action


def delete(name: str, *rows: int) -> Envelope:
    envelope = proposal(remove(name), added(name, rows), read=1)
    envelope.delta.affected_rows[name] = encode_treemap({0: Bitmap(rows)})
    return envelope


class Disk:
    """A table of two files on a crashing disk, and what is proposed for its next version."""

    def __init__(self, folder: Path, *, unnamed: bool) -> None:
        self.folder = folder
        self.top = folder / "disk"
        self.table = self.top / "lake" / "t"
        self._unnamed = unnamed
        self._doubts = Doubts()
        self._cuts = count()
        self.table.mkdir(parents=True)
        first = self._writer(LocalStorage(self.table, calls=cast("Calls", UNSYNCED)))
        for offset, each in enumerate((proposal(LISTED, metadata(**VECTORS, **V2)), self._files("a", "b"))):
            first.fold(entries([each], offset))
        self.disk = CrashingDisk(self.top)
        # Their writer has not synced the new file.
        self.group = entries([delete("a", 1), delete("a", 2), delete("b", 3), self._files("c")], 2)

    def committer(self) -> TableWriter:
        """A committer that works on the crashing disk."""
        calls = cast("Calls", self.disk)
        return self._writer(LocalStorage(self.table, unnamed=self._unnamed, calls=calls, doubts=self._doubts))

    def fold(self, writer: TableWriter) -> list[Result]:
        """Folds the proposals. Returns their answers."""
        return [outcome.result for outcome in writer.fold(self.group).outcomes]

    def after_cuts(self, trees: Iterable[Tree]) -> Iterator[Path]:
        """The table after each of these power cuts, on a disk that works."""
        for tree in trees:
            top = self.folder / f"cut-{next(self._cuts)}"
            lay(tree, top)
            yield top / "lake" / "t"

    def check_recovery(self, table: Path) -> None:
        """The next committer folds what is missing.

        If the version was not stored, the new file may be lost: its writer has not synced it.
        """
        (table / "c").write_text("c")
        storage = LocalStorage(table, calls=cast("Calls", UNSYNCED))
        assert all(isinstance(each, Committed) for each in self.fold(self._writer(storage)))
        assert deleted_rows(table) == NEW

    def _files(self, *names: str) -> Envelope:
        for name in names:
            (self.table / name).write_text(name)
        return proposal(*map(added, names))

    def _writer(self, storage: LocalStorage) -> TableWriter:
        return TableWriter(DELTA, Versions.of(storage, DELTA), URI, check_sizes=True)


def deleted_rows(table: Path) -> dict[str, set[int]]:
    """The files of the newest version with their deleted rows, once each file that it names was read.

    All checkpoints make the same version, together with the commits after them.
    """
    storage = LocalStorage(table, calls=cast("Calls", UNSYNCED))
    versions = Versions.of(storage, DELTA)
    state = read_state(DELTA, versions, versions.latest())
    assert isinstance(state, DeltaState)
    assert state.snapshot is not None
    assert set(snapshot_in(table).files) == set(state.snapshot.files)
    rows = {}
    for path, file in state.snapshot.files.items():
        assert storage.get(path) == path.encode()
        stored = file_of(file.deletion_vector)
        contents = {} if stored is None else {stored: storage.get(stored)}
        rows[path] = set(Vectors(contents).rows(file.deletion_vector, path))
    return rows


@pytest.fixture(autouse=True)
def _small_vectors_get_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MOST_INLINE", 0)


@both_modes
def test_a_cut_at_any_moment_leaves_the_old_or_the_new_version(tmp_path: Path, *, unnamed: bool) -> None:
    table = Disk(tmp_path, unnamed=unnamed)
    committer = table.committer()
    before = len(table.disk.moments)
    assert len({type(each) for each in table.fold(committer)}) == 1
    left = []
    trees = distinct(tree for moment in table.disk.moments[before:] for tree in moment.trees())
    for path in table.after_cuts(trees):
        left.append(deleted_rows(path))
        assert left[-1] in (OLD, NEW)
        table.check_recovery(path)
    assert OLD in left
    assert NEW in left


@both_modes
def test_what_was_reported_exists_after_any_cut(tmp_path: Path, *, unnamed: bool) -> None:
    table = Disk(tmp_path, unnamed=unnamed)
    table.fold(table.committer())
    assert (table.table / LAST_CHECKPOINT).exists()
    assert list((table.table / SIDECARS).iterdir())
    assert list(table.table.glob("deletion_vector_*"))
    for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
        assert deleted_rows(path) == NEW


@both_modes
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_the_next_committer_reports_exists_after_any_cut(
    tmp_path: Path, *, unnamed: bool, after: bool, all_faults: bool
) -> None:
    """The first committer is killed at each of its calls; the next may find its version, not synced yet.

    Without `--all-faults` it is killed at every third call.
    """
    for number in count(1) if all_faults else count(1 + after, 3):
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
        for path in table.after_cuts(distinct(table.disk.moments[-1].trees())):
            assert deleted_rows(path) == NEW
            assert (path / FOLDER).is_dir()
    assert number > 20
