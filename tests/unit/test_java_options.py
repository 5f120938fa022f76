"""Options of Kafka's Java client are refused before anything is sent, with those that librdkafka has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer
from pyspark.sql.types import LongType, StructType

from lakefold.spark import sink
from lakefold.spark_format import LakefoldFormat
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.java_options import JAVA_OPTIONS
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path

NO_BROKER = "127.0.0.1:1"
GIVEN = "org.apache.kafka.X password='secret'"
NAMES = re.compile(r"[a-z]+(?:\.[a-z]+)+")


def fault(name: str) -> str:
    """What librdkafka says of an option, nothing if it takes it."""
    try:
        Producer({name: "1"})
    except KafkaException as error:
        return str(error.args[0])
    return ""


@pytest.mark.parametrize("name", JAVA_OPTIONS)
def test_librdkafka_lacks_the_option_and_has_the_others(name: str) -> None:
    assert re.search("No such configuration property|Java", fault(name))
    for other in NAMES.findall(JAVA_OPTIONS[name]):
        assert "No such configuration property" not in fault(other), other


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("sasl.jaas.config", "sasl.username"),
        ("ssl.truststore.location", "ssl.ca.location"),
        ("max.request.size", "message.max.bytes"),
        ("buffer.memory", "queue.buffering.max.kbytes"),
    ],
)
def test_it_is_refused_when_the_query_is_made(name: str, other: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="an option of Kafka's Java client") as by_sink:
        sink(tmp_path / "t", NO_BROKER, kafka={name: GIVEN})
    given = {"path": str(tmp_path / "t"), "kafka.bootstrap.servers": NO_BROKER, f"kafka.{name}": GIVEN}
    with pytest.raises(InvalidError) as by_format:
        LakefoldFormat(given).streamWriter(StructType().add("n", LongType()), overwrite=False)
    for caught in (by_sink, by_format):
        assert other in caught.value.hint
        assert caught.value.where == f"kafka.{name}"
        assert GIVEN not in str(caught.value)
    assert KafkaConfig(NO_BROKER, {other: "1"}).options == {other: "1"}
