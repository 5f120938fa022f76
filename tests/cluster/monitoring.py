"""Prometheus scrapes the pods with the rules and answers the queries that Lakefold ships."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from tests.cluster.cluster import NAMESPACE
from tests.cluster.image import ROOT
from tests.cluster.load import TOPICS
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

_PORT: Final = 9095
_COMPONENT: Final = "app.kubernetes.io/component"
_URL: Final = f"http://127.0.0.1:{_PORT}/api/v1"
_VARIABLES: Final = {"$__rate_interval": "30s", "$namespace": NAMESPACE, "$job": ".*"}
_UNSEEN: Final = (
    "lakefold_sink_",
    "lakefold_outcomes_passed_over_total",
    "lakefold_maintenance_unindexed_rows",
)
"""Metrics of what doesn't happen here: no Spark writes, nobody forges outcomes, no table has an index."""
_ALERT: Final = "LakefoldHeldBack"
_TOOK_S: Final = 120
_OPEN_MS: Final = 180_000


def watched(cluster: Cluster) -> None:
    """Has Prometheus scrape committers and maintainer, answer the dashboard, and fire and clear an alert."""
    with _prometheus(cluster):
        until(lambda: _targets() >= 3, "three pods to be scraped", seconds=60, every=0.5)
        with _open_transaction(cluster.broker.bootstrap_servers):
            until(lambda: _ALERT in _firing(), f"{_ALERT} to fire", seconds=_TOOK_S, every=0.5)
        until(lambda: _ALERT not in _firing(), f"{_ALERT} to clear", seconds=_TOOK_S, every=0.5)
        faults = [rule["name"] for rule in _rules() if rule["health"] != "ok"]
        assert faults == [], faults
        unanswered = [text for text in _queries() if not _is_answered(text)]
        assert unanswered == [], "\n".join(unanswered)


@contextmanager
def _prometheus(cluster: Cluster) -> Iterator[None]:
    """Prometheus with the shipped rules, which scrapes the pods that run now."""
    folder = cluster.folder / "prometheus"
    folder.mkdir(exist_ok=True)
    (folder / "pods.json").write_text(json.dumps(_discovered(cluster)))
    (folder / "prometheus.json").write_text(json.dumps(_settings(folder)))
    command = ["prometheus", f"--config.file={folder / 'prometheus.json'}", f"--storage.tsdb.path={folder}"]
    command.append(f"--web.listen-address=127.0.0.1:{_PORT}")
    with (cluster.logs / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or _answers(), "Prometheus", seconds=60, every=0.2)
        assert process.poll() is None, f"Prometheus ended: {cluster.logs / 'prometheus.log'}"
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _settings(folder: Path) -> dict[str, Any]:
    """Prometheus reads the pods from a file, since Debian's is built without discovery by Kubernetes' API."""
    discovered = [{"files": [str(folder / "pods.json")], "refresh_interval": "1s"}]
    return {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [str(ROOT / "deploy/alerts/lakefold.yaml")],
        "scrape_configs": [{"job_name": "pods", "file_sd_configs": discovered}],
    }


def _discovered(cluster: Cluster) -> list[dict[str, Any]]:
    """Committers and maintainer at the ports that their pods name, labelled as by the operator."""
    selector = f"{_COMPONENT} in (committer,maintainer)"
    listed = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "pods", "-l", selector, "-o", "json"))
    groups = []
    for pod in listed["items"]:
        ports = pod["spec"]["containers"][0]["ports"]
        port = next(each["containerPort"] for each in ports if each["name"] == "http")
        labels = {"namespace": NAMESPACE, "job": pod["metadata"]["labels"][_COMPONENT]}
        groups.append({"targets": [f"{pod['status']['podIP']}:{port}"], "labels": labels})
    return groups


@contextmanager
def _open_transaction(bootstrap: str) -> Iterator[None]:
    """A transaction of another producer, which holds back the outcomes of a partition until it is aborted."""
    options = {
        "bootstrap.servers": bootstrap,
        "transactional.id": "forgotten",
        "transaction.timeout.ms": _OPEN_MS,
    }
    producer = Producer(options)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPICS.outcomes, b"not committed", partition=0)
    producer.flush(30)
    try:
        yield
    finally:
        producer.abort_transaction(30)


def _queries() -> Iterator[str]:
    """The queries of the dashboard's panels."""
    dashboard = json.loads((ROOT / "deploy/dashboards/lakefold.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for variable, value in _VARIABLES.items():
                text = text.replace(variable, value)
            yield text


def _is_answered(text: str) -> bool:
    """Returns whether the query has a result, which those about what doesn't happen here need not have."""
    return any(metric in text for metric in _UNSEEN) or bool(_ask("query", query=text)["result"])


def _ask(page: str, **parameters: str) -> Any:  # noqa: ANN401 - what Prometheus returns
    address = f"{_URL}/{page}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - an address made here
        document = json.load(answer)
    assert document["status"] == "success", document
    return document["data"]


def _answers() -> bool:
    try:
        _ask("status/buildinfo")
    except OSError:
        return False
    return True


def _targets() -> int:
    return sum(each["health"] == "up" for each in _ask("targets")["activeTargets"])


def _firing() -> set[str]:
    alerts = _ask("alerts")["alerts"]
    return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _ask("rules")["groups"] for rule in group["rules"]]
