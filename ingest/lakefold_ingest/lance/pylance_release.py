"""Which release of pylance a process has: all that write files of a batch must have the same one.

Another release may write files that the reader of the driver's release can't read. Executors may be added at
any time, so every process that writes checks itself.
"""

from __future__ import annotations

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
    """Raises `InvalidError` if this process has no pylance, or another release than the driver's `expected`.

    `where` names the table in the error.
    """
    release = pylance_release()
    hint = "install lakefold[ingest] in the driver's releases in the Python of Spark's executors"
    if release is None:
        raise InvalidError(f"{sys.executable} has no pylance, which writes the files", where=where, hint=hint)
    if UNKNOWN not in {release, expected} and release != expected:
        message = f"{sys.executable} has pylance {release}, but the driver has {expected}"
        raise InvalidError(message, where=where, hint=hint)
