"""A broker that lets in known users only, over TLS; CA, certificates and passwords are of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold.local.broker import Broker
from lakefold.local.ports import free_port

if TYPE_CHECKING:
    import os

HOST = "127.0.0.1"
USER = "committer"
PASSWORD = "correct-horse-battery-staple-7f3a"  # noqa: S105 - lives as long as a test

_LISTENER = """
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port},SASL_SSL://{host}:{secure_port}
advertised.listeners=PLAINTEXT://{host}:{port},SASL_SSL://{host}:{secure_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={keystore}
"""


class Authority:
    """A CA of its own in `folder`, made by openssl. `certificate`: what clients signers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self.certificate = folder / "ca.pem"
        subject = ["-subj", f"/CN=lakefold test CA {folder.name}"]
        self._openssl("req", "-x509", "-days", "1", *_new_key("ca.key"), *subject, "-out", "ca.pem")

    def server(self, address: str = HOST) -> Path:
        """Key and certificate of a server at an address, in one file."""
        parts = [file.read_text() for file in self._signed("server", address, f"subjectAltName=IP:{address}")]
        store = self._folder / "server.pem"
        store.write_text("".join(parts))
        return store

    def client(self, name: str) -> tuple[Path, Path]:
        """The key of a client and the certificate that names it."""
        return self._signed(f"client-{name}", name, "extendedKeyUsage=clientAuth")

    def _signed(self, file: str, subject: str, extension: str) -> tuple[Path, Path]:
        self._openssl("req", *_new_key(f"{file}.key"), "-subj", f"/CN={subject}", "-out", f"{file}.csr")
        (self._folder / "extensions").write_text(extension)
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions"]
        self._openssl("x509", "-req", "-in", f"{file}.csr", *signing, "-days", "1", "-out", f"{file}.crt")
        return self._folder / f"{file}.key", self._folder / f"{file}.crt"

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, capture_output=True, check=True)


def _new_key(file: str) -> list[str]:
    return ["-newkey", "rsa:2048", "-nodes", "-keyout", file]


class SecuredBroker(Broker):
    """As `Broker`, with another listener that speaks TLS and asks for name and password."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self.authority = Authority(Path(directory) / "authority")
        self._keystore = self.authority.server()
        self._secure_port = free_port()

    @property
    def secure_servers(self) -> str:
        """The address of that listener."""
        return f"127.0.0.1:{self._secure_port}"

    def options(self, password: str = PASSWORD, authority: Authority | None = None) -> dict[str, str]:
        """The options of a client, by librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": USER,
            "sasl.password": password,
            "ssl.ca.location": str((authority or self.authority).certificate),
        }

    def _write_properties(self) -> None:
        super()._write_properties()
        values = {
            "host": HOST,
            "user": USER,
            "password": PASSWORD,
            "keystore": self._keystore,
            "secure_port": self._secure_port,
        }
        with self._properties.open("a") as file:
            file.write(_LISTENER.format(**values, **self._ports()))
