"""The roots are checked when a committer starts: what can't be used is reported and checked again."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lakefold_committer.process import store_check as stores
from lakefold_committer.process.store_check import Roots
from lakefold_table.errors import InvalidError, LocationError
from lakefold_table.uri import canonical
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65_534


def test_roots_that_exist_cause_no_error(tmp_path: Path) -> None:
    roots = Roots([canonical(tmp_path), "memory://lake"])
    assert roots.trouble == f"root {canonical(tmp_path)}: it is being checked"
    roots.check()
    assert roots.trouble == ""


def test_a_folder_that_does_not_exist_or_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        Roots([canonical(tmp_path / "none" / "below")]).check()
    assert [line["root"] for line in logs] == [str(tmp_path / "none" / "below")]
    assert not (tmp_path / "none").exists()
    with pytest.raises(LocationError, match=r"file: Not a directory"):
        Roots([canonical(tmp_path / "file")]).check()


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """What is forbidden isn't forbidden to root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("as_nobody")
def test_a_folder_that_may_not_be_written() -> None:
    """Tables may lie in folders that were made for them."""
    with TemporaryDirectory() as folder:
        root, table = Path(folder), Path(folder) / "table"
        table.mkdir(0o555)
        root.chmod(0o555)
        for forbidden in (root, root / "none"):
            with pytest.raises(InvalidError, match="may write neither here nor in a folder below"):
                Roots([canonical(forbidden)]).check()
        table.chmod(0o755)
        Roots([canonical(root)]).check()
        root.chmod(0o000)
        with pytest.raises(InvalidError, match="Permission denied"):
            Roots([canonical(root)]).check()
        root.chmod(0o755)


def test_settings_of_which_no_store_can_be_made() -> None:
    for root, options in (("hdfs://lake", {}), ("s3://lake", {"aws_endpoint": "http://nowhere"})):
        with pytest.raises(InvalidError):
            Roots([root], options)


def test_a_root_that_comes_later_is_found_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE_SECONDS", 0.01)
    late = tmp_path / "late"
    late.write_text("something else")
    roots = Roots([canonical(late), canonical(tmp_path)])
    with roots.watching():
        until(lambda: "Not a directory" in roots.trouble, "the root that is none to be reported")
        until(lambda: len(roots._pending) == 1, "the other root to be found")
        assert roots.trouble.startswith(f"root {canonical(late)}: ")
        late.unlink()
        late.mkdir()
        until(lambda: not roots.trouble, "the root to be found")
