"""Prometheus scrapes the pods with the rules and answers the queries that Lakefold ships.

The alert that is seen firing needs a transaction that has been open for a minute. So a thread waits for it
while other scenarios run, with topics that the load doesn't use.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import urllib.parse
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from tests.cluster.cluster import NAMESPACE
from tests.cluster.image import ROOT
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
_FIRES_S: Final = 120
_OPEN_MS: Final = 180_000


class Prometheus:
    """Prometheus with the shipped rules; `scrape` says which pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = cluster.folder / "prometheus"
        self._folder.mkdir(exist_ok=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Starts it, and stops it at the end."""
        folder, log_file = self._folder, self._cluster.logs / "prometheus.log"
        (folder / "prometheus.json").write_text(json.dumps(_settings(folder)))
        command = ["prometheus", f"--config.file={folder / 'prometheus.json'}"]
        command += [f"--storage.tsdb.path={folder}", f"--web.listen-address=127.0.0.1:{_PORT}"]
        with log_file.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(lambda: process.poll() is not None or _answers(), "Prometheus", seconds=60, every=0.2)
            assert process.poll() is None, f"Prometheus ended: {log_file}"
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

    def scrape(self, namespace: str, pods: int) -> None:
        """Has it scrape the pods that run in this namespace now, at least so many, and no others."""
        part = self._folder / "pods.part"
        part.write_text(json.dumps(_discovered(self._cluster, namespace)))
        part.rename(self._folder / "pods.json")
        until(lambda: _targets(namespace) >= pods, f"{pods} pods to be scraped", seconds=60, every=0.5)

    def check_dashboard(self) -> None:
        """Requires that no rule fails, and that each query of the dashboard gets a result."""
        unanswered: list[str] = []

        def answered() -> bool:
            unanswered[:] = [text for text in _queries() if not _is_answered(text)]
            return not unanswered

        # A rate has a result after two scrapes.
        with suppress(TimeoutError):
            until(answered, "a result of each query", seconds=60, every=1)
        assert unanswered == [], "\n".join(unanswered)
        faults = [rule["name"] for rule in _rules() if rule["health"] != "ok"]
        assert faults == [], faults


class AlertWatch:
    """Leaves a transaction on a topic open until an alert fires, and aborts it until the alert clears."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="alert", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until the alert has fired and cleared. Raises `TimeoutError` if it doesn't."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with _open_transaction(self._bootstrap, self._topic):
                until(lambda: _ALERT in _firing(), f"{_ALERT} to fire", seconds=_FIRES_S, every=0.5)
            until(lambda: _ALERT not in _firing(), f"{_ALERT} to clear", seconds=_FIRES_S, every=0.5)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = error


def _settings(folder: Path) -> dict[str, Any]:
    """Prometheus reads the pods from a file, since Debian's is built without discovery by Kubernetes' API."""
    discovered = [{"files": [str(folder / "pods.json")], "refresh_interval": "1s"}]
    return {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [str(ROOT / "deploy/alerts/lakefold.yaml")],
        "scrape_configs": [{"job_name": "pods", "file_sd_configs": discovered}],
    }


def _discovered(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Committers and maintainer at the ports that their pods name, labelled as by the operator."""
    selector = f"{_COMPONENT} in (committer,maintainer)"
    listed = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))
    groups = []
    for pod in listed["items"]:
        ports = pod["spec"]["containers"][0]["ports"]
        port = next(each["containerPort"] for each in ports if each["name"] == "http")
        labels = {"namespace": namespace, "job": pod["metadata"]["labels"][_COMPONENT]}
        groups.append({"targets": [f"{pod['status']['podIP']}:{port}"], "labels": labels})
    return groups


@contextmanager
def _open_transaction(bootstrap: str, topic: str) -> Iterator[None]:
    """A transaction of another producer, which holds back the outcomes of a partition until it is aborted."""
    options = {
        "bootstrap.servers": bootstrap,
        "transactional.id": "forgotten",
        "transaction.timeout.ms": _OPEN_MS,
    }
    producer = Producer(options)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"not committed", partition=0)
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


def _targets(namespace: str) -> int:
    targets = _ask("targets")["activeTargets"]
    return sum(each["health"] == "up" and each["labels"]["namespace"] == namespace for each in targets)


def _firing() -> set[str]:
    alerts = _ask("alerts")["alerts"]
    return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _ask("rules")["groups"] for rule in group["rules"]]
