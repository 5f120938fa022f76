"""What verbs write to stderr besides log lines: text, or log lines as well if JSON was requested."""

from __future__ import annotations

import sys


def only_json() -> bool:
    """Returns whether JSON was requested for stderr. False if log lines are JSON since it is no terminal."""
    import structlog

    return bool(getattr(structlog.get_config()["processors"][-1], "is_requested", False))


def write_line(text: str) -> None:
    """Writes a line to stderr, or logs it if stderr is to have JSON lines only."""
    if only_json():
        import structlog

        structlog.get_logger("lakefold").info(text)
        return
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
