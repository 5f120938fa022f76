"""The pages of the HTTP port are right at the moment they are asked for."""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from prometheus_client.core import GaugeMetricFamily

from lakefold_committer.observability.health import HealthServer
from lakefold_committer.observability.metrics import FoldStatus, Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def trouble() -> list[str]:
    """What the committer's trouble is: the last text."""
    return [""]


@pytest.fixture
def server(metrics: Metrics, trouble: list[str]) -> Iterator[HealthServer]:
    with HealthServer("127.0.0.1", 0, metrics, lambda: trouble[-1], lambda: "ready") as running:
        yield running


def page(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_readiness_is_what_it_is_now(server: HealthServer, trouble: list[str]) -> None:
    assert page(server, "/livez") == (200, "alive\n")
    assert page(server, "/readyz")[0] == 200
    trouble.append("the store is away")
    assert page(server, "/readyz") == (503, "the store is away\n")
    assert page(server, "/livez")[0] == 200


def test_gauges_are_looked_up_for_each_scrape(server: HealthServer, metrics: Metrics) -> None:
    parked = [0]
    metrics.watch(0, lambda: FoldStatus(0, parked_tables=parked[-1]), lambda: 0)
    assert 'lakefold_parked_tables{partition="0"} 0.0' in page(server, "/metrics")[1]
    parked.append(3)
    assert 'lakefold_parked_tables{partition="0"} 3.0' in page(server, "/metrics")[1]


def test_last_words_are_known_to_have_been_seen(server: HealthServer) -> None:
    seen = threading.Event()
    page(server, "/metrics")
    server.notify_when_scraped(seen)
    page(server, "/livez")
    assert not seen.is_set()
    page(server, "/metrics")
    assert seen.wait(120)


def test_metrics_count_as_seen_once_they_are_sent_whole(server: HealthServer, metrics: Metrics) -> None:
    """Otherwise the process would end while its last page is on its way."""
    metrics.registry.register(LongPage())
    seen = threading.Event()
    server.notify_when_scraped(seen)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    with closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert not seen.is_set()
        assert len(answer.read()) > LongPage.BYTES
    assert seen.wait(120)


class LongPage:
    """More text than the buffers of a connection hold."""

    BYTES = 2**25

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("long", "x" * self.BYTES)
