"""Asks a Kafka cluster about itself, apart from what it carries."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakefold_table.errors import RetryError


def cluster_id(bootstrap_servers: str, timeout: float) -> str:
    """Give the cluster's id, once a broker of it answers within `timeout` seconds.

    Raises `RetryError` where none does. This is the probe for "is it up".
    """
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        answer = client.describe_cluster(request_timeout=timeout).result()
    except KafkaException as error:
        message = f"no broker answers: {error.args[0].str()}"
        hint = "`lakefold up` starts a local broker"
        raise RetryError(message, where=bootstrap_servers, hint=hint) from error
    if not answer.nodes:
        raise RetryError("the cluster has no live broker yet", where=bootstrap_servers)
    return str(answer.cluster_id)
