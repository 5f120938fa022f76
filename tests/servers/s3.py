"""Runs a real S3 server on loopback: tests of the S3 store need no account, and meet no mock of the race.

It is s3proxy over a folder. Of the servers that start without Docker it is among the few that hold a
conditional put under a race (32 threads, one key, one winner in each of hundreds of rounds; its conditional
completion of a multipart upload as well), and it runs on the Java that the broker needs anyway. A bucket is a
folder below `data`, so what was stored outlives a `kill`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from tests.servers.process import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY: Final = "lakefold"
SECRET: Final = "lakefold-secret"  # noqa: S105 - of a server on loopback that lives as long as its test
BUCKET: Final = "lake"
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


class S3Server(LoopbackServer):
    """An S3 server whose buckets lie in `directory` and outlive a `kill`; `BUCKET` is always there."""

    def options(self, **more: str) -> dict[str, str]:
        """The `storage_options` of this server."""
        return options_for(self.endpoint, **more)

    def make_bucket(self, name: str) -> None:
        """Make a bucket; it may be there already."""
        (self.directory / "data" / name).mkdir(parents=True, exist_ok=True)

    def prepare(self) -> Sequence[str]:
        """See `LoopbackServer.prepare`."""
        self.make_bucket(BUCKET)
        properties = self.directory / "s3proxy.properties"
        data = self.directory / "data"  # Below a relative folder it stores, and lists nothing.
        properties.write_text(_PROPERTIES.format(port=self.port, key=KEY, secret=SECRET, data=data))
        jars = os.pathsep.join(str(jar) for jar in fetch_jars("s3"))
        command = [str(find_java()), *_JVM, *_LOGGING, "-cp", jars, "org.gaul.s3proxy.Main"]
        return [*command, "--properties", properties.name]
