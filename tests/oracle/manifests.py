"""Reads manifest files by their layout alone, so that the messages are held against bytes that pylance wrote.

It shares no code with the package on purpose: what reads and what is tested must not err together.
"""

import struct
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sections:
    """The bytes of the messages in one manifest file; None where there is no such section."""

    manifest: bytes
    transaction: bytes | None
    index: bytes | None


def read_sections(path: Path) -> Sections:
    """Split a manifest file at its length prefixes, walking from its start to its footer."""
    data = path.read_bytes()
    position, major, minor, magic = struct.unpack("<QHH4s", data[-16:])
    assert (major, minor, magic) == (0, 2, b"LANC")
    messages, offset = [], 0
    while offset < len(data) - 16:
        (length,) = struct.unpack_from("<I", data, offset)
        messages.append((offset, data[offset + 4 : offset + 4 + length]))
        offset += 4 + length
    assert offset == len(data) - 16
    assert messages[-1][0] == position
    found = [message for _, message in messages]
    return Sections(found[-1], found[-2] if len(found) > 1 else None, found[0] if len(found) > 2 else None)


def manifest_files(table: Path) -> list[Path]:
    """The manifest files of a table, oldest version first (their names count down)."""
    return sorted((table / "_versions").glob("*.manifest"), reverse=True)
