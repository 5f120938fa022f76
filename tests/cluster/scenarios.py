"""What happens to the committers while the load runs: each scenario ends when the cluster is whole again.

A scenario that takes long in the background is a generator: what comes after its `yield` is run at the end.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

import lance

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.write.producer import Proposer
from tests.cluster.bounds import not_spread
from tests.cluster.cluster import NAMESPACE
from tests.cluster.image import ROOT
from tests.cluster.load import PARTITIONS, TOPICS
from tests.cluster.machine import TABLES, cut_off
from tests.cluster.monitoring import AlertWatch, Prometheus
from tests.cluster.paged import paged
from tests.cluster.secured import on_s3_with_password_then_certificate
from tests.cluster.verbs import every_verb
from tests.proposals import creation
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster

CHART: Final = ROOT / "deploy/helm/lakefold"
MAIN: Final = "deployment/lakefold-main"
CUT_OFF_S: Final = 20.0
BROKER_AWAY_S: Final = 10.0
DRAINING: Final = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
NODES: Final = ("n1", "n2")
OTHER: Final = "kustomized"
"""The namespace of the installation by kustomize."""


def values(bootstrap: str) -> dict[str, object]:
    """Returns the values of the chart: brokers, topics and the volume's path; all else are its defaults."""
    return {
        "kafka": {"bootstrapServers": bootstrap},
        "topics": {
            "partitions": PARTITIONS,
            "replication": 1,
            "transactions": TOPICS.transactions,
            "outcomes": TOPICS.outcomes,
            "deadLetters": TOPICS.dead_letters,
        },
        "storage": {"mountPath": str(TABLES)},
    }


def volume(name: str, namespace: str, path: str) -> str:
    """Returns the manifest of a volume that both nodes have at `path`, for the claim of the tables."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*NODES]}
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": "lakefold-tables"},
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    return json.dumps(manifest)


def install(cluster: Cluster, *more: str) -> None:
    """Installs the chart, or changes the installation, and waits until its pods are ready."""
    file = cluster.folder / "values.json"
    file.write_text(json.dumps(values(cluster.broker.bootstrap_servers)))
    words = [
        "upgrade",
        "--install",
        "lakefold",
        str(CHART),
        "--values",
        str(file),
        "--wait",
        "--timeout",
        "3m",
    ]
    cluster.helm(*words, *more)


def first_installation(cluster: Cluster) -> None:
    """Installs the chart in a namespace that enforces the restricted standard for pods."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    cluster.kubectl("apply", "-f", "-", text=volume("lake", NAMESPACE, str(TABLES)))
    install(cluster)
    _check_spread(cluster)


def rollout(cluster: Cluster) -> None:
    """Replaces every pod, one after the other, and spreads them over both nodes."""
    _in_lake(cluster, "rollout", "restart", MAIN)
    _rolled_out(cluster)
    _whole(cluster)
    _check_spread(cluster)


def drain(cluster: Cluster) -> None:
    """Drains the second node, and lets pods onto it again."""
    cluster.kubectl("drain", "n2", *DRAINING)
    _rolled_out(cluster)
    cluster.kubectl("uncordon", "n2")


def pod_deleted(cluster: Cluster) -> None:
    """Deletes a pod."""
    _in_lake(cluster, "delete", "pod", cluster.pods()[0]["metadata"]["name"], "--wait=false")
    _whole(cluster)


def killed(cluster: Cluster) -> None:
    """Kills a committer's process by SIGKILL; the kubelet starts it again in its pod."""
    pod = cluster.pods()[0]
    os.kill(cluster.process_of(pod), signal.SIGKILL)
    name = pod["metadata"]["name"]
    until(lambda: _restarts(cluster, name) > _restarts_of(pod), "a restart", seconds=60, every=0.2)
    _whole(cluster)


def node_cut_off(cluster: Cluster) -> None:
    """Cuts the second node off from the network, and connects it again."""
    cut_off(is_cut=True)
    try:
        threading.Event().wait(CUT_OFF_S)
    finally:
        cut_off(is_cut=False)
    _whole(cluster)


def scaled(cluster: Cluster) -> None:
    """Scales to three pods, to one, and to two."""
    for replicas in (3, 1, 2):
        _in_lake(cluster, "scale", MAIN, f"--replicas={replicas}")
        _rolled_out(cluster)


def broker_away(cluster: Cluster) -> None:
    """Stops the broker for some seconds."""
    cluster.broker.stop()
    threading.Event().wait(BROKER_AWAY_S)
    cluster.broker.start()
    _whole(cluster)


def drained_without_brokers(cluster: Cluster) -> None:
    """Drains the second node while no committer is ready, since the broker is away: evictions go through.

    They do so by `unhealthyPodEvictionPolicy: AlwaysAllow` of the disruption budget; else the drain would
    end with an error after its timeout. The next rollout spreads the pods again.
    """
    cluster.broker.stop()
    try:
        until(lambda: not _ready(cluster), "committers that aren't ready", seconds=60, every=0.5)
        cluster.kubectl("drain", "n2", *DRAINING)
    finally:
        cluster.broker.start()
        cluster.kubectl("uncordon", "n2")
    _rolled_out(cluster)
    _whole(cluster)


def modes(cluster: Cluster) -> None:
    """Lets the partitions go by ordinals, then by names, and shares them again."""
    _stop_all(cluster, MAIN)
    install(cluster, "--set-json", 'committers=[{"name":"main","partitions":"ordinal","replicas":2}]')
    _stop_all(cluster, "statefulset/lakefold-main")
    named = [{"name": "a", "partitions": "0-1"}, {"name": "b", "partitions": "2-3"}]
    install(cluster, "--set-json", f"committers={json.dumps(named)}")
    assert len(cluster.pods()) == len(named)
    _stop_all(cluster, "deployment/lakefold-a", "deployment/lakefold-b")
    install(cluster)


def upgraded_and_rolled_back(cluster: Cluster) -> None:
    """Changes a setting and serves the web page from the committers, and rolls both back."""

    def upgrade(*page: str) -> None:
        install(cluster, "--set", "settings.group_max_entries=4096", *page)

    def roll_back() -> None:
        cluster.helm("rollback", "lakefold", "--wait", "--timeout", "3m")
        _whole(cluster)
        _check_spread(cluster)

    paged(cluster, upgrade, roll_back)


def installed_again(cluster: Cluster) -> None:
    """Uninstalls the release, whose claim is kept, and installs it again on the same volume."""
    cluster.helm("uninstall", "lakefold", "--wait", "--timeout", "2m")
    assert "lakefold-tables" in _in_lake(cluster, "get", "pvc", "-o", "name")
    install(cluster)


def helm_test(cluster: Cluster) -> None:
    """Runs the chart's own test, which asks each committer whether it is ready."""
    cluster.name_pods("lakefold")
    cluster.helm("test", "lakefold", "--timeout", "2m")
    said = _in_lake(cluster, "logs", "lakefold-test")
    assert "2 of 2 committers are ready" in said, said
    _in_lake(cluster, "delete", "pod", "lakefold-test")


def kustomized(cluster: Cluster) -> Iterator[None]:
    """Installs the kustomize base, has it create a table, and deletes it: the claim of the tables stays.

    Meanwhile Prometheus scrapes its pods, and an alert fires and clears. At the end Prometheus scrapes the
    pods of the chart, also a maintainer's, and answers the dashboard.
    """
    topics = Topics("kustomized.transactions", "kustomized.outcomes", "kustomized.dead-letters")
    tables, overlay = cluster.folder / OTHER, cluster.folder / "overlay"
    tables.mkdir(exist_ok=True)
    (overlay / "base").mkdir(parents=True, exist_ok=True)
    bootstrap = cluster.broker.bootstrap_servers
    for file in (ROOT / "deploy/kustomize/base").iterdir():
        (overlay / "base" / file.name).write_bytes(file.read_bytes())
    settings = (overlay / "base/committer.toml").read_text()
    settings = settings.replace("kafka-bootstrap.kafka:9092", bootstrap).replace(
        "replication = 3", "replication = 1"
    )
    names = f'transactions_topic = "{topics.transactions}"\noutcomes_topic = "{topics.outcomes}"\n'
    names += f'dead_letters_topic = "{topics.dead_letters}"\n'
    (overlay / "base/committer.toml").write_text(names + settings.replace('"lakefold"', f'"{OTHER}"'))
    cluster.kubectl("create", "namespace", OTHER)
    cluster.kubectl("apply", "-f", "-", text=volume(OTHER, OTHER, str(tables)))
    cluster.kubectl("-n", OTHER, "apply", "-k", str(ROOT / "deploy/kustomize/tables"))
    cluster.kubectl("-n", OTHER, "apply", "-k", str(overlay / "base"))
    cluster.kubectl("-n", OTHER, "rollout", "status", "deployment/lakefold", "--timeout=120s")
    config = KafkaConfig(bootstrap)
    ensure_topics(Admin(config), topics, partitions=1, replication=1)
    with Proposer(config, topics) as proposer:
        proposer.send_wait(creation("file:///tables/made"))
    until(lambda: any((tables / "made/_versions").glob("*.manifest")), "the table", seconds=60)
    prometheus = Prometheus(cluster)
    with prometheus.running():
        prometheus.scrape(OTHER, 2)
        alert = AlertWatch(bootstrap, topics.outcomes)
        yield
        alert.wait()
        prometheus.scrape(NAMESPACE, 3)
        prometheus.check_dashboard()
    cluster.kubectl("-n", OTHER, "delete", "-k", str(overlay / "base"), "--wait=true", "--timeout=120s")
    assert "lakefold-tables" in cluster.kubectl("-n", OTHER, "get", "pvc", "-o", "name")


def maintained(cluster: Cluster) -> None:
    """Adds a maintainer, and waits until it has joined fragments of each table of the load."""
    policy = ["--set-string", "maintainer.policy.target_rows=1000000"]
    install(cluster, "--set", "maintainer.enabled=true", "--set", "maintainer.every=5", *policy)
    tables = [path for path in TABLES.iterdir() if path.name.startswith("table-")]
    assert len(tables) == PARTITIONS

    def compacted() -> bool:
        datasets = [lance.dataset(str(path)) for path in tables]
        return all(
            any(fragment.count_rows() > 1 for fragment in dataset.get_fragments()) for dataset in datasets
        )

    until(compacted, "a fragment of several rows in each table", seconds=120, every=1)


SCENARIOS: Final[dict[str, Callable[[Cluster], Iterator[None] | None]]] = {
    "node drained": drain,
    # It also spreads the pods over both nodes again.
    "rollout": rollout,
    "pod deleted": pod_deleted,
    "committer killed": killed,
    "node cut off for 20 s": node_cut_off,
    "scaled to 3, 1, 2": scaled,
    "broker away for 10 s": broker_away,
    "node drained without brokers": drained_without_brokers,
    # An alert about it fires and clears during those that follow, which neither drain nor cut off a node.
    "kustomize and Prometheus beside it": kustomized,
    "helm upgrade to the console, and rollback": upgraded_and_rolled_back,
    "ordinal, named, shared": modes,
    "helm uninstall and install": installed_again,
    "helm test": helm_test,
    "every verb in a pod": every_verb,
    "S3, SCRAM, certificates": on_s3_with_password_then_certificate,
    "a maintainer beside them": maintained,
}


def _in_lake(cluster: Cluster, *words: str) -> str:
    return cluster.kubectl("-n", NAMESPACE, *words)


def _rolled_out(cluster: Cluster) -> None:
    _in_lake(cluster, "rollout", "status", MAIN, "--timeout=120s")


def _whole(cluster: Cluster) -> None:
    """Waits until all committers are ready, and no pod is left that is not."""

    def whole() -> bool:
        states = _ready_states(cluster)
        return len(states) == len(NODES) and all(states)

    until(whole, "two ready committers", seconds=120, every=0.5)


def _ready(cluster: Cluster) -> bool:
    """Returns whether any committer is ready."""
    return any(_ready_states(cluster))


def _ready_states(cluster: Cluster) -> list[bool]:
    """Returns for each container of a committer whether it is ready."""
    states = [each for pod in cluster.pods() for each in pod["status"].get("containerStatuses", [{}])]
    return [bool(each.get("ready")) for each in states]


def _check_spread(cluster: Cluster) -> None:
    """Requires a committer on each node."""
    fault = not_spread(cluster.pods(), NODES)
    assert not fault, fault


def _stop_all(cluster: Cluster, *workloads: str) -> None:
    """Scales workloads to no pods, as the runbook says before the mode is changed."""
    _in_lake(cluster, "scale", *workloads, "--replicas=0")
    selector = "app.kubernetes.io/component=committer"
    left = ("get", "pods", "-l", selector, "-o", "name")
    until(lambda: not _in_lake(cluster, *left), "no pod", seconds=90, every=0.5)


def _restarts_of(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def _restarts(cluster: Cluster, name: str) -> int:
    return next((_restarts_of(pod) for pod in cluster.pods() if pod["metadata"]["name"] == name), 0)
