"""An interrupt (Ctrl-C) at any moment of a call at which Python raises one in the main thread.

The interpreter looks for signals when a function begins or has returned, and when a loop begins again. So
none comes e.g. between the moment a lock is acquired by `with` and the block.
"""

from __future__ import annotations

import dis
import sys
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from _typeshed import TraceFunction


class Interrupted(KeyboardInterrupt):
    """An interrupt that a test has caused."""


LOOKING = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"}
"""The instructions after which the interpreter looks for signals."""


@cache
def _moments(code: CodeType) -> frozenset[int]:
    instructions = list(dis.get_instructions(code))
    pairs = pairwise(instructions)
    return frozenset(later.offset for each, later in pairs if each.opname in LOOKING)


def interrupt_at(number: int, call: Callable[[], object], where: str) -> None:
    """Calls, and raises `Interrupted` at the n-th moment in the files below `where`, if there is one."""
    left = number

    def step(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left
        if where not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in _moments(frame.f_code):
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
