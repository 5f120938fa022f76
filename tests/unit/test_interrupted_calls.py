"""An interrupt (Ctrl-C) between any two steps of a call on the local file system.

Python raises it between two instructions of the main thread. A descriptor that is closed twice is an error of
its own, which hides the interrupt, and closes another thread's file if the number was given out again.
"""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefold_table.storage.local import LocalStorage
from tests.interrupting import Interrupted, interrupt_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS: dict[str, Callable[[LocalStorage], object]] = {
    "get": lambda storage: storage.get("t/_versions/1"),
    "size": lambda storage: storage.size("t/_versions/1"),
    "list": lambda storage: list(storage.list("t/_versions")),
    "put": lambda storage: storage.put_if_absent("t/new/2", [b"two"]),
}


@pytest.fixture(autouse=True)
def left_open() -> Iterator[None]:
    """Closes the descriptors that an interrupt leaves open, which in a program end with it."""
    before = set(Path("/proc/self/fd").iterdir())
    yield
    gc.collect()
    for number in set(Path("/proc/self/fd").iterdir()) - before:
        with suppress(OSError):
            os.close(int(number.name))


@pytest.mark.filterwarnings("ignore:Exception ignored in. <posix.ScandirIterator")
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_closes_no_descriptor_twice(name: str, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_if_absent("t/_versions/1", [b"one"])
    points = 0
    while True:
        with suppress(FileNotFoundError):
            (tmp_path / "t/new/2").unlink()
        points += 1
        try:
            interrupt_at(points, lambda: CALLS[name](storage), "lakefold_table/storage")
        except Interrupted:
            continue
        break
    assert points > 50
