"""Tables on this machine are found without walking into what is not a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
from structlog.testing import capture_logs

from lakefold.setup.tables import local_tables, maintained_tables, newest_version
from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.uri import canonical
from tests.memory_storage import MemoryStorage

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


def test_only_tables_that_can_be_maintained_are_found_for_that(tmp_path: Path) -> None:
    local = make_table(tmp_path / "a")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    make_table(tmp_path / "delta" / "inside")
    storage = MemoryStorage("memory://lakes")
    for path in ("l/_versions/1.manifest", f"d/_delta_log/{0:020}.json", "d/inside/_versions/1.manifest"):
        storage.put(path, [b""])
    try:
        tables = list(maintained_tables([canonical(tmp_path), "memory://lakes"], {}))
    finally:
        MemoryStorage.forget("lakes")
    assert tables == [local, "memory://lakes/l"]
    assert list(local_tables([canonical(tmp_path)])) == [local, canonical(tmp_path / "delta")]


def test_a_store_that_lists_no_folders_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefold.setup.tables.open_storage", lambda *_: object())
    with pytest.raises(InvalidError) as raised:
        list(maintained_tables(["s3://lake"], {}))
    assert raised.value.where == "roots"


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
