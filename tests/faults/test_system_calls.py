"""A real process whose n-th system call fails, by strace: what it says is Committed was synced before.

`test_disk.py` plays the same in one process, and cuts the power besides. Here it is the system that fails,
under whatever calls Python and its libraries make. Only played with `--all-faults`; needs strace.

Promise: synced-before-committed (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from lakefold import cli
from lakefold_log.read.file_log import framed
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import Versions
from tests.delta_logs.actions import PROTOCOL, add, metadata, snapshot_in, text
from tests.folding import FORMAT, append, creation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.delta_logs.actions import Members

TRACED = "fsync,linkat,renameat,renameat2,writev,mkdirat"
NAMES = ["a", "b", "c"]


@dataclass(frozen=True)
class Run:
    """What a process printed, how it ended, and the calls that it made."""

    code: int
    answers: list[str]
    calls: list[str]

    @property
    def met(self) -> bool:
        """Whether the fault came."""
        return any("(INJECTED)" in call for call in self.calls)

    def last(self, pattern: str) -> int:
        """The number of the last call of this kind that succeeded; -1 if none did."""
        numbers = [number for number, call in enumerate(self.calls) if re.search(pattern + r".* = 0$", call)]
        return numbers[-1] if numbers else -1


class Table:
    """A table in a folder of its own, and the file of appends that is folded into it."""

    folder = "_versions"
    version = ".manifest"
    data = "data"

    def __init__(self, folder: Path, *, is_created: bool = True) -> None:
        self.path = folder / "t"
        self._folder = folder
        self.uri = canonical(self.path)
        self.written: list[str] = []
        folder.mkdir()
        (folder / "creation.bin").write_bytes(framed([self.creation()]))
        if not is_created:
            return
        assert cli.run(["fold", str(self.path), str(folder / "creation.bin")]) == 0
        (folder / "appends.bin").write_bytes(framed(list(map(self.append, NAMES))))

    def creation(self) -> Envelope:
        """Creates the table."""
        envelope = creation()
        envelope.table = self.uri
        return envelope

    def append(self, name: str) -> Envelope:
        """Adds a file, which is written."""
        envelope = append(name)
        envelope.table = self.uri
        (self.path / "data").mkdir(exist_ok=True)
        for fragment in envelope.lance.append.fragments:
            self.written.append(fragment.files[0].path)
            (self.path / "data" / self.written[-1]).write_bytes(b"r" * 1000)
        return envelope

    def fold(self, fault: str = "", file: str = "appends.bin") -> Run:
        """Fold the appends, or another file, in a process of its own, under a fault."""
        trace = self._folder / "trace"
        inject = ["-e", f"inject={fault}"] if fault else []
        command = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={TRACED}", *inject]
        command += [sys.executable, "-m", "lakefold", "fold", "--json"]
        ended = subprocess.run(
            [*command, str(self.path), str(self._folder / file)],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
        )
        answers = [kind for line in ended.stdout.splitlines() for kind in json.loads(line) if kind in KINDS]
        return Run(ended.returncode, answers, trace.read_text().splitlines())

    def files(self) -> list[str]:
        """The data files of the newest version."""
        versions = Versions(LocalStorage(self.path), FORMAT.folder, FORMAT.detect)
        newest = versions.latest()
        state = FORMAT.decode(versions.path(newest), versions.read(newest))
        return sorted(file.path for fragment in state.fragments for file in fragment.files)


class DeltaTable(Table):
    """A Delta table."""

    folder = "_delta_log"
    version = ".json"
    data = "t"

    def creation(self) -> Envelope:
        return self._proposal(PROTOCOL, metadata())

    def append(self, name: str) -> Envelope:
        self.written.append(name)
        (self.path / name).write_bytes(b"r" * 1000)
        return self._proposal(add(name, size=1000, stats='{"numRecords":1}'))

    def _proposal(self, *actions: Members) -> Envelope:
        envelope = Envelope(table=self.uri)
        envelope.delta.actions = text(actions)
        return envelope

    def files(self) -> list[str]:
        return sorted(snapshot_in(self.path).files)


TABLES = [Table, DeltaTable]
KINDS = {"committed", "duplicate", "rejected", "invalid"}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "from-then-on"])
@pytest.mark.parametrize("fault", ["fsync:EIO", "fsync:EROFS", "writev:ENOSPC", "linkat:EIO", "linkat:EROFS"])
@pytest.mark.timeout(900)
def test_what_a_process_says_is_committed_was_synced(
    tmp_path: Path, kind: type[Table], fault: str, lasting: str
) -> None:
    if shutil.which("strace") is None:
        pytest.fail("strace is missing: apt-get install strace")
    call, error = fault.split(":")
    for number in count(1):
        table = kind(tmp_path / f"{number}")
        run = table.fold(f"{call}:error={error}:when={number}{lasting}")
        if not run.met:
            assert number > 1, f"nothing calls {call}"
            assert run.answers == ["committed"] * len(NAMES)
            return
        if "committed" in run.answers:
            assert run.answers == ["committed"] * len(NAMES)
            named = run.last(rf"(linkat|renameat2?)\(.*{re.escape(kind.version)}\"")
            assert named >= 0
            assert run.last(rf"fsync\(\d+<[^>]*/{kind.folder}>\)") > named
            assert run.last(rf"fsync\(\d+<[^>]*/{kind.data}>\)") >= 0
        else:
            assert run.code in {2, 5}, "it says that nothing was decided"
            assert run.answers == []
        again = table.fold()
        assert (again.code, len(again.answers)) == (0, len(NAMES))
        assert set(again.answers) <= {"committed", "duplicate"}
        assert table.files() == sorted(table.written)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "from-then-on"])
def test_a_table_whose_folders_can_not_be_made_is_not_created(
    tmp_path: Path, kind: type[Table], lasting: str
) -> None:
    for number in count(1):
        table = kind(tmp_path / f"{number}", is_created=False)
        run = table.fold(f"mkdirat:error=ENOSPC:when={number}{lasting}", "creation.bin")
        if not run.met:
            assert number > 1, "nothing calls mkdirat"
            assert run.answers == ["committed"]
            return
        assert (run.code, run.answers) == (5, [])
        again = table.fold(file="creation.bin")
        assert (again.code, again.answers) == (0, ["committed"])
