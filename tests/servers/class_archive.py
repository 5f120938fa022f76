"""What lets the brokers of the tests start in half the time: an archive of classes, and copied data folders.

The tests start some forty brokers, and most of a start is Java reading classes out of jars. Java can write
the classes that it has loaded to a file when it ends, and map that file at the next start (class data
sharing). The archive is in the cache folder, one for each release of Java and each set of jars. Making it
takes ten seconds.

A new data folder is prepared by Kafka's tool, which is another start of Java. In each test process the tool
prepares the first folder; the others are copies of it with ids of their own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from lakefold.local import broker
from lakefold.local.broker import Broker
from lakefold.local.jars import cache_folder, fetch_jars
from lakefold.local.java import find_java
from lakefold_log.client.admin import Admin, KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import ensure_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PATIENCE_SECONDS: Final = 120.0
"""How long the broker that writes the archive may take to start, and to stop: it does more than others."""

_IDS: Final = "meta.properties"
"""The file of a data folder with the ids of the cluster, the folder and the node."""
_ID: Final = re.compile(rb"(?<=\.id=)[\w-]{22}$", re.MULTILINE)
"""The ids that differ between folders."""


class _PatientBroker(Broker):
    """As `Broker`, with more time to start and to stop."""

    def start(self, timeout: float = _PATIENCE_SECONDS) -> str:
        """See `Broker.start`."""
        return super().start(timeout)

    def stop(self, timeout: float = _PATIENCE_SECONDS) -> bool:
        """See `Broker.stop`."""
        return super().stop(timeout)


def quick_brokers() -> Iterator[None]:
    """Let the brokers that this process starts use the archive, which is made first if it is missing.

    Their data folders are copies of the first one.
    """
    archive = _broker_archive()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Broker, "_format", _copied_folders())
        if archive is not None:
            patch.setattr(broker, "_JVM", (*broker._JVM, f"-XX:SharedArchiveFile={archive}"))
        yield


def _copied_folders() -> Callable[[Broker, list[str]], None]:
    """Returns a method in place of `Broker._format`, which prepares all folders but the first by a copy.

    What the tool writes depends on none of the settings that tests change.
    """
    by_tool = Broker._format
    files: dict[str, bytes] = {}

    def prepare(self: Broker, java: list[str]) -> None:
        if (self._data / _IDS).exists():
            return
        if not files:
            by_tool(self, java)
            files.update((path.name, path.read_bytes()) for path in self._data.iterdir())
            return
        self._data.mkdir(exist_ok=True)
        copies = {**files, _IDS: _ID.sub(lambda _: broker._new_cluster_id().encode(), files[_IDS])}
        for name, content in copies.items():
            (self._data / name).write_bytes(content)

    return prepare


def _broker_archive() -> Path | None:
    """Returns the archive for this Java and these jars. Returns None if this Java can't make an archive."""
    jars, java = fetch_jars("broker"), find_java()
    release = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    key = hashlib.sha256(release + str(jars[0].parent).encode()).hexdigest()[:12]
    folder = cache_folder() / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"broker-{key}.jsa"
    with (folder / "make.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            unchecked = folder / f"broker-{key}.unchecked"
            _write(unchecked)
            if _is_usable(java, jars, unchecked):
                unchecked.rename(archive)
    return archive if archive.exists() else None


def _write(archive: Path) -> None:
    """Run a broker that has a little work to do and that writes its classes when it stops."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="lakefold-broker-") as folder:
        patch.setattr(broker, "_JVM", (*broker._JVM, f"-XX:ArchiveClassesAtExit={archive}"))
        with _PatientBroker(folder) as running:
            ensure_topics(Admin(KafkaConfig(running.bootstrap_servers)), Topics())


def _is_usable(java: Path, jars: list[Path], archive: Path) -> bool:
    """Returns whether Java accepts the archive, which it does not if it was not written to its end."""
    path = os.pathsep.join(str(jar) for jar in jars)
    options = ["-XX:+UseSerialGC", "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", path]
    return subprocess.run([java, *options, "-version"], capture_output=True, check=False).returncode == 0
