"""Tables on this machine are found without walking into what is not a table."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from structlog.testing import capture_logs

from lakefold.setup.tables import local_tables, maintained_tables, newest_version
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.nesting import PARTS
from lakefold_table.uri import canonical
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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


def test_tables_in_buckets_are_found_as_in_folders(tmp_path: Path) -> None:
    local = make_table(tmp_path / "a")
    for path in ("b", "deep/er/c", "b/data/inside-a-table", ".hidden/d", "far/too/deep/e", "no/table.txt"):
        MemoryStorage("memory://tables").put(f"{path}/_versions/1.manifest", [b""])
    try:
        tables = list(maintained_tables([canonical(tmp_path), "memory://tables", "memory://tables/b"], {}))
    finally:
        MemoryStorage.forget("tables")
    names = ["b", "no/table.txt", "deep/er/c", "b"]
    assert tables == [local, *(f"memory://tables/{name}" for name in names)]


def test_tables_of_both_formats_are_maintained(tmp_path: Path) -> None:
    local = make_table(tmp_path / "a")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / f"{0:020}.json").touch()
    make_table(tmp_path / "delta" / "inside")
    storage = MemoryStorage("memory://lakes")
    for path in ("l/_versions/1.manifest", f"d/_delta_log/{0:020}.json", "d/inside/_versions/1.manifest"):
        storage.put(path, [b""])
    try:
        tables = list(maintained_tables([canonical(tmp_path), "memory://lakes"], {}))
    finally:
        MemoryStorage.forget("lakes")
    both = [local, canonical(tmp_path / "delta")]
    assert tables[:2] == list(local_tables([canonical(tmp_path)])) == both
    assert {*tables[2:]} == {"memory://lakes/d", "memory://lakes/l"}


@pytest.mark.parametrize("name", [*sorted(PARTS), "data", "tree"])
def test_a_folder_that_is_called_like_a_part_of_a_table_hides_no_table(name: str, tmp_path: Path) -> None:
    """It is what a proposal left that created a table of this name, below the root or deeper."""
    expected = [make_table(tmp_path / each) for each in ("a", "deep/b")]
    storage = MemoryStorage("memory://parts")
    for path in ("a", "deep/b", name, f"deep/{name}"):
        storage.put(f"{path}/_versions/1.manifest", [b""])
    make_table(tmp_path / name)
    make_table(tmp_path / "deep" / name)
    try:
        local = {*local_tables([canonical(tmp_path)])}
        stored = {*maintained_tables(["memory://parts"], {})}
    finally:
        MemoryStorage.forget("parts")
    assert local >= {*expected}
    assert stored >= {"memory://parts/a", "memory://parts/deep/b"}
    assert canonical(tmp_path) not in local


@pytest.mark.parametrize("name", [b"not-utf-8-\xff", b"line\nfeed", b"closed"])
def test_a_folder_that_can_not_be_a_table_hides_no_table(name: bytes, tmp_path: Path) -> None:
    expected = [make_table(tmp_path / each) for each in ("a", "z")]
    folder = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118 - a name that is no text
    os.makedirs(folder + b"/_versions")  # noqa: PTH103 - as above
    with capture_logs() as logs, closed(folder if name == b"closed" else None):
        assert {*local_tables([canonical(tmp_path)])} >= {*expected}
    if name != b"closed":
        assert [log["event"] for log in logs] == ["a folder was not searched for tables"]


@contextmanager
def closed(folder: bytes | None) -> Iterator[None]:
    """Nobody but root may read the folder within."""
    if folder is None:
        yield
        return
    Path(os.fsdecode(folder)).chmod(0)
    try:
        yield
    finally:
        Path(os.fsdecode(folder)).chmod(0o755)


def test_a_store_that_lists_no_folders_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(MemoryStorage):
        def folders(self, prefix: str) -> Sequence[str]:
            raise InvalidError("listing is not allowed", where=prefix)

    monkeypatch.setattr("lakefold.setup.tables.open_storage", lambda *_: Refusing("memory://refusing/t"))
    with capture_logs() as logs:
        assert list(maintained_tables(["s3://lake"], {})) == []
    assert [(log["event"], log["folder"]) for log in logs] == [
        ("a folder was not searched for tables", "s3://lake")
    ]


def test_a_root_that_can_not_be_listed_hides_no_tables_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> NoReturn:
        raise RetryError("it doesn't answer", where="s3://lake")

    monkeypatch.setattr("lakefold.setup.tables.open_storage", away)
    table = make_table(tmp_path / "t")
    tables = maintained_tables(["s3://lake", canonical(tmp_path)], {})
    assert next(tables) == table
    with pytest.raises(RetryError):
        next(tables)


def test_a_search_that_ends_early_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefold.setup.tables._FOLDERS", 3)
    names = [f"t{number}" for number in range(4)]
    tables = [make_table(tmp_path / name) for name in names]
    for name in names:
        MemoryStorage("memory://tables").put(f"{name}/_versions/1.manifest", [b""])
    with capture_logs() as logs:
        assert list(local_tables([canonical(tmp_path)])) == tables[:2]
        assert logs == []
        assert list(maintained_tables([canonical(tmp_path), "memory://tables"], {})) == [
            *tables[:2],
            "memory://tables/t0",
            "memory://tables/t1",
        ]
    MemoryStorage.forget("tables")
    event = "not all folders were searched for tables"
    assert [(log["event"], log["root"]) for log in logs] == [
        (event, canonical(tmp_path)),
        (event, "memory://tables"),
    ]


def test_a_root_may_be_a_table_or_missing(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    assert list(local_tables([table, canonical(tmp_path / "none")])) == [table]


def test_the_newest_version_is_read_from_the_names(tmp_path: Path) -> None:
    assert newest_version(make_table(tmp_path / "t"), {}) == ("lance", 7)
    (tmp_path / "d/_delta_log").mkdir(parents=True)
    (tmp_path / f"d/_delta_log/{0:020}.json").write_text("{}")
    assert newest_version(canonical(tmp_path / "d"), {}) == ("delta", 0)
    assert newest_version(canonical(tmp_path / "none"), {}) == ("", 0)
