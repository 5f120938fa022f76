"""Lets the brokers and the Spark sessions of the tests start in half the time.

The tests start some forty of each. They use an archive of classes (`class_archive`), also those that another
process starts, as `lakefold up` and the demo do: `JAVA_HOME` is a folder whose `java` is a script that adds
the options to the command lines of these programs. A new data folder of a broker is prepared by Kafka's tool,
which is another start of Java: for each test process the tool prepares the first folder, and the others are
copies of it with ids of their own, also those of other processes. None of the settings that tests change
matters for what is in it.

`python -m tests.servers.quick_java` makes the archives, which takes half a minute. A test process makes those
that are missing.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
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
from tests.servers.class_archive import ClassArchive

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS: Final = 120.0
"""How long a broker may take to start; that which writes the archive also to stop, because it does more."""

_QUICK_COMPILER: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-XX:ReservedCodeCacheSize=256m", "-XX:-UseCodeCacheFlushing"),
)
"""Java compiles quickly rather than well, and has the room to keep what it compiled."""

_SCRIPT: Final = """\
#!/bin/sh
first=${{0%/bin/java}}/first
case " $* " in
" -version ") printf '%s' {version} >&2; exit ;;
*" kafka.tools.StorageTool format "*)
    if test ! -e "$first"; then
        {java} {broker} "$@" || exit
        cp -R data "$first.$$" && ln -sn "$first.$$" "$first" 2> /dev/null
        exit 0
    fi
    for word; do test "$before" != -t || cluster=$word; before=$word; done
    id=$(od -An -N 11 -t x1 /dev/urandom | tr -d '[:space:]')
    ids="s/^cluster.id=.*/cluster.id=$cluster/; s/^directory.id=.*/directory.id=${{id%?}}A/"
    mkdir -p data && cp "$first"/* data && sed "$ids" "$first/meta.properties" > data/meta.properties
    exit ;;
*" org.apache.spark.launcher.Main "*) set -- {launcher} "$@" ;;
*" kafka.Kafka "* | *" kafka.tools."*) set -- {broker} "$@" ;;
*" org.apache.spark.deploy.SparkSubmit "* | *" org.apache.spark.executor."*) set -- {spark} "$@" ;;
esac
exec {java} "$@"
"""
"""A program in place of Java. The launcher of Spark is a program of Java too, which prints a command line.

Each start of a broker asks for the version before, which is known. The launcher is asked for the name of
another program, so it comes before that. `first`: a broker's data folder as the tool has prepared it.
"""


class _PatientBroker(Broker):
    """As `Broker`, with more time to start and to stop."""

    def start(self, timeout: float = _PATIENCE_SECONDS) -> str:
        """See `Broker.start`."""
        return super().start(timeout)

    def stop(self, timeout: float = _PATIENCE_SECONDS) -> bool:
        """See `Broker.stop`."""
        return super().stop(timeout)


def quick_java() -> Iterator[None]:
    """Let the brokers and the sessions of this process, and of those that it starts, use the archives.

    Brokers of this process have more time to start, and their data folders are copies of the first one.
    """
    broker_options, spark_options = _broker_archive().options(), _spark_archive().options()
    java = find_java()
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    script = _SCRIPT.format(
        version=shlex.quote(version),
        broker=shlex.join(broker_options),
        spark=shlex.join((*_QUICK_COMPILER, *spark_options)),
        launcher=shlex.join(_QUICK_COMPILER),
        java=shlex.quote(str(java)),
    )
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="lakefold-java-") as home:
        program = Path(home, "bin", "java")
        program.parent.mkdir()
        program.write_text(script)
        program.chmod(0o755)
        patch.setenv("JAVA_HOME", home)
        patch.setattr(Broker.start, "__defaults__", (_PATIENCE_SECONDS,))
        yield


def _broker_archive() -> ClassArchive:
    jars = os.pathsep.join(str(jar) for jar in fetch_jars("broker"))
    return ClassArchive(find_java(), cache_folder() / "classes", "broker", jars, _run_broker)


def _run_broker(option: str) -> bool:
    """Run a broker that has a little work to do."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(prefix="lakefold-broker-") as folder:
        patch.setattr(broker, "_JVM", (*broker._JVM, option))
        with _PatientBroker(folder) as running:
            ensure_topics(Admin(KafkaConfig(running.bootstrap_servers)), Topics())
            running.stop()
    # A broker that takes too long to stop is killed, and has not written its archive to the end.
    use, path = option.replace("ArchiveClassesAtExit", "SharedArchiveFile"), broker._class_path()
    command = [str(find_java()), "-XX:+UseSerialGC", "-Xshare:on", use, "-cp", path, "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _spark_archive() -> ClassArchive:
    """Returns the archive, which lies beside the packages of this Python, as Spark's jars do."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    return ClassArchive(find_java(), Path(sys.prefix) / "classes", "spark", str(jars), _run_spark)


def _run_spark(option: str) -> bool:
    """Run a batch and a streaming query in a process of their own."""
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join((*_QUICK_COMPILER, option))}
    return subprocess.run([sys.executable, "-c", _SESSION], env=environment, check=False).returncode == 0


_SESSION: Final = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefold.local.spark import prepare_session

with TemporaryDirectory(prefix="lakefold-spark-") as folder:
    builder = SparkSession.builder
    for key, value in prepare_session(Path(folder)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.range(1000).mapInArrow(lambda batches: batches, "id long").write.parquet(f"{folder}/rows")
    rates = session.readStream.format("rate").load()
    writing = rates.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    query = writing.foreachBatch(lambda rows, _: rows.count()).trigger(availableNow=True).start()
    query.awaitTermination()
    session.stop()
    gateway = SparkContext._gateway
    gateway.shutdown()
    # Java writes the archive when it ends, which it does if its input ends.
    gateway.proc.stdin.close()
    sys.exit(gateway.proc.wait())
"""


if __name__ == "__main__":
    _broker_archive().options()
    _spark_archive().options()
