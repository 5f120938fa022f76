"""Sets up a Spark session on a single machine, for the demo and the tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lakefold.local.jars import fetch_jars

if TYPE_CHECKING:
    from pathlib import Path


def prepare_session(folder: Path, *, cores: int = 2, memory: str = "1g") -> dict[str, str]:
    """Returns the options of a local session, on 127.0.0.1 only, with the Kafka connector.

    `folder` is for Spark's own files. Sets `PYSPARK_PYTHON`, because only that makes the workers run this
    Python. Downloads the connector's jars if they are missing. Raises what `fetch_jars` raises.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        # If a query is stopped during a batch, the default stack may overflow.
        "spark.driver.extraJavaOptions": f'-Xss8m "-Djava.io.tmpdir={folder}" "-Dderby.system.home={folder}"',
        "spark.jars": ",".join(str(jar) for jar in fetch_jars("spark")),
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
