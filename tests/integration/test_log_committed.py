"""A group's offsets can be asked for at any time, also in the first second of a broker's life."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.committed_offsets import committed
from tests.integration.own_log import patient_admin

if TYPE_CHECKING:
    from lakefold.local.broker import Broker
    from tests.integration.conftest import TopicNames

ASK = (
    "import sys; from confluent_kafka import TopicPartition;"
    "from lakefold_log.client.admin import Admin, KafkaConfig;"
    "from lakefold_log.client.committed_offsets import committed;"
    "admin = Admin(KafkaConfig(sys.argv[1]), timeout_s=120);"
    "print(committed(admin, 'none', [TopicPartition('none', 0)])[0].offset)"
)


def test_a_broker_that_has_just_started_is_asked_unharmed(own_broker: Broker) -> None:
    topics = patient_admin(KafkaConfig(own_broker.bootstrap_servers)).client.list_topics(timeout=120).topics
    assert "__consumer_offsets" not in topics, "this broker has been asked for offsets before"
    command = [sys.executable, "-c", ASK, own_broker.bootstrap_servers]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process
    assert int(process.stdout) < 0


def test_no_places_are_no_question(bootstrap: str, topic_names: TopicNames) -> None:
    admin = patient_admin(KafkaConfig(bootstrap))
    assert committed(admin, topic_names.group, []) == []
    assert committed(admin, topic_names.group, [TopicPartition("none", 0)])[0].offset < 0
