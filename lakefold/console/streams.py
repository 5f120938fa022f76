"""Repairs the standard streams of this process, so that a closed or full stream doesn't end it.

A committer must continue to fold if its log can't be written: the disk may be full, or the log collector may
have crashed. A verb without stdout must still exit with the code of its work. So a write to stderr that fails
is dropped and counted, and a closed stream becomes the null device. A failed write to stdout stays an error,
because what a verb prints is its result.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MODES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


class LossyFile(io.FileIO):
    """An open file to which every write succeeds. `lost` counts the writes whose bytes were dropped."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)
        self.lost = 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes some of the bytes, or drops all of them. Returns how many need not be written again."""
        try:
            return super().write(data)
        except OSError:
            self.lost += 1
            return memoryview(data).nbytes


def mend_streams() -> None:
    """Opens the standard streams that are closed, and makes all writes to stderr succeed.

    Call it once, first.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            # It gets the file descriptor of the closed stream, unless another file has taken that.
            fd = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(fd, True)  # noqa: FBT003 - positional only
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))
    sys.stderr = lossy(sys.stderr)


def lossy(stream: TextIO) -> TextIO:
    """Returns a text stream to the same file to which every write succeeds."""
    stream.flush()
    buffer = io.BufferedWriter(LossyFile(stream.fileno()))
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=True)


def lost_writes(stream: TextIO) -> int:
    """Returns how many writes to a stream were lost; 0 unless it is `lossy`."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw.lost if isinstance(raw, LossyFile) else 0
