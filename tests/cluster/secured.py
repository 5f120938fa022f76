"""A second installation with tables on S3, whose broker asks for a password and then for a certificate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import lance
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics
from lakefold_log.read.outcomes import OutcomeWaiter, read_outcomes
from lakefold_log.write.producer import Proposer
from tests.cluster.broker import SCRAM_PORT, TLS_PORT
from tests.cluster.image import ROOT
from tests.cluster.machine import HOST
from tests.integration.ledger import each_position_has_one_outcome
from tests.integration.secured import PASSWORD, USER
from tests.proposals import append, creation, rows
from tests.servers.s3 import BUCKET, SECRET, S3Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import Position
    from tests.cluster.cluster import Cluster

SECURED: Final = "secured"
"""The namespace of this installation."""
_TOPICS: Final = Topics("secured.transactions", "secured.outcomes", "secured.dead-letters")
_URI: Final = f"s3://{BUCKET}/table"
_FOLDER: Final = "/etc/lakefold/tls"
_BATCHES: Final = 10


class PodsS3Server(S3Server):
    """An S3 server that pods reach at the address of the first node."""

    @property
    def endpoint(self) -> str:
        """The URL for clients on both nodes."""
        return f"http://{HOST}:{self.port}"

    def prepare(self) -> Sequence[str]:
        """See `LoopbackServer.prepare`."""
        command = super().prepare()
        properties = self.directory / "s3proxy.properties"
        text = properties.read_text().replace("endpoint=http://127.0.0.1:", "endpoint=http://0.0.0.0:")
        properties.write_text(text)
        return command


def on_s3_with_password_then_certificate(cluster: Cluster) -> None:
    """Installs the chart with SCRAM over TLS, changes it to certificates, and checks the table on S3."""
    with PodsS3Server(_made(cluster, "s3")) as server:
        options = server.options()
        _create_secrets(cluster)
        writer = _Writer(cluster.broker.bootstrap_servers, options)
        with_password = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": USER,
        }
        _install(cluster, server, SCRAM_PORT, with_password, {"sasl.password": "password"})
        writer.write()
        with_certificate = {
            "security.protocol": "SSL",
            "ssl.certificate.location": f"{_FOLDER}/tls.crt",
            "ssl.key.location": f"{_FOLDER}/tls.key",
        }
        _install(cluster, server, TLS_PORT, with_certificate, {})
        writer.write()
        writer.check()
        cluster.kubectl("delete", "namespace", SECURED, "--wait=false")


class _Writer:
    """Appends to the table on S3, from outside of the cluster and without TLS."""

    def __init__(self, bootstrap: str, options: dict[str, str]) -> None:
        self._config = KafkaConfig(bootstrap)
        self._options = options
        self._expected: dict[Position, str] = {}
        self._batches = 0
        ensure_topics(Admin(self._config), _TOPICS, partitions=2, replication=1)

    def write(self) -> None:
        """Sends some batches, and the table's creation before the first one. Waits for each answer."""
        with (
            Proposer(self._config, _TOPICS) as proposer,
            OutcomeWaiter(self._config, _TOPICS, _URI) as waiter,
        ):
            if not self._batches:
                self._propose(proposer, waiter, creation(_URI), "committed")
            for batch in range(self._batches, self._batches + _BATCHES):
                envelope = append(_URI, rows([batch]), 1, "app", batch, storage_options=self._options)
                self._propose(proposer, waiter, envelope, "committed")
                self._propose(proposer, waiter, envelope, "duplicate")
        self._batches += _BATCHES

    def check(self) -> None:
        """Requires one answer to each proposal, and each row once."""
        outcomes = read_outcomes(Admin(self._config), _TOPICS, next(iter(self._expected)).log.partition, 0)
        each_position_has_one_outcome([outcome for _, outcome in outcomes], self._expected)
        table = lance.dataset(_URI, storage_options=self._options)
        table.validate()
        assert sorted(table.to_table(columns=["id"])["id"].to_pylist()) == list(range(self._batches))

    def _propose(self, proposer: Proposer, waiter: OutcomeWaiter, envelope: Envelope, kind: str) -> None:
        position = proposer.send_wait(envelope)
        waiter.wait(position, envelope, 60)
        self._expected[position] = kind


def _create_secrets(cluster: Cluster) -> None:
    """Creates the namespace with its Secrets, and the user with its password at the broker."""
    admin = AdminClient({"bootstrap.servers": cluster.broker.bootstrap_servers})
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, mechanism, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result()
    key, certificate = cluster.broker.authority.client(USER)
    secrets = {
        "kafka": {"password": PASSWORD},
        "store": {"secret": SECRET},
        "tls": {
            "ca.crt": cluster.broker.authority.certificate.read_text(),
            "tls.crt": certificate.read_text(),
            "tls.key": key.read_text(),
        },
    }
    cluster.kubectl("create", "namespace", SECURED)
    cluster.kubectl("label", "namespace", SECURED, "pod-security.kubernetes.io/enforce=restricted")
    for name, values in secrets.items():
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values}
        cluster.kubectl("-n", SECURED, "apply", "-f", "-", text=json.dumps(secret))


def _install(
    cluster: Cluster, server: PodsS3Server, port: int, options: dict[str, str], secrets: dict[str, str]
) -> None:
    """Installs the chart, or changes the installation, and waits until its pods are ready."""
    store = server.options()
    del store["aws_secret_access_key"]
    values = {
        "kafka": {
            "bootstrapServers": f"{HOST}:{port}",
            "options": {**options, "ssl.ca.location": f"{_FOLDER}/ca.crt"},
            "existingSecret": "kafka",
            "secretOptions": secrets,
            "tls": {"existingSecret": "tls"},
        },
        "topics": {
            "replication": 1,
            "transactions": _TOPICS.transactions,
            "outcomes": _TOPICS.outcomes,
            "deadLetters": _TOPICS.dead_letters,
        },
        "storage": {
            "roots": [f"s3://{BUCKET}"],
            "options": store,
            "existingSecret": "store",
            "secretOptions": {"aws_secret_access_key": "secret"},
        },
        "networkPolicy": {"storagePorts": [server.port]},
        "resources": {"requests": {"cpu": "100m"}},
    }
    file = cluster.folder / "secured.json"
    file.write_text(json.dumps(values))
    chart = str(ROOT / "deploy/helm/lakefold")
    words = ["upgrade", "--install", SECURED, chart, "--values", str(file), "--wait", "--timeout", "3m"]
    cluster.helm(*words, namespace=SECURED)


def _made(cluster: Cluster, name: str) -> Path:
    folder = cluster.folder / name
    folder.mkdir(exist_ok=True)
    return folder
