"""An entry of the log is stamped 95 days ahead, and the next entries are stamped right again.

The entry is in a real broker's log as a jumped clock leaves it: for that one send the topic takes the time
that its writer claims. `test_broker_clock.py` lets the broker's own clock jump, and needs libfaketime.

Promises: clock-bound, batches-remembered (docs/operations/promises.md).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from lakefold_log.codec.envelope import encode
from tests.faults.broker.jumping import AHEAD, play_a_jump
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage
from tests.integration.test_topic_settings import set_to

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.conftest import TopicNames
    from tests.servers.kafka_relay import RelayedBroker

TAKEN_MS = str(2 * AHEAD.days * 24 * 3600 * 1000)
"""How far ahead a claimed time may be. A broker allows an hour unless it is set."""


def test_a_log_time_that_jumps_forgets_no_batch_and_dates_no_version(
    relayed: RelayedBroker, topic_names: TopicNames, tmp_path: Path
) -> None:
    bootstrap = relayed.bootstrap_servers
    own = OwnLog.make(bootstrap, topic_names)
    topic = own.topics.transactions
    stage = Stage(bootstrap, topic_names, own, tmp_path)

    def send_ahead(envelope: Envelope) -> None:
        claimed = int((time.time() + AHEAD.total_seconds()) * 1000)
        set_to(own, topic, message_timestamp_type="CreateTime", message_timestamp_after_max_ms=TAKEN_MS)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        producer.produce(topic, encode(envelope), envelope.table.encode(), 0, timestamp=claimed)
        assert producer.flush(PATIENCE_S) == 0
        set_to(own, topic, message_timestamp_type="LogAppendTime")

    play_a_jump(stage, send_ahead)
