"""The entry point of the command line: `lakefold`, or `python -m lakefold` if that is not on the PATH.

Its imports take a moment. Ctrl-C must end the process without a traceback during that time too.
"""

from lakefold.console.interrupts import end_at_once

end_at_once()

from lakefold.cli import main  # noqa: E402 - this is what takes long

if __name__ == "__main__":
    main()
