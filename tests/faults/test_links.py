"""A folder of a table is swapped for a link before each system call of a committer: nothing leaves the root.

The link leads to a copy of what it replaces, so that nothing but the link itself could be noticed.

Promise: no-link-followed (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import LakefoldError
from lakefold_table.storage.local import LocalStorage
from tests.faults.disks import SwappingCalls
from tests.scenarios.cut_tables import TABLES, CutTable, local

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_committer.tables.table_writer import TableWriter
    from lakefold_table.entry import Result

FEWEST_REFUSED = 20
"""So many swaps are met by a later call that says so; else the test proves nothing."""


class Swapped:
    """A folder of a table, and beside it the folder outside that a link leads to."""

    def __init__(self, top: Path, name: str) -> None:
        self._folder = top / name
        self._aside = top / "aside"
        self.outside = top.parent / "outside"
        shutil.copytree(self._folder, self.outside)

    def swap(self) -> None:
        """A link to the folder outside in place of the folder."""
        self._folder.rename(self._aside)
        self._folder.symlink_to(self.outside)

    def swap_back(self) -> None:
        """As it was."""
        self._folder.unlink()
        self._aside.rename(self._folder)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def folded(table: CutTable, open_table: Callable[[], TableWriter]) -> tuple[list[Result] | None, str]:
    """The answers, or none and why."""
    try:
        return table.fold(open_table()), ""
    except LakefoldError as error:
        return None, str(error)


@pytest.mark.parametrize(
    ("kind", "swapped", "unnamed"),
    [
        *((kind, name, True) for kind in TABLES for name in kind.folders),
        *((kind, kind.folders[2], False) for kind in TABLES),
    ],
)
def test_a_folder_that_is_swapped_for_a_link_is_never_written_through(
    tmp_path: Path, kind: type[CutTable], swapped: str, *, unnamed: bool, all_faults: bool
) -> None:
    """Without `--all-faults` it is swapped before some calls."""
    refused, step = 0, 1 if all_faults else kind.spread
    for number in count(1, step):
        made: list[Swapped] = []

        def calls(top: Path, number: int = number, made: list[Swapped] = made) -> SwappingCalls:
            made.append(Swapped(top, swapped))
            return SwappingCalls(number, made[0].swap, {name.rpartition("/")[2] for name in kind.folders})

        table = kind(tmp_path / f"{number}", unnamed=unnamed, disk=calls)
        (location,) = made
        before = files_in(location.outside)
        answers, refusal = folded(table, table.committer)
        refused += "symbolic link" in refusal
        assert files_in(location.outside) == before
        if table.disk.calls < number:
            break
        location.swap_back()
        again, _ = folded(table, partial(table.writer, local(table.path)))
        assert again is not None
        assert answers in (None, again)
        _, _, *more = table.versions(table.path)
        assert more
        assert all(rows == table.deleted_by(again) for rows in more)
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
