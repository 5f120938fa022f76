"""Brokers that answer, and report that no broker is alive: as they do while all of them are fenced.

A broker is fenced while it starts, and if the controller has not heard from it for a session, for example on
an overloaded machine. It then goes on answering, and leaves itself out of the answer.

Promise: cut-connections (docs/operations/promises.md).
"""

from __future__ import annotations

import subprocess
import sys
from itertools import count

import pytest

from lakefold_log.client.admin import cluster_id
from tests.servers.fenced_broker import FencedBroker
from tests.waiting import until

ASK = """
import sys
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_table.errors import RetryError
admin = Admin(KafkaConfig("127.0.0.1:{port}"), timeout_s=2.0)
for _ in sys.stdin:
    try:
        print(admin.cluster_id(), flush=True)
    except RetryError:
        print("try again", flush=True)
"""
"""A process of its own, which the client library may end. It asks once for each line that it reads."""


@pytest.mark.parametrize("connected", [False, True], ids=["at first", "later"])
def test_a_request_about_the_cluster_may_be_repeated(*, connected: bool) -> None:
    """`connected`: the client has learned of a broker that is alive before."""
    with FencedBroker(alive=connected) as broker:
        command = [sys.executable, "-c", ASK.format(port=broker.port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            # A request of two seconds may have no answer in time on a busy machine.
            if connected:
                until(lambda: asked(process) == "cluster", "the cluster")
            else:
                assert asked(process) == "try again"
            broker.alive = False
            assert asked(process) == "try again"
            broker.alive = True
            until(lambda: asked(process) == "cluster", "the cluster again")
            process.communicate(timeout=120)
        assert process.returncode == 0


def test_a_start_waits_until_a_broker_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    with FencedBroker(alive=False) as broker:
        describe, numbers = broker.cluster, count()

        def fenced_at_first() -> bytes:
            # More often than a client asks for one answer.
            broker.alive = next(numbers) >= 20
            return describe()

        monkeypatch.setattr(broker, "cluster", fenced_at_first)
        assert cluster_id(f"127.0.0.1:{broker.port}", 120) == "cluster"


def asked(process: subprocess.Popen[str]) -> str:
    """The answer to another request; "" if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()
