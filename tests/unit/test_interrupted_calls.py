"""An interrupt (Ctrl-C) between any two steps of a call on the local file system.

Python raises it between two instructions of the main thread. A descriptor that is closed twice is an error of
its own, which hides the interrupt, and closes another thread's file if the number was given out again.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakefold_table.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

CALLS: dict[str, Callable[[LocalStorage], object]] = {
    "get": lambda storage: storage.get("t/_versions/1"),
    "size": lambda storage: storage.size("t/_versions/1"),
    "list": lambda storage: list(storage.list("t/_versions")),
    "put": lambda storage: storage.put_if_absent("t/new/2", [b"two"]),
}


class Interrupted(BaseException):
    """Replaces `KeyboardInterrupt`, which a test runner takes for its own."""


def interrupt_before(number: int, call: Callable[[], object]) -> None:
    """Calls, and raises `Interrupted` before the n-th instruction of the storage package if there is one."""
    left = number

    def step(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left
        if "lakefold_table/storage" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if not left:
                sys.settrace(None)
                raise Interrupted
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        call()
    finally:
        sys.settrace(before)


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
            interrupt_before(points, lambda: CALLS[name](storage))
        except Interrupted:
            continue
        break
    assert points > 50
