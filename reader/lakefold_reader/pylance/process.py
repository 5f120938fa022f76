"""The process in which pylance works: a fork has none of its threads.

There a read ends the process with a signal, or never ends, in about a third of the cases (pylance 14.0.2,
which warns of it at each fork). So everything that uses pylance asks here first.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Final

from lakefold_table.own_process import OwnProcess

_THREADS: Final = "lance"
"""The names of pylance's threads begin with this."""
_HINT: Final = (
    'start processes with "spawn" or "forkserver" (multiprocessing.set_start_method), or use pylance and '
    "Lance tables in forked processes only"
)


def check_process() -> None:
    """Raises `InvalidError` in a process that was forked from one that had used pylance."""
    _runtime().check()


@cache
def _runtime() -> OwnProcess:
    """Returns the process that has pylance's threads: the first one here that used it."""
    return OwnProcess("the runtime of pylance", hint=_HINT)


def _note_threads() -> None:
    """Notices threads that another use of pylance has started, as far as the system shows their names."""
    if "lance" in sys.modules and any(name.startswith(_THREADS) for name in _names_of_threads()):
        _runtime()


def _names_of_threads() -> list[str]:
    names = []
    for each in Path("/proc/self/task").glob("*/comm"):
        try:
            names.append(each.read_text())
        except OSError:
            # It has ended.
            continue
    return names


os.register_at_fork(before=_note_threads)
