"""A real process whose n-th system call fails, by strace: what it says is Committed was synced before.

`test_disk.py` plays the same in one process, and cuts the power besides. Here it is the system that fails,
under whatever calls Python and its libraries make. Only played with `--all-faults`; needs strace.

Promise: synced-before-committed (docs/operations.md).
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
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, append, creation

if TYPE_CHECKING:
    from pathlib import Path

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
    """A table in a folder of its own, and the file of Appends that is folded into it."""

    def __init__(self, folder: Path, *, is_created: bool = True) -> None:
        self.path = folder / "t"
        self._folder = folder
        uri = canonical(self.path)
        made = creation()
        made.table = uri
        (folder / "creation.bin").parent.mkdir(parents=True)
        (folder / "creation.bin").write_bytes(framed([made]))
        if not is_created:
            return
        assert cli.run(["fold", str(self.path), str(folder / "creation.bin")]) == 0
        appends = [append(name) for name in NAMES]
        (self.path / "data").mkdir()
        for envelope in appends:
            envelope.table = uri
            for fragment in envelope.lance.append.fragments:
                (self.path / "data" / fragment.files[0].path).write_bytes(b"r" * 1000)
        (folder / "appends.bin").write_bytes(framed(appends))

    def fold(self, fault: str = "", file: str = "appends.bin") -> Run:
        """Fold the Appends, or another file, in a process of its own, under a fault."""
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


KINDS = {"committed", "duplicate", "rejected", "invalid"}
EXPECTED = sorted(
    file.path for name in NAMES for part in append(name).lance.append.fragments for file in part.files
)


@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "from-then-on"])
@pytest.mark.parametrize("fault", ["fsync:EIO", "fsync:EROFS", "writev:ENOSPC", "linkat:EIO", "linkat:EROFS"])
@pytest.mark.timeout(900)
def test_what_a_process_says_is_committed_was_synced(tmp_path: Path, fault: str, lasting: str) -> None:
    if shutil.which("strace") is None:
        pytest.fail("strace is missing: apt-get install strace")
    call, error = fault.split(":")
    for number in count(1):
        table = Table(tmp_path / f"{number}")
        run = table.fold(f"{call}:error={error}:when={number}{lasting}")
        if not run.met:
            assert number > 1, f"nothing calls {call}"
            assert run.answers == ["committed"] * len(NAMES)
            return
        if "committed" in run.answers:
            assert run.answers == ["committed"] * len(NAMES)
            named = run.last(r"(linkat|renameat2?)\(.*\.manifest\"")
            assert named >= 0
            assert run.last(r"fsync\(\d+<[^>]*/_versions>\)") > named
            assert run.last(r"fsync\(\d+<[^>]*/data>\)") >= 0
        else:
            assert run.code in {2, 5}, "it says that nothing was decided"
            assert run.answers == []
        again = table.fold()
        assert (again.code, len(again.answers)) == (0, len(NAMES))
        assert set(again.answers) <= {"committed", "duplicate"}
        assert table.files() == EXPECTED


@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "from-then-on"])
def test_a_table_whose_folders_can_not_be_made_is_not_created(tmp_path: Path, lasting: str) -> None:
    for number in count(1):
        table = Table(tmp_path / f"{number}", is_created=False)
        run = table.fold(f"mkdirat:error=ENOSPC:when={number}{lasting}", "creation.bin")
        if not run.met:
            assert number > 1, "nothing calls mkdirat"
            assert run.answers == ["committed"]
            return
        assert (run.code, run.answers) == (5, [])
        again = table.fold(file="creation.bin")
        assert (again.code, again.answers) == (0, ["committed"])
