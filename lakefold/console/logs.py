"""Sets up the logs. They go to stderr, so that stdout contains only the result of a verb.

A terminal gets aligned, coloured lines; a file or a collector gets a JSON object per line, unless the form
is given. Lines contain no secrets, tracebacks no variables.
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
    """Sets up every `structlog.get_logger()` and the standard logging of libraries.

    `level` is the lowest level that is logged (debug, info, warning, error). The lines go to `stream`, or to
    stderr. `form` is json, text, or auto, which is text at a terminal.
    """
    stream = stream or sys.stderr
    terminal = stream.isatty()
    text = terminal if form == "auto" else form == "text"
    time = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if terminal else "iso", utc=not terminal)
    ending: list[structlog.typing.Processor] = (
        [mask_line, _shown, _as_text(colours=terminal and "NO_COLOR" not in os.environ)]
        if text
        else [_TRACEBACKS, mask_line, _Json(is_requested=form == "json")]
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


def are_json() -> bool:
    """Returns whether the logs are JSON lines. False before `configure` was called."""
    last = structlog.get_config()["processors"][-1]
    return isinstance(last, structlog.processors.JSONRenderer)


class _Json(structlog.processors.JSONRenderer):
    """Renders log lines as JSON. `is_requested`: no line on stderr may have another form."""

    def __init__(self, *, is_requested: bool) -> None:
        super().__init__(ensure_ascii=False)
        self.is_requested = is_requested


def _lost_of(stream: TextIO) -> structlog.typing.Processor:
    """Returns a processor that adds `lost` to lines: how many earlier lines could not be written.

    0 is left out.
    """

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
    """Writes a traceback without variables, also if a library is installed that would show them."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exception)
    stream.write(masked(text.getvalue()))


def _adopt_standard_logging(
    before: list[structlog.typing.Processor],
    ending: list[structlog.typing.Processor],
    level: int,
    stream: TextIO,
) -> None:
    """Gives the log lines of libraries, such as the Kafka client, the same form as our own."""
    handler = logging.StreamHandler(stream)
    last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=last, foreign_pre_chain=before))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
