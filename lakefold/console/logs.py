"""Sets up the logs: to stderr, so that stdout holds nothing but what a verb was asked for.

A person at a terminal gets aligned, coloured lines; a file or a collector gets one JSON object a line, unless
it was said which. No line holds a secret, a traceback no variables.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import TextIO

import structlog

from lakefold.console.masking import mask_line, masked
from lakefold.console.output import shown
from lakefold.console.streams import lost_writes

# Without the local variables: they may hold a secret.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure(level: str = "info", stream: TextIO | None = None, form: str = "auto") -> None:
    """Log from `level` (debug, info, warning, error) on, for every `structlog.get_logger()`.

    The lines go to `stream`, else to stderr. `form`: json, text, or auto, which is text at a terminal.
    """
    stream = stream or sys.stderr
    terminal = stream.isatty()
    text = terminal if form == "auto" else form == "text"
    time = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if terminal else "iso", utc=not terminal)
    ending: list[structlog.typing.Processor] = (
        [mask_line, _shown, _as_text(colours=terminal and "NO_COLOR" not in os.environ)]
        if text
        else [_TRACEBACKS, mask_line, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        time,
        _lost_of(stream),
    ]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    _adopt_standard_logging([*shared, structlog.stdlib.ExtraAdder()], ending, number, stream)


def _lost_of(stream: TextIO) -> structlog.typing.Processor:
    """Returns what adds `lost` to each line: how many lines of this process could not be written so far."""

    def add(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if lost := lost_writes(stream):
            line["lost"] = lost
        return line

    return add


def _shown(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = shown(value)
    return line


def _as_text(*, colours: bool) -> structlog.typing.Processor:
    return structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=_plain_traceback)


def _plain_traceback(stream: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """A traceback without variables, whatever is installed that could show them."""
    told = io.StringIO()
    structlog.dev.plain_traceback(told, exception)
    stream.write(masked(told.getvalue()))


def _adopt_standard_logging(
    before: list[structlog.typing.Processor],
    ending: list[structlog.typing.Processor],
    level: int,
    stream: TextIO,
) -> None:
    """Give the lines of libraries (the Kafka client's among them) the same form as our own."""
    handler = logging.StreamHandler(stream)
    last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=last, foreign_pre_chain=before))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
