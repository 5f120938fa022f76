"""The local broker is real: it keeps what it was given, survives SIGKILL, and leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakefold.errors import SetupError
from lakefold.local.broker import Broker, _new_cluster_id
from lakefold.local.ports import free_port, is_free
from lakefold_log.client.admin import cluster_id
from lakefold_table.errors import RetryError
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


def make_topic(bootstrap: str, name: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(name, 1, 1)])[name].result()


def send(bootstrap: str, topic: str, *values: bytes, compression: str = "none") -> None:
    options = {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0}
    producer = Producer({**options, "compression.type": compression})
    failures = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(120) == 0
    assert failures == [None] * len(values)


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    options = {"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=120)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_gives_back_what_it_was_given(bootstrap: str, topic_names: TopicNames) -> None:
    make_topic(bootstrap, topic_names.events)
    send(bootstrap, topic_names.events, b"one", b"two")
    assert read(bootstrap, topic_names.events, 2) == [b"one", b"two"]


def test_comes_back_after_sigkill_on_the_same_port_with_its_data(own_broker: Broker) -> None:
    address = own_broker.bootstrap_servers
    cluster = cluster_id(address, 120)
    make_topic(address, "kept")
    send(address, "kept", b"before")
    own_broker.kill()
    assert not own_broker.running
    with pytest.raises(RetryError, match="no broker answers"):
        cluster_id(address, 1)
    assert own_broker.start() == address
    assert cluster_id(address, 120) == cluster
    send(address, "kept", b"after")
    assert read(address, "kept", 2) == [b"before", b"after"]


def test_what_it_unpacks_is_in_its_folder_and_is_removed_when_it_starts_again(own_broker: Broker) -> None:
    """A killed broker can't remove it."""
    bootstrap = own_broker.start()
    make_topic(bootstrap, "packed")
    # Short batches aren't packed.
    send(bootstrap, "packed", b"again " * 1000, compression="lz4")
    unpacked = {*own_broker.directory.glob("*/liblz4*")}
    assert unpacked
    own_broker.kill()
    own_broker.start()
    assert not unpacked & {*own_broker.directory.glob("*/liblz4*")}


def test_stop_leaves_no_process_and_no_port(own_broker: Broker) -> None:
    pid, port = own_broker.pid, int(own_broker.bootstrap_servers.rpartition(":")[2])
    assert pid is not None
    assert not is_free(port)
    assert own_broker.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert is_free(port)
    assert own_broker.pid is None
    assert not own_broker.stop()


def test_outlives_the_process_that_started_it_and_is_stopped_by_another(tmp_path: Path) -> None:
    code = "import sys; from lakefold.local.broker import Broker; print(Broker(sys.argv[1]).start())"
    command = [sys.executable, "-c", code, str(tmp_path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    broker = Broker(tmp_path)
    try:
        assert broker.running
        assert broker.bootstrap_servers == text
        assert broker.start() == text
    finally:
        assert broker.stop()
    assert not broker.running


def test_a_broker_in_a_context_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from lakefold.local.broker import Broker\n"
        "with Broker(sys.argv[1]) as broker:\n"
        "    assert broker.running\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert died.returncode == -signal.SIGKILL
    broker = Broker(tmp_path)
    try:
        until(lambda: not broker.running, "the broker to end with its process")
    finally:
        broker.kill()


def test_a_pid_file_of_a_dead_broker_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "broker.pid").write_text(str(os.getpid()))
    (tmp_path / "broker.lock").touch()
    broker = Broker(tmp_path)
    assert broker.pid is None
    broker.kill()
    assert not broker.stop()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port} is in use"):
            Broker(tmp_path, port).start()


def test_a_broker_that_cannot_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    broker = Broker(tmp_path, free_port())
    broker.start()
    broker.stop()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=7\n")
    with pytest.raises(RetryError, match=r"node\.id|node id"):
        broker.start()
    assert not broker.running


def test_no_cluster_id_looks_like_an_option() -> None:
    ids = {_new_cluster_id() for _ in range(2_000)}
    assert len(ids) == 2_000
    assert {len(each) for each in ids} == {22}
    assert not any(each.startswith("-") for each in ids)
