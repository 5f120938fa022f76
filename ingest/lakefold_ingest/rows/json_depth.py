"""How many levels deep JSON is nested, which is checked before Arrow parses it.

Arrow's parser calls itself for each level of nesting: some thousand levels end the process (SIGSEGV).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MOST_DEPTH: Final = 500
TOO_DEEP: Final = f"it is nested more than {MOST_DEPTH} levels deep"
_BLOCK: Final = 2**22
_NO_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"\[\]{}]+', re.DOTALL)
_OPENING: Final = np.frombuffer(b"[{", np.uint8)
_CLOSING: Final = np.frombuffer(b"]}", np.uint8)
_OBJECT: Final = np.frombuffer(b"{}", np.uint8)


def depth_of(text: bytes) -> int:
    """Returns how many levels deep a text is nested, or more if it is not JSON."""
    levels = np.concatenate([[0], np.cumsum(_steps(text))])
    return int((levels - np.minimum.accumulate(levels)).max())


def check_depth(file: BinaryIO, where: str) -> None:
    """Reads JSON values from a file, in any number of lines.

    Raises `InvalidError` if one of them is nested more than `MOST_DEPTH` levels deep.
    """
    level = 0
    for block in _blocks(file):
        if not level and _has_shallow_objects(block):
            continue
        levels = level + np.cumsum(_steps(block), dtype=np.int64)
        if levels.size and levels.max() > MOST_DEPTH:
            raise InvalidError(f"the file can't be read: {TOO_DEEP}", where=where, hint="flatten such values")
        level = max(0, int(levels[-1])) if levels.size else level


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yields the file in parts that end with a line, in which no text of JSON begins before it."""
    while block := file.read(_BLOCK):
        yield block + file.readline()


def _has_shallow_objects(block: bytes) -> bool:
    """Returns whether each line of a block begins and ends as an object does, and has few opening brackets.

    Only at the end of a whole object JSON allows that another one begins, so each line is such an object.
    This takes a small part of the time of counting its levels.
    """
    data = np.frombuffer(block.rstrip() + b"\n", np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends == starts).any() or (data[starts] != _OBJECT[0]).any() or (data[ends - 1] != _OBJECT[1]).any():
        return False
    opening = np.flatnonzero((data == _OPENING[0]) | (data == _OPENING[1]))
    before = np.searchsorted(opening, np.append(starts, data.size))
    return bool(np.diff(before).max() <= MOST_DEPTH)


def _steps(text: bytes) -> NDArray[np.int8]:
    """Returns 1 for each opening bracket and -1 for each closing one, without those in texts."""
    brackets = np.frombuffer(_NO_BRACKETS.sub(b"", text), np.uint8)
    return np.isin(brackets, _OPENING).astype(np.int8) - np.isin(brackets, _CLOSING).astype(np.int8)
