"""Reads the list of jars to download, `jars.lock`, with the version and hash of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

JarSet = Literal["broker", "delta", "dynamodb", "lance-spark", "s3", "spark"]
"""`broker`: Kafka and all it needs to run. `spark`: the Kafka connector of the pinned Spark release. `s3`: a
server over a folder that speaks S3, for tests. `dynamodb`: DynamoDB Local, for tests. `lance-spark`: Lance's
own connector for Spark 3.5, for tests. `delta`: Delta's own connector for Spark, for benchmarks and tests."""

LOCK_FILE = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True)
class Jar:
    """A line of `jars.lock`: a Maven coordinate and the SHA-256 of the jar, in hex."""

    group: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the jar's file."""
        return f"{self.artifact}-{self.revision}.jar"


def pinned_jars(name: JarSet) -> list[Jar]:
    """Returns the jars that `jars.lock` lists under `name`."""
    lines = (line.split() for line in LOCK_FILE.read_text().splitlines() if not line.startswith("#"))
    pins = ((*coordinate.split(":"), sha256) for owner, coordinate, sha256 in lines if owner == name)
    return [Jar(group, artifact, revision, sha256) for group, artifact, revision, sha256 in pins]
