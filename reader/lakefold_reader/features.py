"""What the feature flags of a version mean: a number tells nobody whether a client can open it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        1: "some rows are deleted by deletion files",
        2: "rows keep their id for life",
        4: "data files of version 2 (an older sign)",
        8: "the table has a configuration",
        16: "files may lie under other roots",
        32: "versions have no transaction file",
        64: "data overlay files",
        128: "covering indices",
        256: "data files of several versions",
        1024: "a fragment-reuse index with tags",
        2048: "row ids and versions lie in data files",
        32768: "field ids are never used again",
    }
)
"""Format facts, section 8."""

BITS = 64


@dataclass(frozen=True, slots=True)
class Feature:
    """One flag: its bit value, what it means, and who must know it."""

    flag: int
    meaning: str
    readers: bool
    writers: bool


def features_of(reader_flags: int, writer_flags: int) -> tuple[Feature, ...]:
    """The flags that are set, ascending."""
    flags = [1 << bit for bit in range(BITS) if (reader_flags | writer_flags) >> bit & 1]
    return tuple(
        Feature(flag, MEANINGS.get(flag, "not known"), bool(reader_flags & flag), bool(writer_flags & flag))
        for flag in flags
    )
