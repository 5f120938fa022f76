"""Which release of pylance a process has: all that write files of a batch must have the same one.

Another release may write files that the reader of the driver's release can't read. Executors may be added at
any time, so every process that writes checks itself.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from lakefold_table.errors import InvalidError

UNKNOWN = ""
"""The release of a pylance that was installed without metadata. It is compared with none."""


@cache
def pylance_release() -> str | None:
    """Returns the release of pylance that this Python has, None if it has none. Doesn't load pylance."""
    if find_spec("lance") is None:
        return None
    try:
        return version("pylance")
    except PackageNotFoundError:
        return UNKNOWN


def check_pylance(expected: str, where: str) -> None:
    """Raises `InvalidError` if this process can't load pylance, or has another release than `expected`.

    Loads it otherwise. `expected` is the driver's release, `where` names the table in the error.
    """
    release = pylance_release()
    if release is None:
        raise _unusable("has no pylance, which writes the files of Lance tables and reads conditions", where)
    if UNKNOWN not in {release, expected} and release != expected:
        raise _unusable(f"has pylance {release}, but the driver has {expected}", where)
    try:
        importlib.import_module("lance")
    except Exception as error:
        raise _unusable(f"can't load its pylance: {type(error).__name__}: {error}", where) from error


def _unusable(reason: str, where: str) -> InvalidError:
    hint = "install lakefold[ingest] in the driver's releases in the Python of Spark's executors"
    return InvalidError(f"{sys.executable} {reason}", where=where, hint=hint)
