"""Starts Spark's Python processes with lakefold imported: `spark.python.daemon.module=lakefold.spark_daemon`.

Spark plans each read of `format("lakefold")`, and each batch that a streaming query writes by it, in a new
process of Python, which imports pyspark and lakefold first. That takes about half a second of CPU, more than
all else of a small batch. Spark makes these processes as copies (by fork) of one that its setting
`spark.python.daemon.module` names. This one imports what they need before it is copied. It has to be set
before the session is created, as in `spark-submit --conf`, and lakefold be installed where Spark's driver and
executors run.

Modules whose import starts threads of Python must not be imported here, as a copy has none of them, nor
pylance, which a process must not have used before it is copied.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Final

from pyspark import daemon

IMPORTED: Final = ("lakefold.spark_format", "pyspark.sql.pandas.serializers", "pyspark.sql.pandas.types")
"""What most copies need beside the module that Spark runs in them."""


def main() -> None:
    """Imports what copies need, then serves Spark's requests for copies until Spark ends this process."""
    for module in (*sys.argv[1:2], *IMPORTED):
        importlib.import_module(module)
    # Objects that the collector doesn't visit stay in memory that all copies share.
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call] # as pyspark has it


if __name__ == "__main__":
    main()
