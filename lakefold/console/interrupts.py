"""What Ctrl-C and SIGTERM do to this process while Python is not ready for an exception.

An exception that is raised in the middle of an import may be lost, or come out as another error: extension
modules and libraries catch what their own imports raise. Before the command line is loaded, and behind its
end, nobody catches it at all, and a traceback is printed. So at these moments the process ends at once, and
an exception is put off until no module is being imported.

This module is loaded before all others of the command line, so it imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType, TracebackType

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code: Ctrl-C, or SIGINT from elsewhere."""

_AGAIN_SECONDS: Final = 0.002
_IMPORTS: Final = "<frozen importlib"
"""How the file names of Python's own import system begin."""


def end_at_once() -> None:
    """From now on SIGINT ends this process with exit code 130, and prints nothing.

    What a verb has set itself stays, and so does a SIGINT that whoever started the process has it ignore. A
    `KeyboardInterrupt` that was raised already and that nobody catches ends it in the same way.
    """
    sys.excepthook = _unless_interrupted
    if signal.getsignal(signal.SIGINT) in {signal.default_int_handler, _raise}:
        signal.signal(signal.SIGINT, _end)
    if signal.getsignal(signal.SIGTERM) is _raise:
        signal.signal(signal.SIGTERM, _end)


def raise_between_imports(number: signal.Signals) -> None:
    """From now on this signal is an exception, but not while a module is being imported.

    SIGINT raises `KeyboardInterrupt`, any other `SystemExit` with 128 and its number. A SIGINT that whoever
    started the process has it ignore stays so.
    """
    if number != signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, _raise)


def _end(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        signal.signal(signal.SIGALRM, lambda _, now: _raise(number, now))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the main thread is in the middle of an import that the command line has begun.

    What lies below the command line's own frames may be one, if somebody runs it from a module's body.
    """
    while frame is not None and frame.f_globals.get("__name__") != "lakefold.cli":
        if frame.f_code.co_filename.startswith(_IMPORTS):
            return True
        frame = frame.f_back
    return False


def _unless_interrupted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)
