"""Says how a Spark session is set up on one machine, for the demo and the tests alike."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lakefold.local.jars import fetch_jars

if TYPE_CHECKING:
    from pathlib import Path


def prepare_session(folder: Path, *, cores: int = 2, memory: str = "1g") -> dict[str, str]:
    """Give the options of a session that is local, on loopback only, with the Kafka connector.

    `folder` takes Spark's own files. Sets `PYSPARK_PYTHON`, the only way to say that the workers run this
    Python. Fetches the connector's jars where they are missing; raises what `fetch_jars` raises.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        # Stopping a query in the middle of a batch can overflow the default stack.
        "spark.driver.extraJavaOptions": f'-Xss8m "-Djava.io.tmpdir={folder}" "-Dderby.system.home={folder}"',
        "spark.jars": ",".join(str(jar) for jar in fetch_jars("spark")),
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
