"""Sets up the logs: to stderr, so that stdout holds nothing but what a verb was asked for.

A person at a terminal gets aligned, coloured lines; a file or a collector gets one JSON object a line.
"""

from __future__ import annotations

import logging
import os
import sys

import structlog


def configure(level: str = "info") -> None:
    """Log from `level` (debug, info, warning, error) on to stderr, for every `structlog.get_logger()`."""
    terminal = sys.stderr.isatty()
    time = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if terminal else "iso", utc=not terminal)
    ending: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)]
        if terminal
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            time,
            *ending,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
