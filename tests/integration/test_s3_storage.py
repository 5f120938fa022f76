"""What every store promises, asked of S3: a real server on loopback."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.loop.name_check import NameCheck
from lakefold_committer.loop.unopened_tables import bucket_of
from lakefold_table.storage import open_storage
from lakefold_table.uri import parse_location
from tests.contracts.behaviour import *  # noqa: F403 - the tests that all kinds of store have in common
from tests.folding import FORMATS, append, entry
from tests.servers.s3 import BUCKET, S3Server
from tests.unit.test_partition import at

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage


@dataclass(frozen=True)
class Bucket:
    """A key prefix that no other test uses."""

    server: S3Server
    name: str
    cheap_size: bool = False
    tick_us: int = 1_000_000
    rounds: int = 20

    def open(self, below: str = "") -> Storage:
        return open_storage(f"s3://{BUCKET}/{self.name}/table{below}", self.server.options())


@pytest.fixture
def site(s3: S3Server) -> Bucket:
    return Bucket(s3, uuid.uuid4().hex)


def test_folders_are_listed_up_to_a_number_of_names(site: Bucket) -> None:
    store = site.open()
    for path in ("a/b/c", "a/d/e/f", "a/g", "h/i"):
        store.put(path, [b"x"])
    assert sorted(store.some_folders("a", 3) or ()) == ["b", "d"]
    assert sorted(store.some_folders("", 3) or ()) == ["a", "h"]
    assert store.some_folders("a", 2) is None
    assert store.some_folders("nowhere", 2) == []


def test_names_without_a_table_are_found_by_one_listing_of_their_folder(site: Bucket) -> None:
    """A name may begin as another does, and a URI may spell a name in two ways."""
    root = site.open().uri
    for name in ("table", "no-1-more", "k=v w"):
        site.open(f"/{name}").put("_versions/1.manifest", [b"x"])
    name_check = NameCheck(FORMATS, lambda _: None, storage_options=site.server.options())
    names = ["no-1", "table", "no-2", "k%3Dv w", "no-1-more", "no-3", "no-4"]
    sent = [entry(at(f"{root}/{name}", append()), offset) for offset, name in enumerate(names)]
    checked = name_check.check(sent)
    assert {names[offset] for offset in checked.refused} == {"no-1", "no-2", "no-3", "no-4"}
    assert bucket_of(parse_location(f"{root}/table")) in checked.existing
    assert name_check.may_exist(parse_location(f"{root}/k=v w"))
