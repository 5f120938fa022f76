"""Reads manifest files by their layout alone, so that messages are compared with bytes that pylance wrote.

It shares no code with the package's own reader on purpose: otherwise both could have the same fault.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from lakefold_protos.lance.table_pb2 import Manifest


@dataclass(frozen=True)
class Sections:
    """The bytes of the messages in a manifest file; None if a section doesn't exist."""

    manifest: bytes
    transaction: bytes | None
    index: bytes | None


def read_sections(path: Path) -> Sections:
    """Split a manifest file at the offsets that its footer and its manifest name."""
    data = path.read_bytes()
    position, major, minor, magic = struct.unpack("<QHH4s", data[-16:])
    assert (major, minor, magic) == (0, 2, b"LANC")

    def section(offset: int) -> bytes:
        (length,) = struct.unpack_from("<I", data, offset)
        return data[offset + 4 : offset + 4 + length]

    stream = section(position)
    assert position + 4 + len(stream) == len(data) - 16
    manifest = Manifest.FromString(stream)
    return Sections(
        manifest=stream,
        transaction=section(manifest.transaction_section)
        if manifest.HasField("transaction_section")
        else None,
        index=section(manifest.index_section) if manifest.HasField("index_section") else None,
    )


def manifest_files(table: Path) -> list[Path]:
    """The manifest files of a table, oldest version first (their names count down)."""
    return sorted((table / "_versions").glob("*.manifest"), reverse=True)
