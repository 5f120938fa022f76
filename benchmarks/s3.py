"""How many requests a table on S3 costs: for a published version, and for a version that a reader reads.

A real server on loopback, and a proxy before it that counts. What counts is the number of requests: they cost
money and a round trip each, on any S3, while a loopback shows nothing of their duration.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from benchmarks.tail import Written
from benchmarks.versions import Clocked
from lakefold_reader.formats import open_source
from lakefold_reader.tail.tail import tail_of
from lakefold_table.storage import open_storage
from tests.proposals import creation
from tests.servers.fault_proxy import FaultProxy
from tests.servers.s3 import BUCKET, S3Server
from tests.tables import fragments_only

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

VERSIONS = 1_000
SECOND_MS = 1_000


def measure(root: Path, share: int = 1) -> dict[str, float]:
    """Publishes versions, follows some of them as they come, and catches up with all of them."""
    versions = VERSIONS // share
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}/t"
    with S3Server(root) as server, FaultProxy(server.port) as proxy:
        published = publish(proxy, uri, versions)
        followed = follow(server, proxy, uri, versions // 10)
        behind = catch_up(server, proxy, uri)
    return published | followed | behind


def publish(proxy: FaultProxy, uri: str, versions: int) -> dict[str, float]:
    """Requests for each version of an Append, in steady state."""
    table = Written(open_storage(uri, proxy.options()))
    table.fold(creation(uri))
    table.fold(fragments_only(uri, 1))
    with proxy.counted() as counts:
        for _ in range(versions):
            table.fold(fragments_only(uri, 1))
    return _each("published", counts, versions)


def follow(server: S3Server, proxy: FaultProxy, uri: str, versions: int) -> dict[str, float]:
    """Requests for each version that a reader is waiting for; it looks once before it is there."""
    table = Written(open_storage(uri, server.options()), first=VERSIONS * 2)
    begun = tail_of(open_source(uri, proxy.options()))
    with proxy.counted() as counts:
        for _ in range(versions):
            begun.step()
            table.fold(fragments_only(uri, 1))
            if len(begun.step(max_versions=1)) != 1:
                raise AssertionError("a version that was published was not handed out")
    return _each("followed", counts, versions)


def catch_up(server: S3Server, proxy: FaultProxy, uri: str) -> dict[str, float]:
    """Requests for each of many versions behind, counted; and how fast without the proxy between."""
    with proxy.counted() as counts:
        number = sum(1 for _ in tail_of(open_source(uri, proxy.options()), 1))
    clocked = Clocked()
    source = open_source(uri, server.options())
    if clocked.step(lambda: sum(1 for _ in tail_of(source, 1))) != number:
        raise AssertionError("the same versions, read again, are not as many")
    speed = number / clocked.wall[0] * SECOND_MS
    return {**_each("caught up", counts, number), "caught up: versions/s": speed}


def _each(what: str, counts: Counter[str], versions: int) -> dict[str, float]:
    return {
        f"{what}: versions": float(versions),
        f"{what}: requests a version": counts.total() / versions,
        f"{what}: listings": float(counts["LIST"]),
    }
