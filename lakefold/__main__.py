"""The entry point of the command line: `lakefold`, or `python -m lakefold` if that is not on the PATH.

Its imports take a moment. Ctrl-C must end the process without a traceback during that time too.
"""

import sys

from lakefold.console.interrupts import end_at_once

end_at_once()
# structlog loads rich if that is installed, a quarter of the time of a start. No log line needs it.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type] # Python's documented way to have no such module

from lakefold.cli import main  # noqa: E402 - this is what takes long

if __name__ == "__main__":
    main()
