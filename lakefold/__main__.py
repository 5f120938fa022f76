"""The command line's own entry: `lakefold`, and `python -m lakefold` where that is not on the PATH.

What it imports takes a while, and Ctrl-C must end it quietly meanwhile.
"""

from lakefold.console.interrupts import end_at_once

end_at_once()

from lakefold.cli import main  # noqa: E402 - this is what takes long

if __name__ == "__main__":
    main()
