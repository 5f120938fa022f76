"""Starts threads, and reports it as Lakefold's error if the system allows no more of them.

A limit of the user's processes (`ulimit -u`) or of a container's (`pids`) counts threads as well. Python
raises a plain `RuntimeError` then, and librdkafka ends the process if the threads of a consumer can't be
started.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefold_table.errors import NoThreadsError

if TYPE_CHECKING:
    from collections.abc import Iterator

_REFUSED = "can't start new thread"
"""What Python's `RuntimeError` says."""


def start_thread(thread: threading.Thread) -> None:
    """Starts the thread. Raises `NoThreadsError` if the system allows no more threads."""
    with new_threads():
        thread.start()


@contextmanager
def new_threads() -> Iterator[None]:
    """Raises `NoThreadsError` if the block, which starts threads, raises Python's error for lack of them."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _REFUSED:
            raise
        raise no_threads(f"it has {threading.active_count()} of Python's now") from error


def check_room(threads: int) -> None:
    """Raises `NoThreadsError` unless this number of threads can be started now, beside the running ones."""
    end = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(threads):
            thread = threading.Thread(target=end.wait, name="lakefold-room", daemon=True)
            start_thread(thread)
            started.append(thread)
    finally:
        end.set()
        for thread in started:
            thread.join()


def no_threads(reason: str) -> NoThreadsError:
    """Returns the error for a thread that the system refused."""
    return NoThreadsError(
        f"the system allows this process no more threads ({reason})",
        hint="raise the limit of processes (`ulimit -u`, `LimitNPROC` of systemd, the pids limit of the "
        "container), or run fewer programs as this user; then start it again",
    )
