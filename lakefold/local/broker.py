"""Runs a real Apache Kafka broker on 127.0.0.1 without Docker, for laptops and tests.

A single node is both broker and controller (KRaft). It runs in its own session and outlives the process that
started it, as `lakefold up` needs. A lock shows whether it runs: the broker inherits an open, locked file,
and the kernel releases the lock when the broker ends, whatever the cause. A process id alone could belong to
another process by then.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from typing import IO, Self
from uuid import uuid4

from lakefold.errors import SetupError
from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from lakefold.local.kill_on_exit import KillOnExit
from lakefold.local.ports import free_port, is_free
from lakefold.local.records import read_record, write_record
from lakefold_table.errors import OptionName, RetryError

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Options for a JVM that starts fast and is small. The second compiler would only slow the start down."""

_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")

_UNPACKED = "unpacked"
"""The folder inside the broker's folder where Java unpacks native libraries. A killed broker leaves them."""

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=2097152
metadata.max.idle.interval.ms=0
"""
"""One node, 127.0.0.1 only, internal topics without replicas. The short session makes a restart after SIGKILL
fast, because the controller accepts the new broker only after the old one's session has ended. An idle
interval of 0 stops the empty record that the controller otherwise writes to its log twice a second."""


class Broker:
    """A single-node Kafka broker whose files are in `directory`.

    If `port` is 0, it uses its previous port, or any free port. `start` may be called again after `stop` or
    `kill`; the data and the port stay. As a context manager it starts on entering and stops on leaving. If
    `tied`, and as a context manager, it does not outlive this process, even if this process is killed.
    """

    def __init__(self, directory: str | os.PathLike[str], port: int = 0, *, tied: bool = False) -> None:
        self.directory = Path(directory).absolute()
        self._chosen_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._is_tied = tied
        self._kill_on_exit: KillOnExit | None = None

    @property
    def log_file(self) -> Path:
        """The file with the broker's output: its warnings, and the reason if it could not start."""
        return self.directory / "broker.log"

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients. Empty if the broker was never started."""
        port = self._ports().get("port")
        return f"127.0.0.1:{port}" if port else ""

    @property
    def pid(self) -> int | None:
        """The process id, None if it doesn't run."""
        if not self.running:
            return None
        with suppress(FileNotFoundError, ValueError):
            return int(self._pid_file.read_text())
        return None

    @property
    def running(self) -> bool:
        """Whether the process runs, according to its lock. It may not be ready yet."""
        try:
            with self._lock_file.open() as file:
                return not _locks(file, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def start(self, timeout: float = 60.0) -> str:
        """Starts the broker, waits until it answers, and returns its bootstrap address.

        `timeout` is in seconds. A broker that runs already is not restarted. Raises `SetupError` if the port
        is in use or Java is missing. Raises `RetryError` if the broker exits or isn't ready in time; then it
        is killed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        java = [str(find_java()), *_JVM, *_LOGGING, f"-Djava.io.tmpdir={_UNPACKED}", "-cp", _class_path()]
        deadline = time.monotonic() + timeout
        with self._lock_file.open("w") as lock:
            # If the lock is taken, the broker runs, or another process is starting it.
            while not _locks(lock, fcntl.LOCK_EX):
                if self._answers(deadline):
                    return self.bootstrap_servers
                self._pause(deadline)
            self._pid_file.unlink(missing_ok=True)
            shutil.rmtree(self.directory / _UNPACKED, ignore_errors=True)
            (self.directory / _UNPACKED).mkdir(exist_ok=True)
            self._write_properties()
            self._format(java)
            self._spawn([*java, "kafka.Kafka", str(self._properties)], lock)
        try:
            self._wait_until_ready(deadline)
        except BaseException:
            self.kill()
            raise
        return self.bootstrap_servers

    def stop(self, timeout: float = 30.0) -> bool:
        """Stops the broker, by SIGKILL if it still runs after `timeout` seconds. Returns whether it ran."""
        pid = self.pid
        if pid is None:
            self._ends_within(0)
            return False
        self._signal(pid, signal.SIGTERM)
        if not self._ends_within(timeout):
            self.kill()
        self._pid_file.unlink(missing_ok=True)
        return True

    def kill(self) -> None:
        """Ends the broker by SIGKILL, as a power cut would. Its data stays on disk."""
        pid = self.pid
        if pid is not None:
            self._signal(pid, signal.SIGKILL)
        self._ends_within(30)
        self._pid_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Starts the broker so that it ends with this process."""
        self._is_tied = True
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the broker. Its files stay."""
        self.stop()

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _pid_file(self) -> Path:
        return self.directory / "broker.pid"

    @property
    def _lock_file(self) -> Path:
        return self.directory / "broker.lock"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _ports(self) -> dict[str, int]:
        """Returns the ports of the last start, none if it was never started."""
        noted = read_record(self.directory / "ports.json")
        return {name: port for name, port in noted.items() if isinstance(port, int)}

    def _write_properties(self) -> None:
        """Chooses the ports and writes the broker's settings. Raises `SetupError` if the port is in use."""
        ports = self._ports()
        if self._chosen_port:
            ports["port"] = self._chosen_port
            if not is_free(self._chosen_port):
                message = f"port {self._chosen_port} is in use"
                raise SetupError(
                    message, where=OptionName("port"), hint="choose another port, or 0 for a free one"
                )
        for name in ("port", "controller_port"):
            if name not in ports or not is_free(ports[name]):
                ports[name] = free_port()
        write_record(self.directory / "ports.json", ports)
        # Only the folder's name: Kafka splits a path at commas, and Java reads this file as Latin-1.
        self._properties.write_text(_PROPERTIES.format(data=self._data.name, **ports))

    def _format(self, java: list[str]) -> None:
        """Writes the cluster id to the data folder when it is used for the first time."""
        if (self._data / "meta.properties").exists():
            return
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _new_cluster_id()]
        done = subprocess.run(
            [*java, *tool, "-c", str(self._properties)],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            message = f"the data folder could not be prepared: {(done.stderr or done.stdout).strip()}"
            hint = "check that the folder is writable and that the disk is not full"
            raise RetryError(message, where=str(self._data), hint=hint)

    def _spawn(self, command: list[str], lock: IO[str]) -> None:
        """Starts the process in its own session; it inherits the lock."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        if self._is_tied:
            self._kill_on_exit = KillOnExit(self._process.pid)
        self._pid_file.write_text(str(self._process.pid))

    def _wait_until_ready(self, deadline: float) -> None:
        while not self._answers(deadline):
            if not self.running:
                message = f"the broker exited during its start: {self._last_lines()}"
                raise RetryError(message, where=str(self.log_file), hint="read this log file for the cause")
            self._pause(deadline)

    def _answers(self, deadline: float) -> bool:
        """Returns whether the port is open. If it is, waits until the broker answers a client."""
        from lakefold_log.client.admin import cluster_id

        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self._ports().get("port", 0)), timeout=1),
        ):
            cluster_id(self.bootstrap_servers, max(1.0, deadline - time.monotonic()))
            return True
        return False

    def _pause(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            message = "the broker was not ready in time"
            raise RetryError(message, where=str(self.log_file), hint="read this log file for the cause")
        time.sleep(0.05)

    def _last_lines(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line or "Exception" in line]
        return " | ".join((errors or lines)[-3:])

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid, number)

    def _ends_within(self, timeout: float) -> bool:
        """Waits until the lock is free, and reaps the process if it is our child.

        Returns whether it ended.
        """
        deadline = time.monotonic() + timeout
        while self.running and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self.running and self._kill_on_exit is not None:
            self._kill_on_exit.release()
            self._kill_on_exit = None
        if not self.running and self._process is not None:
            self._process.wait()
            self._process = None
        return not self.running


def _locks(file: IO[str], kind: int) -> bool:
    """Takes the lock of an open file if it is free. Returns whether it was."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _class_path() -> str:
    return os.pathsep.join(str(jar) for jar in fetch_jars("broker"))


def _new_cluster_id() -> str:
    """Returns a random cluster id: 16 bytes in URL-safe base64 without padding, as Kafka makes them.

    The first bit is 0, because Kafka's tools read an id that begins with `-` as an option.
    """
    first, *rest = uuid4().bytes
    return urlsafe_b64encode(bytes([first & 0x7F, *rest])).rstrip(b"=").decode()
