"""The standard streams of this process, so that a closed or full one ends nothing that runs.

A committer whose log can't be written must go on folding: its disk may be full, or what collects its lines
may have died. A verb whose output nobody wants must still end with the exit code of its work. So what can't
be written to stderr is lost and counted, and a stream that was closed is the null device. An error of stdout
stays an error, because what a verb prints is its result.
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
    """An open file to which every write succeeds; `lost` counts those whose bytes were not written."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)
        self.lost = 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes some of the bytes, or loses all of them. Returns how many need not be written again."""
        try:
            return super().write(data)
        except OSError:
            self.lost += 1
            return memoryview(data).nbytes


def mend_streams() -> None:
    """Opens the standard streams that are closed, and lets no write to stderr fail. Call it once, first."""
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            # It gets the number of the stream, unless somebody has taken that.
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
