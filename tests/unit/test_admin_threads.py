"""An admin client that becomes garbage is never destroyed by its own thread, which would end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lakefold.local.ports import free_port

BEGIN = """
import gc, os, threading
from lakefold_log.client.admin import Admin, KafkaConfig
gc.disable()
answered = threading.Event()

def look_for_garbage(_):
    gc.collect()
    answered.set()

def forget(in_a_cycle):
    admin = Admin(KafkaConfig("127.0.0.1:{port}"))
    asked = admin.client.describe_cluster(request_timeout=0.1)
    asked.add_done_callback(look_for_garbage)
    if in_a_cycle:
        kept = [admin]
        kept.append(kept)

def lives():
    names = [open("/proc/self/task/" + one + "/comm").read() for one in os.listdir("/proc/self/task")]
    return any(name.startswith("rdk:") for name in names)

def wait_for_its_end():
    while lives():
        os.sched_yield()
"""
"""A client whose answer (nobody listens there) comes when it is garbage; then Python looks for garbage."""


def run(code: str) -> str:
    """What a process prints that runs this."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN.format(port=free_port()) + code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_own_thread_keeps_it_and_the_next_client_destroys_it() -> None:
    printed = run(
        """
forget(True)
assert answered.wait(120)
print(lives())
Admin(KafkaConfig("127.0.0.1:1"))
wait_for_its_end()
"""
    )
    assert printed.split() == ["True"]


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_a_thread_of_python_destroys_it_at_once(*, in_a_cycle: bool) -> None:
    run(f"forget({in_a_cycle})\ngc.collect()\nwait_for_its_end()\n")


def test_a_probe_that_a_client_s_thread_finds_as_garbage_leaves_no_client() -> None:
    run(
        """
from lakefold_log.client.connection_probe import ConnectionProbe
ConnectionProbe("127.0.0.1:1", {"bootstrap.servers": "127.0.0.1:1"})
forget(True)
assert answered.wait(120)
Admin(KafkaConfig("127.0.0.1:1"))
wait_for_its_end()
"""
    )
