"""What every store promises, asked of those without a server: local disk, memory, and obstore on memory."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from lakefold_table.storage.local import LocalStorage
from tests.contracts.behaviour import *  # noqa: F403 - the tests that all kinds of store have in common
from tests.contracts.stores import KINDS, LocalSite
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalSite]:
    site = LocalSite.new(request.param, tmp_path)
    yield site
    site.close()


def test_a_store_is_opened_by_the_scheme_of_its_uri(tmp_path: Path) -> None:
    local = open_storage(tmp_path / "a b%", {"aws_region": "nowhere"})
    assert isinstance(local, LocalStorage)
    assert local.uri == f"file://{tmp_path}/a b%25"
    local.put("x", [b"x"])
    assert (tmp_path / "a b%" / "x").read_bytes() == b"x"
    assert open_storage(local.uri).get("x") == b"x"
    memory = open_storage("memory://Opened/t/")
    assert isinstance(memory, MemoryStorage)
    assert memory.uri == "memory://opened/t"
    MemoryStorage.forget("opened")


@pytest.mark.parametrize(
    ("uri", "instead"),
    [
        ("hdfs://namenode:8020/t", "s3://, .*abfss://"),
        ("x://y/z", "s3://, .*abfss://"),
        ("dbfs://mnt/t", "s3://BUCKET/PATH"),
        ("wasbs://c@a.blob.core.windows.net/t", "write abfss://CONTAINER@ACCOUNT"),
        ("abfs://c@a.dfs.core.windows.net/t", "write abfss://CONTAINER@ACCOUNT"),
    ],
)
def test_a_scheme_without_a_store_is_said(uri: str, instead: str) -> None:
    with pytest.raises(InvalidError, match="not built in this release") as caught:
        open_storage(uri, {})
    assert re.search(instead, caught.value.hint)


def test_a_store_refuses_the_uri_of_another_kind() -> None:
    with pytest.raises(InvalidError):
        MemoryStorage("s3://lake/t")
    with pytest.raises(InvalidError):
        LocalStorage("s3://lake/t")


def test_exactly_one_of_many_that_replace_the_same_content_succeeds(site: LocalSite) -> None:
    """S3 promises it, too; s3proxy, on which our tests run, knows the condition and holds it in no race."""
    stores = [site.open() for _ in range(8)]
    with ThreadPoolExecutor(len(stores)) as pool:
        for number in range(site.rounds // 20):
            stores[0].put("a/b", [str(number).encode()])
            (read,) = {known.get_with_etag("a/b") for known in stores}
            begin = threading.Barrier(len(stores))

            def act(who: int, mark: str = read[1], begin: threading.Barrier = begin) -> bool:
                begin.wait(120)
                return stores[who].replace("a/b", mark, [b"by %d" % who])

            won = list(pool.map(act, range(len(stores))))
            assert won.count(True) == 1
            assert stores[0].get("a/b") == b"by %d" % won.index(True)
