"""The broker of the cluster: pods reach it without protection, with a password, or with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold.local.broker import Broker
from tests.cluster.machine import HOST
from tests.integration.secured import Authority

if TYPE_CHECKING:
    from pathlib import Path

KAFKA_PORT: Final = 9092
SCRAM_PORT: Final = 9093
TLS_PORT: Final = 9094
LISTENERS: Final = """
listeners=PLAINTEXT://0.0.0.0:{port},CONTROLLER://127.0.0.1:{controller_port},\
  SASL_SSL://0.0.0.0:{scram_port},SSL://0.0.0.0:{tls_port}
advertised.listeners=PLAINTEXT://{host}:{port},SASL_SSL://{host}:{scram_port},SSL://{host}:{tls_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.ssl.ssl.client.auth=required
"""
"""The listeners for pods: without protection, with SCRAM over TLS, and with certificates of both sides."""


class PodsBroker(Broker):
    """A broker that pods reach: it listens on all addresses and announces that of the first node."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, KAFKA_PORT, tied=True)
        self.authority = Authority(directory.with_name("authority"))
        self._keystore = self.authority.server(HOST)

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients on both nodes."""
        return f"{HOST}:{KAFKA_PORT}"

    def _write_properties(self) -> None:
        super()._write_properties()
        values = {"host": HOST, "scram_port": SCRAM_PORT, "tls_port": TLS_PORT, "keystore": self._keystore}
        with self._properties.open("a") as file:
            file.write(LISTENERS.format(**values, authority=self.authority.certificate, **self._ports()))
