"""Options that only Kafka's Java client has, and what librdkafka has instead.

Users of Spark's own Kafka source have a configuration for Java. librdkafka refuses such an option when the
first client is made, mostly without saying what to set instead. The names are those of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOTHING: Final = "leave it out"
_CA: Final = (
    "set ssl.ca.location to a file with the certificates in PEM, as `keytool -exportcert -rfc` writes it"
)
_TOKENS: Final = (
    "set sasl.oauthbearer.method=oidc, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and "
    "sasl.oauthbearer.token.endpoint.url"
)
_TIMEOUT: Final = "set the option timeout of the write"

JAVA_OPTIONS: Final = {
    "auto.include.jmx.reporter": _NOTHING,
    "buffer.memory": "set queue.buffering.max.kbytes, in KiB",
    "default.api.timeout.ms": _TIMEOUT,
    "exclude.internal.topics": _NOTHING,
    "fetch.max.wait.ms": "set fetch.wait.max.ms",
    "interceptor.classes": _NOTHING,
    "key.deserializer": _NOTHING,
    "key.serializer": _NOTHING,
    "max.block.ms": _TIMEOUT,
    "max.request.size": "set message.max.bytes",
    "metadata.max.idle.ms": _NOTHING,
    "metric.reporters": _NOTHING,
    "metrics.num.samples": _NOTHING,
    "metrics.recording.level": _NOTHING,
    "metrics.sample.window.ms": _NOTHING,
    "partitioner.adaptive.partitioning.enable": _NOTHING,
    "partitioner.availability.timeout.ms": _NOTHING,
    "partitioner.class": _NOTHING,
    "partitioner.ignore.keys": _NOTHING,
    "receive.buffer.bytes": "set socket.receive.buffer.bytes",
    "sasl.client.callback.handler.class": _TOKENS,
    "sasl.jaas.config": "set sasl.mechanism, sasl.username and sasl.password to what it contains",
    "sasl.login.callback.handler.class": _TOKENS,
    "sasl.login.class": _NOTHING,
    "security.providers": _NOTHING,
    "send.buffer.bytes": "set socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "set socket.connection.setup.timeout.ms",
    "ssl.enabled.protocols": _NOTHING,
    "ssl.engine.factory.class": _NOTHING,
    "ssl.keymanager.algorithm": _NOTHING,
    "ssl.keystore.certificate.chain": "set ssl.certificate.pem, or ssl.certificate.location to its file",
    "ssl.keystore.key": "set ssl.key.pem, or ssl.key.location to its file",
    "ssl.keystore.type": "leave it out: the file of ssl.keystore.location is PKCS#12",
    "ssl.protocol": _NOTHING,
    "ssl.provider": _NOTHING,
    "ssl.secure.random.implementation": _NOTHING,
    "ssl.trustmanager.algorithm": _NOTHING,
    "ssl.truststore.certificates": "set ssl.ca.pem",
    "ssl.truststore.location": _CA,
    "ssl.truststore.password": _CA,
    "ssl.truststore.type": _CA,
    "value.deserializer": _NOTHING,
    "value.serializer": _NOTHING,
}
"""What to do instead of each, as the hint of an error."""


def java_option(names: Iterable[str]) -> tuple[str, str] | None:
    """Returns the first of these options that only Java's client has, and what to do. None: it is none."""
    return next(((name, JAVA_OPTIONS[name]) for name in sorted(names) if name in JAVA_OPTIONS), None)
