"""Spark drivers in processes of their own, which tests kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.quick_python import prepare_quick_session
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

START_SECONDS = 240
ROOT = Path(__file__).parents[2]


@contextmanager
def running_driver(
    program: str, folder: Path, arguments: Mapping[str, Any]
) -> Iterator[subprocess.Popen[bytes]]:
    """A driver of `tests.integration`, and all that it started; SIGKILL to all of it at the end."""
    command = [sys.executable, "-m", f"tests.integration.{program}", json.dumps({**arguments})]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_driver_in_a_batch(program: str, folder: Path, arguments: Mapping[str, Any]) -> None:
    """Runs a driver until it has made the file `hanging`, then kills it before Spark commits the batch."""
    hanging = folder / "hanging"
    with running_driver(program, folder, arguments) as process:
        until(lambda: hanging.exists() or process.poll() is not None, "the batch", seconds=START_SECONDS)
        assert process.poll() is None, (folder / "driver.log").read_text()
    hanging.unlink()


def run_in_session(stream: Callable[[SparkSession, dict[str, Any]], None], arguments: dict[str, Any]) -> None:
    """Does the work of a driver in a session of its own, whose files are below `folder` of the arguments."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in prepare_quick_session(Path(arguments["folder"]) / "spark").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    stream(spark, arguments)
    spark.stop()
