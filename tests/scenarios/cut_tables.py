"""Tables of both formats on a disk that fails, each of two versions, and what is proposed for its third."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import pytest

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.fields import members_of
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.rows import vectors
from lakefold_table.delta.rows.vectors import Vectors, file_of
from lakefold_table.delta.state import DeltaState
from lakefold_table.entry import Committed
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.syncs import Doubts
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.contracts.crash_states import UNSYNCED, CrashingDisk, Tree, lay
from tests.delta_logs.actions import LISTED, VECTORS, Members, add, metadata, remove, snapshot_in, text
from tests.folding import FORMAT, entries
from tests.scenarios.test_files_before_versions import DELETED, DELETES, Meeting, deleted_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_table.entry import Entry, Result
    from lakefold_table.storage.syncs import Calls

Rows = dict[Any, set[int]]
"""The deleted rows of a version, by fragment or file."""


class CutTable(ABC):
    """A table on a failing disk; its folder is `lake/t` below `top`.

    `before`: the deleted rows of its two versions; `after`: those of its third, if all is committed.
    `calls`: how many calls of the system a committer makes at least; `spread`: each how-manieth of them is
    enough for a short run.
    """

    before: ClassVar[Sequence[Rows]]
    after: ClassVar[Rows]
    calls: ClassVar[int]
    spread: ClassVar[int]
    folders: ClassVar[Sequence[str]]
    """Those that a committer opens, below the disk."""
    group: Sequence[Entry]

    def __init__(
        self, folder: Path, *, unnamed: bool = True, disk: Callable[[Path], object] = CrashingDisk
    ) -> None:
        self.folder = folder
        self.top = folder / "disk"
        self.path = self.top / "lake" / "t"
        self._unnamed = unnamed
        self._doubts = Doubts()
        self._cuts = count()
        self.path.mkdir(parents=True)
        for path, data in self.stored().items():
            (self.path / path).parent.mkdir(exist_ok=True)
            (self.path / path).write_bytes(data)
        self.disk: Any = disk(self.top)
        self.group = self.propose()

    @abstractmethod
    def stored(self) -> Mapping[str, bytes]:
        """The files of the table."""

    @abstractmethod
    def propose(self) -> Sequence[Entry]:
        """The proposals. Their files are written, and not synced."""

    @abstractmethod
    def writer(self, storage: LocalStorage) -> TableWriter:
        """A committer that begins anew."""

    @abstractmethod
    def versions(self, path: Path) -> list[Rows]:
        """The deleted rows of each version of the table in a folder. Each must be whole."""

    @abstractmethod
    def deleted_by(self, answers: Sequence[Result]) -> Rows:
        """The deleted rows of the third version, if these are the answers."""

    def committer(self) -> TableWriter:
        """A committer that works on the failing disk."""
        calls = cast("Calls", self.disk)
        return self.writer(LocalStorage(self.path, unnamed=self._unnamed, calls=calls, doubts=self._doubts))

    def fold(self, writer: TableWriter) -> list[Result]:
        """Folds the proposals. Returns their answers."""
        return [outcome.result for outcome in writer.fold(self.group).outcomes]

    def after_cuts(self, trees: Iterable[Tree]) -> Iterator[Path]:
        """The table after each of these power cuts, on a disk that works."""
        for tree in trees:
            top = self.folder / f"cut-{next(self._cuts)}"
            lay(tree, top)
            yield top / "lake" / "t"

    def new_versions(self, path: Path) -> int:
        """How many versions there are after the second, all of which must be the third with all proposals."""
        versions = self.versions(path)
        assert versions[:2] == [*self.before]
        assert all(rows == self.after for rows in versions[2:])
        return len(versions) - 2

    def check_recovery(self, path: Path) -> None:
        """The next committer folds what is missing, and the one after it gives the same answers."""
        self.write_again(path)
        answers = self.fold(self.writer(local(path)))
        assert {type(answer) for answer in answers} == {Committed}
        assert answers == self.fold(self.writer(local(path)))
        assert self.new_versions(path), "one that takes over begins with a version of its own"

    def write_again(self, path: Path) -> None:  # noqa: B027 - most tables have none
        """Writes files again that writers had not synced, and that no version names."""


def local(path: Path) -> LocalStorage:
    """A folder on a disk that works."""
    return LocalStorage(path, calls=cast("Calls", UNSYNCED))


class LanceTable(CutTable):
    """A table of `Meeting`, for which three Deletes are proposed."""

    before = ({}, {})
    after = DELETED
    calls = 10
    spread = 2
    folders = ("lake", "lake/t", "lake/t/_versions", "lake/t/_deletions")

    def __init__(
        self,
        folder: Path,
        *,
        unnamed: bool = True,
        disk: Callable[[Path], object] = CrashingDisk,
        meeting: Meeting | None = None,
    ) -> None:
        self.meeting = meeting or _meeting()
        super().__init__(folder, unnamed=unnamed, disk=disk)

    def stored(self) -> Mapping[str, bytes]:
        storage = self.meeting.storage
        folders = ("_deletions", "_versions")
        return {each.path: storage.get(each.path) for name in folders for each in storage.list(name)}

    def propose(self) -> Sequence[Entry]:
        return self.meeting.group

    def writer(self, storage: LocalStorage, *, check_sizes: bool = False) -> TableWriter:
        versions = Versions(storage, FORMAT.folder, FORMAT.detect)
        return TableWriter(StoredTable(FORMAT, versions), check_sizes=check_sizes)

    def versions(self, path: Path) -> list[Rows]:
        versions = Versions(local(path), FORMAT.folder, FORMAT.detect)
        return [deleted_in(versions, number) for number in versions.numbers()]

    def deleted_by(self, answers: Sequence[Result]) -> Rows:
        rows: Rows = {}
        for answer, deleted in zip(answers, DELETES, strict=True):
            for fragment, numbers in deleted.items() if isinstance(answer, Committed) else ():
                rows.setdefault(fragment, set()).update(numbers)
        return rows


DELTA: Final = DeltaFormat()
URI: Final = "memory://cut/t"
V2: Final = {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"}


class DeltaTable(CutTable):
    """A table of the files `a` and `b`. Rows of both are to be deleted, and a file is to be added.

    The rows need a file of deletion vectors, and the version gets a V2 checkpoint with its sidecars.
    """

    before = ({}, {"a": set(), "b": set()})
    after: ClassVar[Rows] = {"a": {1, 2}, "b": {3}, "c": set()}
    calls = 20
    spread = 3
    folders = ("lake", "lake/t", "lake/t/_delta_log")
    deletes: Final = (("a", 1), ("a", 2), ("b", 3))

    def stored(self) -> Mapping[str, bytes]:
        return _delta_files()

    def propose(self) -> Sequence[Entry]:
        self.write_again(self.path)
        return entries([*(_delete(name, row) for name, row in self.deletes), _added("c")], 2)

    def write_again(self, path: Path) -> None:
        (path / "c").write_text("c")

    def writer(self, storage: LocalStorage) -> TableWriter:
        return TableWriter(StoredTable(DELTA, Versions.of(storage, DELTA)), check_sizes=True)

    def fold(self, writer: TableWriter) -> list[Result]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vectors, "MOST_INLINE", 0)
            return super().fold(writer)

    def versions(self, path: Path) -> list[Rows]:
        """All checkpoints make the same versions, together with the commits after them."""
        storage = local(path)
        versions = Versions.of(storage, DELTA)
        return [self._deleted(storage, versions, number) for number in versions.numbers()]

    @staticmethod
    def _deleted(storage: LocalStorage, versions: Versions, number: int) -> Rows:
        state = StoredTable(DELTA, versions).read_state(number)
        assert isinstance(state, DeltaState)
        assert state.snapshot is not None
        assert set(snapshot_in(Path(storage.uri.removeprefix("file://")), number).files) == set(
            state.snapshot.files
        )
        rows: Rows = {}
        for path, file in state.snapshot.files.items():
            assert storage.get(path) == path.encode()
            stored = file_of(file.deletion_vector)
            contents = {} if stored is None else {stored: storage.get(stored)}
            rows[path] = set(Vectors(contents).rows(file.deletion_vector, path))
        return rows

    def deleted_by(self, answers: Sequence[Result]) -> Rows:
        *deletes, added = answers
        rows: Rows = {"a": set(), "b": set()}
        for answer, (name, row) in zip(deletes, self.deletes, strict=True):
            if isinstance(answer, Committed):
                rows[name].add(row)
        return rows | ({"c": set()} if isinstance(added, Committed) else {})


@cache
def _meeting() -> Meeting:
    """The table in memory, which nothing changes."""
    return Meeting()


@cache
def _delta_files() -> Mapping[str, bytes]:
    with TemporaryDirectory() as folder:
        path = Path(folder)
        writer = TableWriter(StoredTable(DELTA, Versions.of(local(path), DELTA)), check_sizes=True)
        writer.fold(entries([_proposal(LISTED, metadata(**VECTORS, **V2))], 0))
        for name in "ab":
            (path / name).write_text(name)
        writer.fold(entries([_added("a", "b")], 1))
        files = (file for file in path.rglob("*") if file.is_file())
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def _proposal(*actions: Members, read: int | None = None) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.delta.actions = text(actions)
    if read is not None:
        envelope.delta.read_version = read
    return envelope


def _file(name: str, rows: Iterable[int] = ()) -> Members:
    action = add(name, size=len(name.encode()), stats=json.dumps({"numRecords": 10}))
    deleted = Bitmap(list(rows))
    if deleted:
        action["add"]["deletionVector"] = members_of(inline_vector({0: deleted}))
    return action


def _added(*names: str) -> Envelope:
    return _proposal(*map(_file, names))


def _delete(name: str, *rows: int) -> Envelope:
    envelope = _proposal(remove(name), _file(name, rows), read=1)
    envelope.delta.affected_rows[name] = encode_treemap({0: Bitmap(rows)})
    return envelope


TABLES: Final[Sequence[type[CutTable]]] = (LanceTable, DeltaTable)
