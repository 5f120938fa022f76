"""Sends several requests at once, for stores whose every call waits for a network."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from lakefold_table.new_threads import new_threads, start_thread
from lakefold_table.storage.base import Buffer, Put, Storage, put_or_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Result = TypeVar("Result")
Item = TypeVar("Item")


class RemoteStorage(Storage):
    """A store that is reached over a network. `at_one_time`: how many requests of a call run together."""

    cheap_size = False
    at_one_time: int

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`. Many requests at once."""
        requested = list(paths)
        return dict(zip(requested, together(self.size, requested, self.at_one_time), strict=True))

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `Storage.put_together`. Many requests at once."""
        return together(lambda item: put_or_exists(self, *item), objects, self.at_one_time)

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `Storage.begin_put`. The request is sent by a thread of its own."""
        return begun(lambda: self.put(path, buffers))


def together(ask: Callable[[Item], Result], items: Sequence[Item], at_one_time: int) -> list[Result]:
    """Returns `ask` of each item, in order; at most `at_one_time` run together. Raises the first error."""
    if len(items) <= 1:
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
