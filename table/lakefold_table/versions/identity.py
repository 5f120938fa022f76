"""What tells a version from another one of its number: a table that was dropped and made again has such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.storage.base import Buffer

HEAD_BYTES: Final = 4096
"""So many of a version's first bytes are kept. In ours they name the transaction, in others' the files of the
first fragments."""


@dataclass(frozen=True, slots=True)
class Known:
    """The file of a version that was read or put: its size in bytes, and its first `HEAD_BYTES`."""

    version: int
    size: int
    head: bytes

    @classmethod
    def of(cls, version: int, buffers: Sequence[Buffer]) -> Known:
        """That of these joined buffers."""
        head = b""
        for buffer in buffers:
            head += memoryview(buffer)[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                break
        return cls(version, sum(memoryview(buffer).nbytes for buffer in buffers), head)
