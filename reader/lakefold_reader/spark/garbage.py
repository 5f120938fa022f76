"""Keeps what was imported out of the garbage collections of Spark's Python processes.

Spark's daemon has a process collect all garbage after each task, and after each step of a plan. With the
modules that a write imports this takes 80 ms of CPU, and a batch of `format("lakefold")` has four of them.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache


def spare_imports() -> None:
    """Excludes the objects of this process from later collections, if it is one that Spark uses repeatedly.

    It does so again only if more was imported since: garbage of cycles that exists then is never freed.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):
        _freeze(len(sys.modules))


@cache
def _freeze(modules: int) -> None:
    """Excludes all objects that exist while this many modules are imported."""
    del modules
    gc.collect()
    gc.freeze()
