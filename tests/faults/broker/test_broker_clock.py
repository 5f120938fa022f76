"""A real broker whose own clock jumps 95 days ahead and back, by libfaketime, while a committer folds.

`test_clock_jumps.py` plays the same with an entry that is stamped ahead. Here all that a broker does by its
clock jumps too: segments, transactions, what groups remember. Only played with `--all-faults`; needs
faketime.

Promises: clock-bound, batches-remembered (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from lakefold.local.broker import Broker
from tests.faults.broker.jumping import AHEAD, play_a_jump
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.conftest import TopicNames


class JumpingBroker(Broker):
    """As `Broker`, with a clock that `jump` sets. Elapsed time, by which it waits, goes on as ever."""

    @property
    def _offset_file(self) -> Path:
        return self.directory / "clock"

    def jump(self, days: int) -> None:
        """Set the clock so many days ahead of the machine's."""
        new = self._offset_file.with_suffix(".new")
        new.write_text(f"+{days}d\n")
        new.replace(self._offset_file)

    def _spawn(self, command: list[str], lock: IO[str]) -> None:
        process = subprocess.run(
            ["faketime", "-m", "-f", "+0", "printenv", "LD_PRELOAD"],
            capture_output=True,
            text=True,
            check=True,
        )
        self.jump(0)
        faked = {
            "LD_PRELOAD": process.stdout.strip(),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset_file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Without it a thread of the broker's waits for ever, until another thread wakes it.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        super()._spawn(["env", *(f"{name}={value}" for name, value in faked.items()), *command], lock)


@pytest.fixture
def jumping() -> Iterator[JumpingBroker]:
    """A running broker whose clock the test sets."""
    if shutil.which("faketime") is None:
        pytest.fail("faketime is missing: apt-get install faketime")
    with TemporaryDirectory(prefix="lakefold-broker-") as folder, JumpingBroker(folder) as running:
        yield running


def _set_clock(broker: JumpingBroker, own: OwnLog, topic: str, days: int) -> None:
    """Let the clock jump, and wait until the broker stamps messages by it."""
    producer = Producer({"bootstrap.servers": own.config.bootstrap_servers, "linger.ms": 0})
    stamps: list[int] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None
        stamps.append(message.timestamp()[1])

    def is_set() -> bool:
        producer.produce(topic, b"what time is it?", partition=0, on_delivery=note)
        assert producer.flush(PATIENCE_S) == 0
        return abs(stamps[-1] / 1000 - time.time() - days * 24 * 3600) < 60

    broker.jump(days)
    until(is_set, "the broker's clock to jump", seconds=PATIENCE_S)


def test_a_brokers_clock_that_jumps_forgets_no_batch_and_dates_no_version(
    jumping: JumpingBroker, topic_names: TopicNames, tmp_path: Path
) -> None:
    bootstrap = jumping.bootstrap_servers
    own = OwnLog.make(bootstrap, topic_names)
    stage = Stage(bootstrap, topic_names, own, tmp_path)
    stamped = NewTopic(topic_names.events, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    own.admin.client.create_topics([stamped])[topic_names.events].result()

    def send_ahead(envelope: Envelope) -> None:
        _set_clock(jumping, own, topic_names.events, AHEAD.days)
        stage.send(envelope)
        _set_clock(jumping, own, topic_names.events, 0)

    play_a_jump(stage, send_ahead)
