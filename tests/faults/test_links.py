"""A folder of a table is swapped for a link before each system call of a committer: nothing leaves the root.

The link leads to a copy of what it replaces, so that nothing but the link itself could be noticed.

Promise: no-link-followed (docs/operations.md).
"""

from __future__ import annotations

import shutil
from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed
from lakefold_table.errors import LakefoldError
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.versions import Versions
from tests.contracts.crash_states import UNSYNCED
from tests.faults.disks import SwappingCalls
from tests.folding import FORMAT
from tests.scenarios.test_files_before_versions import DELETES, Meeting, deleted_in

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.entry import Result
    from lakefold_table.storage.syncs import Calls

SWAPPED = ["lake", "lake/t", "lake/t/_versions", "lake/t/_deletions"]
FEWEST_REFUSED = 20
"""So many swaps are met by a later call that says so; else the test proves nothing."""
SPREAD = 2
"""Without `--all-faults` a folder is swapped before every second call."""


class Place:
    """A table in a folder of its own, and beside it the folder outside that a link leads to."""

    def __init__(self, folder: Path, swapped: str, meeting: Meeting) -> None:
        self.meeting = meeting
        self.root = folder / "disk" / "lake" / "t"
        self._swapped = folder / "disk" / swapped
        self._aside = folder / "disk" / "aside"
        self.outside = folder / "outside"
        for name in ("data", "_deletions", "_versions"):
            (self.root / name).mkdir(parents=True)
            for listed in self.meeting.storage.list(name):
                (self.root / listed.path).write_bytes(self.meeting.storage.get(listed.path))
        shutil.copytree(self._swapped, self.outside)

    def swap(self) -> None:
        """A link to the folder outside in place of the folder."""
        self._swapped.rename(self._aside)
        self._swapped.symlink_to(self.outside)

    def swap_back(self) -> None:
        """As it was."""
        self._swapped.unlink()
        self._aside.rename(self._swapped)

    def fold(self, storage: LocalStorage) -> list[Result]:
        """A committer that opens the table and folds the three Deletes."""
        versions = Versions(storage, FORMAT.folder, FORMAT.detect)
        owned = TableWriter(FORMAT, versions, self.meeting.uri, check_sizes=False)
        return [outcome.result for outcome in owned.fold(self.meeting.group).outcomes]

    def deleted(self) -> list[dict[int, set[int]]]:
        """What is deleted in each version."""
        versions = Versions(LocalStorage(self.root), FORMAT.folder, FORMAT.detect)
        return [deleted_in(versions, number) for number in versions.numbers()]


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def folded(location: Place, storage: LocalStorage) -> tuple[list[Result] | None, str]:
    """The answers, or none and why."""
    try:
        return location.fold(storage), ""
    except LakefoldError as error:
        return None, str(error)


def deleted_by(answers: list[Result]) -> dict[int, set[int]]:
    """What is deleted by those that were committed: a file that can't be reached is refused as missing."""
    values: dict[int, set[int]] = {}
    for answer, rows in zip(answers, DELETES, strict=True):
        for fragment, numbers in rows.items() if isinstance(answer, Committed) else ():
            values.setdefault(fragment, set()).update(numbers)
    return values


@pytest.mark.parametrize(
    ("swapped", "unnamed"), [*((name, True) for name in SWAPPED), ("lake/t/_versions", False)]
)
def test_a_folder_that_is_swapped_for_a_link_is_never_written_through(
    tmp_path: Path, swapped: str, *, unnamed: bool, all_faults: bool
) -> None:
    refused, meeting, step = 0, Meeting(), 1 if all_faults else SPREAD
    for number in count(1, step):
        location = Place(tmp_path / f"{number}", swapped, meeting)
        calls = SwappingCalls(number, location.swap, {"lake", "t", "_versions", "_deletions", "data"})
        storage = LocalStorage(location.root, unnamed=unnamed, calls=cast("Calls", calls))
        before = files_in(location.outside)
        answers, refusal = folded(location, storage)
        refused += "symbolic link" in refusal
        assert files_in(location.outside) == before
        if calls.calls < number:
            break
        location.swap_back()
        again, _ = folded(location, LocalStorage(location.root, calls=cast("Calls", UNSYNCED)))
        assert again is not None
        assert answers in (None, again)
        _, _, *more = location.deleted()
        assert more
        assert all(values == deleted_by(again) for values in more)
        shutil.rmtree(tmp_path / f"{number}")
    assert refused * step > FEWEST_REFUSED


def test_a_link_in_the_path_to_the_root_is_resolved_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("real")
    storage = LocalStorage(tmp_path / "link" / "t")
    storage.put("a", [b"1"])
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")
    storage.put("b", [b"2"])
    assert files_in(tmp_path / "real") == {"t/a": b"1", "t/b": b"2"}
    assert files_in(tmp_path / "other") == {}
