"""Sends several requests at once, for stores whose every call waits for a network."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from lakefold_table.new_threads import new_threads, start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Result = TypeVar("Result")
Item = TypeVar("Item")


def together(ask: Callable[[Item], Result], items: Sequence[Item], at_one_time: int) -> list[Result]:
    """Returns `ask` of each item, in order; at most `at_one_time` run together. Raises the first error."""
    if len(items) < 2:  # noqa: PLR2004 - a single item needs no threads
        return [ask(item) for item in items]
    with new_threads(), ThreadPoolExecutor(min(len(items), at_one_time)) as pool:
        return list(pool.map(ask, items))


def begun(act: Callable[[], Result]) -> Callable[[], Result]:
    """Calls `act` in a thread of its own. Returns a function that waits for its result.

    The thread doesn't keep the process from exiting.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    start_thread(threading.Thread(target=run, name="lakefold-put", daemon=True))
    return future.result
