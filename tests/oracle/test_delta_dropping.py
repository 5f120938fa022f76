"""`lakefold drop` of a Delta table in a bucket: nothing is left, also after it was interrupted at any file.

delta-rs decides what clients read meanwhile. Promise: dropped-by-a-version (docs/operations/promises.md).
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from lakefold.cli import run
from lakefold_table.errors import RetryError
from lakefold_table.formats import delta
from lakefold_table.versions.drop_note import Dropped, DroppedBranch, read_dropped, write_dropped
from lakefold_table.versions.removal import remove_branch
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.versions import Versions
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "delta-dropping"
HERE = f"memory://{NAME}/lake/t"
ROWS = 5


class Stopping(MemoryStorage):
    """Fails after so many removals."""

    left = 0

    def delete(self, path: str) -> None:
        if self.left == 0:
            raise RetryError("the store went away")
        self.left -= 1
        super().delete(path)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[dict[str, bytes]]:
    """The files of a table whose newest version is 4 and has a checkpoint, as an older one."""
    folder = tmp_path / "made"
    for number in range(ROWS):
        write_deltalake(folder, pa.table({"a": pa.array([number], pa.int64())}), mode="append")
        if number in (2, ROWS - 1):
            DeltaTable(folder).create_checkpoint()
    files = (file for file in folder.rglob("*") if file.is_file())
    yield {str(file.relative_to(folder)): file.read_bytes() for file in files}
    MemoryStorage.forget(NAME)


def drop() -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = run(["drop", HERE, "--yes"])
    return out.getvalue() if code else ""


def put(files: dict[str, bytes]) -> None:
    for path, data in files.items():
        MemoryStorage(HERE).put(path, [data])


def read_by_delta_rs(folder: Path) -> list[int] | None:
    """The rows that a client reads of what is stored, None if it can't read it."""
    for path in MemoryStorage(HERE).everything():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(MemoryStorage(HERE).get(path))
    try:
        return sorted(DeltaTable(folder).to_pyarrow_table()["a"].to_pylist())
    except DeltaError:
        return None


def test_nothing_is_left_of_a_table_with_checkpoints(stored: dict[str, bytes]) -> None:
    put(stored)
    assert not drop()
    assert [*MemoryStorage(f"memory://{NAME}").everything()] == ["lake/.lakefold-dropped/t"]
    dropped = read_dropped(TableAddress(HERE))
    assert dropped is not None
    assert not dropped.removing


def test_no_client_reads_an_older_version_if_the_removal_is_interrupted(
    stored: dict[str, bytes], tmp_path: Path
) -> None:
    """The same command continues."""
    table_format = delta()
    removing = Dropped(0, (DroppedBranch("", "id", ROWS - 1, ()),), removing=True)
    for left in count():
        put(stored)
        write_dropped(TableAddress(HERE), removing)
        storage = Stopping(HERE)
        storage.left = left
        with suppress(RetryError):
            remove_branch(Versions.of(storage, table_format))
        assert read_by_delta_rs(tmp_path / str(left)) in ([*range(ROWS)], None), left
        is_gone = not Versions.of(MemoryStorage(HERE), table_format).numbers()
        text = drop()
        assert not text, (left, text)
        assert not MemoryStorage(HERE).anything_at_root()
        if is_gone:
            break
    assert left > ROWS


def test_a_damaged_table_that_no_drop_has_begun_with_stays(stored: dict[str, bytes]) -> None:
    newest = "_delta_log/00000000000000000004.json"
    put({path: data for path, data in stored.items() if path == newest or path.startswith("part-")})
    before = [*MemoryStorage(HERE).everything()]
    assert "commits that version 4 needs are gone" in drop()
    assert [*MemoryStorage(HERE).everything()] == before
