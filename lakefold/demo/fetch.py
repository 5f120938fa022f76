"""Downloads the jars that the demo needs, in a process that can be ended together with its Java."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from lakefold.local.jars import fetch_jars
from lakefold_table.errors import LakefoldError


def main() -> None:
    """Downloads both sets of jars. If that fails, prints the error on stderr and exits with its exit code."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        fetch_jars("broker")
        fetch_jars("spark")
    except LakefoldError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def _leave(number: int, _: object) -> NoReturn:
    """Exits by an exception, so that incomplete downloads are removed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
