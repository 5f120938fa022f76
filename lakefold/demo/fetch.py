"""Downloads the jars that the demo needs, in a process that can be ended together with its Java."""

from __future__ import annotations

import signal
import sys

from lakefold.console.interrupts import raise_between_imports
from lakefold.console.output import print_json
from lakefold.local.jars import fetch_jars
from lakefold_table.errors import LakefoldError

if __name__ == "__main__":
    # By an exception, so that incomplete downloads are removed.
    raise_between_imports(signal.SIGTERM)
    try:
        fetch_jars("broker")
        fetch_jars("spark")
    except LakefoldError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    print_json({"done": True})
