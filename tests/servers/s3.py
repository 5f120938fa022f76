"""Runs a real S3 server on loopback: tests of the S3 store need no account, and meet no mock of the race.

It is s3proxy over a folder. Of the servers that start without Docker it is one of the few that hold a
conditional put under a race (32 threads, one key, one winner in each of hundreds of rounds; its conditional
completion of a multipart upload as well), and it runs on the Java that the broker needs anyway. A bucket is a
folder below `data`, so what was stored outlives a `kill`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from lakefold.local.ports import free_port
from lakefold.local.tie import Tie
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

KEY: Final = "lakefold"
SECRET: Final = "lakefold-secret"  # noqa: S105 - of a server on loopback that lives as long as its test
BUCKET: Final = "lake"
_READY_SECONDS: Final = 60.0
_JVM: Final = ("-Xms32m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
_PROPERTIES: Final = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""


def options_for(endpoint: str, **more: str) -> dict[str, str]:
    """The `storage_options`, as pylance takes them too, of a server (or a proxy before one) at `endpoint`."""
    return {
        "aws_endpoint": endpoint,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "allow_http": "true",
        **more,
    }


class S3Server:
    """An S3 server whose buckets lie in `directory`; `BUCKET` is there from the start.

    `start` may be called again after `stop` or `kill`: port and data stay. As a context manager it starts on
    entering, stops on leaving, and doesn't outlive this process, even where that is killed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._tie: Tie | None = None

    @property
    def endpoint(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self.port}"

    def options(self, **more: str) -> dict[str, str]:
        """The `storage_options` of this server."""
        return options_for(self.endpoint, **more)

    def make_bucket(self, name: str) -> None:
        """Make a bucket; it may be there already."""
        (self.directory / "data" / name).mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start the server and wait until it answers. Raises where it doesn't."""
        self.make_bucket(BUCKET)
        properties = self.directory / "s3proxy.properties"
        data = self.directory / "data"  # Below a relative folder it stores, and lists nothing.
        properties.write_text(_PROPERTIES.format(port=self.port, key=KEY, secret=SECRET, data=data))
        jars = os.pathsep.join(str(jar) for jar in fetch_jars("s3"))
        command = [str(find_java()), *_JVM, *_LOGGING, "-cp", jars, "org.gaul.s3proxy.Main"]
        with (self.directory / "s3proxy.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--properties", properties.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        self._tie = Tie(self._process.pid)
        try:
            until(self._has_ended_or_answers, "the S3 server to answer", seconds=_READY_SECONDS)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask the server to end, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a power cut of its machine would; its data stays as it lies."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            self._process.wait()
            self._process = None
        if self._tie is not None:
            self._tie.release()
            self._tie = None

    def _has_ended_or_answers(self) -> bool:
        """Whether it serves. Raises `RuntimeError` where it has ended instead."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the S3 server did not start: " + self._last_words())
        return self._answers()

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
            asked.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return asked.recv(5) == b"HTTP/"
        return False

    def _last_words(self) -> str:
        return " | ".join((self.directory / "s3proxy.log").read_text(errors="replace").splitlines()[-5:])
