"""Fetches the jars that the demo needs, in a process that can be ended with the Java it starts."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from lakefold.local.jars import fetch_jars
from lakefold_table.errors import LakefoldError


def main() -> None:
    """Fetch both sets; leave with the error's exit code and its text on stderr where that fails."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        fetch_jars("broker")
        fetch_jars("spark")
    except LakefoldError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def _leave(number: int, _: object) -> NoReturn:
    """End by an exception, so that what was fetched by half is cleared away."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
