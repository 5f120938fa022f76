"""Tables on this machine are found without walking into what is no table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold.setup.tables import local_tables, newest_version
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from pathlib import Path


def make_table(folder: Path) -> str:
    (folder / "_versions").mkdir(parents=True)
    (folder / "_versions" / "18446744073709551608.manifest").touch()
    return canonical(folder)


def test_tables_below_the_roots_are_found(tmp_path: Path) -> None:
    expected = [make_table(tmp_path / "a"), make_table(tmp_path / "deep" / "er" / "b c")]
    make_table(tmp_path / "a" / "data" / "inside-a-table")
    make_table(tmp_path / ".hidden" / "c")
    make_table(tmp_path / "far" / "too" / "deep" / "d")
    assert list(local_tables([canonical(tmp_path), "s3://lake"])) == expected


def test_a_root_may_be_a_table_or_missing(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    assert list(local_tables([table, canonical(tmp_path / "none")])) == [table]


def test_the_newest_version_is_read_from_the_names(tmp_path: Path) -> None:
    assert newest_version(make_table(tmp_path / "t"), {}) == 7
    assert newest_version(canonical(tmp_path / "none"), {}) == 0
