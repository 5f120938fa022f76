"""Starts the compose file by podman, in namespaces of its own, and folds a table through it.

    python -m tests.cluster.compose TOOLS

No registry is reached here, so the image of the broker is made of this machine's Java and the jars that all
other tests run; as apache/kafka does, it takes its settings from the environment. podman's health checks need
systemd, so the test asks for the committer's health itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Final

from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.read.outcomes import OutcomeWaiter
from lakefold_log.write.producer import Proposer
from tests.cluster.image import ROOT
from tests.cluster.machine import call
from tests.cluster.tools import base_image, output, run, storage_options
from tests.proposals import append, creation, ids_in, rows
from tests.waiting import until

_COMPOSE: Final = ROOT / "deploy/compose/compose.yaml"
_BROKER: Final = "docker.io/apache/kafka:4.3.1"
_USER: Final = "65532"
PODMAN_GROUP: Final = "libpod_parent"
"""The control group in which podman makes those of containers."""
_START: Final = """\
import os, subprocess
settings = {
    name[6:].lower().replace("_", "."): value
    for name, value in os.environ.items()
    if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
}
with open("/server.properties", "w") as file:
    file.writelines(f"{name}={value}\\n" for name, value in settings.items())
java = ["/java/bin/java", *os.environ["KAFKA_HEAP_OPTS"].split(), "-cp", "/jars/*"]
tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", "5L6g3nShT-eMCtK--X86sw"]
subprocess.run([*java, *tool, "-c", "/server.properties"], check=True)
os.execv(java[0], [*java, "kafka.Kafka", "/server.properties"])
"""
_LIMITS: Final = '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]\n'
"""podman would raise these limits, which root may not do in every container."""


def build_broker(tools: Path) -> None:
    """Makes the image of the broker in the storage of the tools, unless it is there."""
    buildah = ["buildah", *storage_options(tools)]
    inspected = subprocess.run(
        [*buildah, "inspect", "--type", "image", _BROKER], check=False, capture_output=True
    )
    if inspected.returncode == 0:
        return
    container = output(*buildah, "from", base_image()).strip()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "start.py").write_text(_START)
        home = find_java().resolve().parents[1]
        # Its settings are links to /etc.
        ignored = shutil.ignore_patterns("jmods", "src.zip")
        shutil.copytree(home, folder / "java", ignore=ignored, ignore_dangling_symlinks=True)
        run(*buildah, "copy", "--quiet", container, folder / "java", "/java")
        for jar in fetch_jars("broker"):
            run(*buildah, "copy", "--quiet", container, jar, "/jars/")
        run(*buildah, "copy", "--quiet", container, folder / "start.py", "/start.py")
    run(*buildah, "config", "--entrypoint", '["python3", "/start.py"]', "--cmd", "", container)
    run(*buildah, "commit", "--quiet", "--rm", container, _BROKER)


def main() -> int:
    """Returns the exit code. Must run in namespaces of its own."""
    tools = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="lakefold-compose-") as temporary:
        folder = Path(temporary)
        _prepare(folder, tools)
        tables = folder / "tables"
        tables.mkdir()
        for path in (folder, tables):
            path.chmod(0o777)
        own = {"LAKEFOLD_TABLES": str(tables), "LAKEFOLD_UID": _USER, "LAKEFOLD_GID": _USER}
        os.environ |= {**own, "CONTAINERS_CONF": str(folder / "containers.conf")}
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        try:
            _compose("up", "--detach", "--no-build")
            until(_is_ready, "a ready committer", seconds=120, every=0.5)
            _write(tables)
        except BaseException:
            subprocess.run(["podman", "ps", "--all"], check=False)
            raise
        finally:
            _compose("down", "--volumes")
    return 0


def _prepare(folder: Path, tools: Path) -> None:
    """Gives podman the storage of the tools, and folders of its own for all else that it writes."""
    for emptied in ("/run", "/etc/cni/net.d", "/var/lib/cni"):
        Path(emptied).mkdir(parents=True, exist_ok=True)
        call("mount", "-t", "tmpfs", "tmpfs", emptied)
    call("ip", "link", "set", "lo", "up")
    (folder / "containers.conf").write_text(_LIMITS)
    storage = tools / "containers/storage"
    roots = f"--root {storage} --runroot /run/lakefold-podman --storage-driver overlay"
    podman = folder / "podman"
    program = shutil.which("podman")
    podman.write_text(f'#!/bin/sh\nexec {program} {roots} --runtime runc --cgroup-manager cgroupfs "$@"\n')
    podman.chmod(0o755)


def _compose(*words: str) -> None:
    subprocess.run(["podman-compose", "-f", _COMPOSE, *words], check=True, stdin=subprocess.DEVNULL)


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8080/readyz", timeout=5) as page:
            return bool(page.status == 200)
    except OSError:
        return False


def _write(tables: Path) -> None:
    """Creates a table and appends to it, through the broker's port for the laptop."""
    config, topics, uri = KafkaConfig("localhost:29092"), Topics(), (tables / "made").as_uri()
    with Proposer(config, topics) as proposer, OutcomeWaiter(config, topics, uri) as waiter:
        made = creation(uri)
        waiter.wait(proposer.send_wait(made), made, 60)
        for batch in range(3):
            envelope = append(uri, rows([batch]), 1, "app", batch)
            waiter.wait(proposer.send_wait(envelope), envelope, 60)
    assert ids_in(uri) == [0, 1, 2]


if __name__ == "__main__":
    sys.exit(main())
