"""Handles Ctrl-C and SIGTERM at moments when a Python exception would be lost or printed as a traceback.

An exception that is raised during an import may be lost or become another error, because extension modules
and libraries catch what their own imports raise. Before the command line is loaded, and after it has ended,
nothing catches the exception, and Python prints a traceback. So the process ends at once at those two
moments, and during an import the exception is delayed until no module is being imported.

A verb that runs until it is stopped waits in the main thread, where Python runs the handlers of signals: a
handler may not be run before the wait ends, or may wait for the lock that the wait has taken. So such a verb
acts in a thread of its own, to which Python hands the signal's number at once.

This module is loaded before all others of the command line, so it imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code: Ctrl-C, or SIGINT from another process."""

_AGAIN_SECONDS: Final = 0.002
_raised: list[int] = []
"""The signals that have raised an exception."""
_wakeups: list[int] = []
"""Where Python writes the numbers of signals, if it was set here."""
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
_IMPORTS: Final = "<frozen importlib"
"""How the file names of Python's own import system begin."""


def end_at_once() -> None:
    """Lets SIGINT end this process with exit code 130 from now on, without any output.

    A handler that a verb has set stays, and SIGINT stays ignored if the parent process had it ignored. A
    `KeyboardInterrupt` that was raised before and is not caught ends the process in the same way.
    """
    sys.excepthook = _unless_interrupted
    if signal.getsignal(signal.SIGINT) in {signal.default_int_handler, _raise}:
        signal.signal(signal.SIGINT, _end)
    if signal.getsignal(signal.SIGTERM) is _raise:
        signal.signal(signal.SIGTERM, _end)


def raise_between_imports(number: signal.Signals) -> None:
    """Lets this signal raise an exception from now on, but not while a module is being imported.

    SIGINT raises `KeyboardInterrupt`, any other signal `SystemExit` with 128 plus its number. SIGINT stays
    ignored if the parent process had it ignored.
    """
    if number != signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, _raise)


def on_end(act: Callable[[], object]) -> None:
    """Calls `act` in a thread of its own at each SIGTERM and SIGINT from now on, and nothing else happens.

    Called again, only the new `act` counts.
    """
    from threading import Thread

    numbers, end = os.pipe()
    os.set_blocking(end, False)
    before = signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    if before in _wakeups:
        # Its thread reads no more.
        _wakeups.remove(before)
        os.close(before)
    _wakeups.append(end)
    for number in _ENDS:
        signal.signal(number, _left_to_the_thread)
    Thread(target=_act_at_each, args=(numbers, act), name="signals", daemon=True).start()


def _act_at_each(numbers: int, act: Callable[[], object]) -> None:
    while received := os.read(numbers, 1):
        if received[0] in _ENDS:
            act()
    os.close(numbers)


def _left_to_the_thread(_: int, __: FrameType | None) -> None:
    """Python hands on the numbers of signals that have a handler."""


def raised_signal() -> int | None:
    """Returns the first signal that has raised an exception in this process, None if none has."""
    return _raised[0] if _raised else None


def _end(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        signal.signal(signal.SIGALRM, lambda _, now: _raise(number, now))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    _raised.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    """Returns whether the main thread is inside an import that the command line has begun.

    Frames below the command line's own are not checked: a program may run it while it is imported itself.
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
