"""Threads that check something repeatedly beside the committer's work: settings, stores, topics."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@contextmanager
def watching(name: str, watches: Iterable[Callable[[threading.Event], None]]) -> Iterator[None]:
    """Runs each of these functions in a thread of its own while the block runs, and then sets their event.

    None of the threads keeps the process alive: a store or a broker may not answer for minutes.
    """
    over = threading.Event()
    try:
        for watch in watches:
            start_thread(threading.Thread(target=watch, args=(over,), name=name, daemon=True))
        yield
    finally:
        over.set()
