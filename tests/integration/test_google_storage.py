"""What every store promises, asked of `gs://`: Google's words, and a real server that decides the races.

Promises: forked-processes (docs/operations/promises.md).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_table.entry import Committed
from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from lakefold_table.storage.base import DoubtfulPutError
from tests.contracts.behaviour import *  # noqa: F403 - the tests that all kinds of store have in common
from tests.delta_logs.proposed_table import ProposedTable, take_turns_with_delta_rs
from tests.proposals import append, rows
from tests.servers.fault_proxy import LoseAnswer
from tests.servers.google import GoogleFront
from tests.servers.s3 import BUCKET
from tests.tables import Folded
from tests.unit.test_forked_readers import in_fork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.storage.base import Storage
    from tests.servers.s3 import S3Server

VERSIONS = 4


@dataclass(frozen=True)
class GoogleSite:
    """A folder of the bucket that no other test uses."""

    uri: str
    options: dict[str, str]
    cheap_size: bool = False
    tick_us: int = 1_000_000
    rounds: int = 20

    def open(self, below: str = "") -> Storage:
        """A store whose root is this place, or a folder below it."""
        return open_storage(f"{self.uri}{below}", self.options)


@pytest.fixture(scope="module")
def google(s3: S3Server) -> Iterator[GoogleFront]:
    with GoogleFront(s3.port) as front:
        yield front


@pytest.fixture
def site(google: GoogleFront, *, all_faults: bool) -> GoogleSite:
    uri = f"gs://{BUCKET}/{uuid.uuid4().hex}/lake/table"
    return GoogleSite(uri, google.google_options, rounds=100 if all_faults else 20)


def test_a_put_whose_answer_was_lost_is_doubtful_and_sent_once(google: GoogleFront, site: GoogleSite) -> None:
    store = site.open()
    google.forget()
    google.plan(LoseAnswer())
    with pytest.raises(DoubtfulPutError):
        store.put_if_absent("v/1", [b"x"])
    assert [request.method for request in google.requests] == ["PUT"]
    assert store.get("v/1") == b"x"


def test_pylance_and_we_write_one_table_by_turns(site: GoogleSite) -> None:
    options = site.options
    table = Folded(site.open())
    for number in range(VERSIONS):
        made = append(table.uri, rows([number]), table.owned.table.version, storage_options=options)
        assert isinstance(table.fold(made)[0].result, Committed)
    theirs = lance.dataset(table.uri, storage_options=options)
    theirs.validate()
    theirs.insert(rows([100]))
    table.take_over()
    table.fold(append(table.uri, rows([101]), VERSIONS + 2, storage_options=options))
    ours = lakefold.open(table.uri, storage_options=options)
    assert sorted(ours.to_arrow()["id"].to_pylist()) == [*range(VERSIONS), 100, 101]
    assert [len(change.inserted()) for change in lakefold.tail(table.uri, 1, storage_options=options)] == [
        1
    ] * 6


def test_delta_rs_and_we_write_one_table_by_turns(site: GoogleSite) -> None:
    take_turns_with_delta_rs(ProposedTable(site.uri, site.options))


def test_a_forked_process_is_told_at_once_that_it_can_t_send_requests(site: GoogleSite) -> None:
    """Obstore's threads aren't there, whichever object sends the request: it would wait for ever."""
    storage = site.open()
    storage.put("a", [b"x"])

    def is_told() -> bool:
        for each in (storage, site.open("/other")):
            with pytest.raises(InvalidError, match="before this process was forked") as caught:
                each.put("b", [b"y"])
            assert "before the fork" in caught.value.hint
            with pytest.raises(InvalidError, match="before this process was forked"):
                each.put_if_absent("c", [b"y"])
        return True

    assert in_fork(is_told) == 0
    assert storage.get("a") == b"x"
