"""A tail of a table on S3: a request for each version, none of them a listing, and faults at their place.

Promise: late-files-unread (docs/operations/promises.md).
"""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_reader.consumers.consumers import consumers
from lakefold_reader.consumers.expire_versions import clean_up, plan
from lakefold_reader.formats import open_source
from lakefold_reader.tail.tail import tail
from lakefold_reader.tail.wakeup import Pace
from lakefold_table.errors import RetryError
from lakefold_table.storage import open_storage
from tests.proposals import rows
from tests.servers.fault_proxy import Answer, FaultProxy, Request
from tests.servers.s3 import BUCKET
from tests.tables import Folded, fragments_only

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

VERSIONS = 100


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/t"


@pytest.fixture
def table(s3: S3Server, uri: str) -> Folded:
    """A table at version 1, written past the proxy."""
    return Folded(open_storage(uri, s3.options()))


def grow(table: Folded, versions: int) -> None:
    for _ in range(versions):
        table.fold(fragments_only(table.uri, 1))


def asked(proxy: FaultProxy) -> Counter[str]:
    return Counter(request.method for request in proxy.requests)


def test_catching_up_is_a_request_for_each_version(proxy: FaultProxy, table: Folded) -> None:
    grow(table, VERSIONS)
    begun = tail(table.uri, 1, storage_options=proxy.options())
    assert [change.version for change in begun] == [*range(2, VERSIONS + 2)]
    manifests = [request.path for request in proxy.requests if request.method == "GET"]
    # The version that it begins behind, each of the others, and the version that isn't there yet. That is
    # requested before the last version is returned, and after.
    assert len(set(manifests)) == VERSIONS + 2
    assert len(manifests) == VERSIONS + 3
    assert asked(proxy)["LIST"] == 1
    assert asked(proxy).total() <= VERSIONS * 1.05


def test_following_lists_nothing_and_asks_by_name(proxy: FaultProxy, table: Folded) -> None:
    begun = tail(table.uri, storage_options=proxy.options(), pace=Pace(longest=0.02, clock=lambda: 0.0))
    proxy.requests.clear()
    for _ in range(10):
        assert begun.step() == []
        grow(table, 1)
        assert [change.rows for change in begun.step(max_versions=1)] == [1]
    assert asked(proxy) == {"GET": 20}


def test_a_fault_comes_at_its_place(proxy: FaultProxy, table: Folded) -> None:
    grow(table, 20)
    begun = tail(table.uri, 1, storage_options=proxy.options(client_max_retries="0"))
    broken = table.versions.path(9)

    def is_broken(request: Request) -> bool:
        return request.path.endswith(broken)

    proxy.plan(Answer(503, "SlowDown"), is_broken, times=1)
    assert [change.version for change in begun.step()] == [*range(2, 9)]
    assert [change.version for change in begun.step()] == [*range(9, 22)]
    proxy.plan(Answer(500), times=1)
    with pytest.raises(RetryError):
        begun.step()
    assert begun.step() == []


def test_versions_of_pylance_are_followed_the_same_way(s3: S3Server, proxy: FaultProxy, uri: str) -> None:
    options = s3.options()
    for number in range(6):
        mode = "append" if number else "create"
        lance.write_dataset(rows([number]), uri, mode=mode, storage_options=options)
    begun = tail(uri, 1, storage_options=proxy.options())
    proxy.requests.clear()
    changes = begun.step()
    assert asked(proxy) == {"GET": 6}
    assert [change.inserted()["id"].to_pylist() for change in changes] == [[1], [2], [3], [4], [5]]


def test_a_consumer_on_s3(proxy: FaultProxy, table: Folded) -> None:
    grow(table, 5)
    options = proxy.options()
    begun = tail(table.uri, "earliest", storage_options=options, consumer="nightly")
    begun.step(max_versions=3)
    proxy.requests.clear()
    begun.commit()
    # Versions that the step began to read beforehand may still be asked for in between.
    beside = [
        request.method
        for request in proxy.requests
        if request.method != "GET" or "/_versions/" not in request.path
    ]
    assert Counter(beside) == {"GET": 2, "PUT": 2, "HEAD": 1}
    assert [consumer.version for consumer in consumers(table.uri, storage_options=options)] == [3]
    again = tail(table.uri, storage_options=options, consumer="nightly")
    assert [change.version for change in again] == [4, 5, 6]


def test_what_a_consumer_has_not_read_stays_on_s3(s3: S3Server, uri: str) -> None:
    options = s3.options()
    for number in range(6):
        mode = "append" if number else "create"
        lance.write_dataset(rows([number]), uri, mode=mode, storage_options=options)
    tail(uri, 4, storage_options=options, consumer="nightly")
    source = open_source(uri, options)
    with pytest.raises(OSError, match="lakefold-consumer-nightly"):
        lance.dataset(uri, storage_options=options).cleanup_old_versions(timedelta(0))
    assert clean_up(source, plan(source, timedelta(0))).versions == 3
    assert source.versions.numbers() == [4, 5, 6]
    changes = tail(uri, storage_options=options, consumer="nightly")
    assert [change.inserted()["id"].to_pylist() for change in changes] == [[4], [5]]
