"""A table or a branch that was removed and created again under its name: readers of the old one get an error.

Promise: made-anew (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold import cli
from lakefold_reader.tail import last_read
from lakefold_reader.versions.cursor import Cursor
from lakefold_table.storage import open_storage
from tests.queries import Query
from tests.tables import Folded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 4
"""How many versions a table has after its first one."""


def write(uri: str, first: int, count: int = ROWS) -> None:
    """A table without marks, with a row in each version."""
    lance.write_dataset(pa.table({"id": [first]}), uri)
    append(uri, first + 1, count)


def append(uri: str, first: int, count: int = 1) -> None:
    for number in range(first, first + count):
        lance.write_dataset(pa.table({"id": [number]}), uri, mode="append")


def remade(uri: str, count: int = ROWS) -> None:
    """Another table under the same name, with as many versions."""
    shutil.rmtree(uri)
    write(uri, 100, count)


def branch(uri: str, first: int, at: int = 1, count: int = ROWS) -> str:
    """A branch of the table, with a row in each of its own versions; its root."""
    path: str = lance.dataset(uri).create_branch("side", at).uri
    append(path, first, count)
    return path


def branched_anew(uri: str, at: int = 2) -> str:
    """Another branch of the same name, made from a later version of the table."""
    lance.dataset(uri).branches.delete("side")
    return branch(uri, 200, at)


def clean_up(uri: str) -> None:
    """Removes all versions but the newest."""
    lance.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)


@pytest.fixture(autouse=True)
def _no_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick machine makes such a table again within the time in which a reader counts on the same one."""
    monkeypatch.setattr(last_read, "AT_ONCE_HERE_S", 0.0)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    write(uri, 0)
    return uri


def cursor_at(uri: str, version: int, **more: str) -> str:
    """The cursor of a reader that has seen this version."""
    (change, *_) = lakefold.tail(uri, version - 1, **more)  # type: ignore[arg-type]
    assert change.version == version
    return str(change.cursor)


@pytest.mark.parametrize("version", range(2, 2 + ROWS))
def test_a_cursor_of_a_branch_that_was_created_again(uri: str, version: int) -> None:
    """Both if the new table has the version that was read, and if it has none of its number."""
    branch(uri, 50)
    cursor = cursor_at(uri, version, branch="side")
    branched_anew(uri)
    with pytest.raises(
        lakefold.MadeAnewError, match=r"branch side was created again|has no version"
    ) as caught:
        lakefold.tail(uri, cursor, branch="side")
    assert "earliest" in caught.value.hint


def test_the_branch_s_identifier_decides_if_its_versions_were_cleaned_up(uri: str) -> None:
    branch(uri, 50)
    cursor = cursor_at(uri, 4, branch="side")
    path = branched_anew(uri, at=3)
    append(path, 300)
    clean_up(path)
    append(path, 400)
    newest = lance.dataset(path).version
    behind = str(Cursor.parse(cursor)).replace(":4:", f":{newest - 2}:")
    with pytest.raises(lakefold.MadeAnewError, match="branch side was created again"):
        lakefold.tail(uri, behind, branch="side")


@pytest.mark.parametrize("version", range(1, 2 + ROWS))
def test_a_cursor_of_a_table_without_marks_that_was_created_again(uri: str, version: int) -> None:
    cursor = cursor_at(uri, version)
    remade(uri)
    with pytest.raises(lakefold.MadeAnewError, match="the table was created again"):
        lakefold.tail(uri, cursor)


def test_a_cursor_of_an_older_release_goes_on(uri: str) -> None:
    cursor = Cursor.parse(cursor_at(uri, 3))
    assert [change.version for change in lakefold.tail(uri, f"lf1:::{cursor.version}")] == [4, 5]


@pytest.mark.parametrize("seen", range(1, 1 + ROWS))
def test_a_tail_that_runs_while_its_table_is_created_again(uri: str, seen: int) -> None:
    """It has the version seen and waits, or polls for the next version later."""
    with lakefold.tail(uri, seen - 1) as tail:
        assert next(tail).version == seen
        tail.close()
        remade(uri)
        with pytest.raises(lakefold.MadeAnewError, match="the table was created again"):
            next(tail)


def test_a_tail_whose_table_had_marks_and_whose_new_one_has_none(tmp_path: Path) -> None:
    table = Folded(open_storage(f"file://{tmp_path}/t"))
    table.append_ids([1])
    path = str(tmp_path / "t")
    with lakefold.tail(path, 1) as tail:
        assert next(tail).version == 2
        remade(path)
        with pytest.raises(lakefold.MadeAnewError):
            next(tail)


def test_a_tail_that_runs_while_its_branch_is_created_again(uri: str) -> None:
    branch(uri, 50)
    newest = 1 + ROWS
    with lakefold.tail(uri, newest - 1, branch="side") as tail:
        assert next(tail).version == newest
        branched_anew(uri)
        with pytest.raises(lakefold.MadeAnewError, match="branch side was created again"):
            next(tail)


def test_a_consumer_gets_an_error_and_continues_after_it_is_set(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    branch(uri, 50)
    with lakefold.tail(uri, "earliest", branch="side", consumer="nightly") as tail:
        tail.step()
        tail.commit()
    lance.dataset(uri).tags.delete("lakefold-consumer-nightly")
    branched_anew(uri)
    with pytest.raises(lakefold.MadeAnewError) as caught:
        lakefold.tail(uri, branch="side", consumer="nightly")
    assert "lakefold consumers TABLE --set nightly earliest" in caught.value.hint
    assert cli.run(["consumers", uri, "--branch", "side", "--set", "nightly", "earliest"]) == 0
    capsys.readouterr()
    tail = lakefold.tail(uri, branch="side", consumer="nightly")
    values = [row for change in tail for row in change.inserted()["id"].to_pylist()]
    assert sorted(values) == [0, 1, *range(200, 200 + ROWS)]


@pytest.mark.parametrize(("batches", "restarted"), [(0, False), (0, True), (1, True), (2, False), (2, True)])
def test_a_checkpoint_of_a_table_without_marks(
    uri: str,
    batches: int,
    restarted: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Within the content, at its end, and after the changes that follow."""
    query = Query(uri, maxRowsPerTrigger=3)
    for _ in range(batches):
        assert query.batch()
    if batches == 0:
        query.offsets.append(query.reader.initialOffset())
    remade(uri, ROWS + 2)
    if restarted:
        query.start()
    with pytest.raises(lakefold.MadeAnewError, match="the table was created again") as caught:
        query.batch()
    assert "another checkpoint" in caught.value.hint


def test_a_checkpoint_of_a_branch(uri: str) -> None:
    branch(uri, 50)
    query = Query(uri, branch="side")
    query.ids()
    branched_anew(uri)
    query.start()
    with pytest.raises(lakefold.MadeAnewError, match="branch side was created again"):
        query.ids()


def same_with_others_at_work(uri: str) -> None:
    append(uri, 60)
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri, version=2).restore()


def nothing(uri: str) -> None:
    """Leaves the table alone."""
    del uri


@pytest.mark.parametrize("meanwhile", [same_with_others_at_work, nothing])
def test_a_table_that_only_went_on_is_the_same(uri: str, meanwhile: Callable[[str], None]) -> None:
    path = branch(uri, 50)
    for where, more in ((uri, {}), (path, {}), (uri, {"branch": "side"})):
        tail = lakefold.tail(where, 2, **more)  # type: ignore[arg-type]
        seen = list(tail)
        meanwhile(where)
        later = [change.version for change in tail]
        again = lakefold.tail(where, seen[0].cursor, **more)  # type: ignore[arg-type]
        assert [change.version for change in again] == [change.version for change in seen[1:]] + later


def test_a_copy_of_the_table_is_the_same(uri: str, tmp_path: Path) -> None:
    cursor = cursor_at(uri, 3)
    shutil.copytree(uri, tmp_path / "copy")
    shutil.rmtree(uri)
    (tmp_path / "copy").rename(uri)
    assert [change.version for change in lakefold.tail(uri, cursor)] == [4, 5]
