"""A log in a file: the same entries without Kafka, for `lakefold fold`, tests and other languages.

The file is a sequence of envelopes, each after its length as a varint (protobuf's delimited form). A missing
or flipped byte in a length shifts everything after it, so the whole framing is checked before the first entry
is returned. So nothing of a damaged file is folded, instead of a half of it.
"""

from __future__ import annotations

import hashlib
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from google.protobuf.message import DecodeError

from lakefold_log.codec.claims import MAX_ENVELOPE_BYTES
from lakefold_log.codec.envelope import Decoded, classify, decode, encode, parsed
from lakefold_table.entry import Undecodable
from lakefold_table.errors import InvalidError
from lakefold_table.formats import BUILT_IN, Formats
from lakefold_table.position import LogId, Position
from lakefold_table.wire import MORE, varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_protos.lakefold import log_pb2

MAX_FILE_BYTES: Final = 4 << 30
STDIN: Final = "-"
_CHUNK: Final = 1 << 20

# A 64 bit number takes ten bytes of seven bits at most.
_MAX_VARINT_BYTES: Final = 10
# The years that a google.protobuf.Timestamp may name, from 1970 on.
_MAX_SECONDS: Final = 253_402_300_799
_NANOS: Final = 1_000_000_000


class FileLog:
    """A file of envelopes as partition 0 of a log, from offset 0 on.

    `log_id` is a UUID; without it the log is identified by its content (SHA-256), so that the same file is
    the same log at any path. `where` is the file's name, for messages. Raises `InvalidError` with the byte
    offset if the framing is broken or an envelope is larger than `max_envelope_bytes`, and if `log_id` is not
    a UUID.
    """

    def __init__(
        self,
        data: bytes,
        log_id: str | None = None,
        *,
        where: str = "",
        max_envelope_bytes: int = MAX_ENVELOPE_BYTES,
        formats: Formats = BUILT_IN,
    ) -> None:
        self.log = LogId(LogId.FILE_CLUSTER, _uuid_of(data) if log_id is None else _checked(log_id), 0)
        self._data = data
        self._formats = formats
        self._frames = list(_frames(data, where, max_envelope_bytes))

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Decoded]:
        """Returns the decoded message at each position, in order; its time is `proposed_at`, 0 if not set."""
        for offset, (start, end) in enumerate(self._frames):
            yield self._at(Position(self.log, offset), self._data[start:end])

    def _at(self, position: Position, data: bytes) -> Decoded:
        try:
            envelope = parsed(data)
        except DecodeError:
            return decode(data, None, position, 0, self._formats)
        seconds, nanos = envelope.proposed_at.seconds, envelope.proposed_at.nanos
        if not (0 <= seconds <= _MAX_SECONDS and 0 <= nanos < _NANOS):
            text = f"proposed_at is not a time since 1970: {seconds} s, {nanos} ns"
            return Undecodable(position, 0, envelope.table, text, "leave it out or correct it", len(data))
        time_us = seconds * 1_000_000 + nanos // 1000
        return classify(envelope, None, position, time_us, len(data), formats=self._formats)


def read_file_log(source: str | Path, log_id: str | None = None) -> FileLog:
    """Returns the log in a file (`-`: standard input), read whole. Raises `InvalidError` as `FileLog` does.

    Also raises it if the file does not exist, or is larger than `MAX_FILE_BYTES`.
    """
    name = str(source)
    try:
        if name == STDIN:
            return FileLog(_whole(sys.stdin.buffer, name), log_id, where=name)
        with Path(source).open("rb") as file:
            return FileLog(_whole(file, name), log_id, where=name)
    except OSError as error:
        hint = "give a file of length-delimited envelopes, or - for standard input"
        raise InvalidError(f"can't be read: {error.strerror}", where=name, hint=hint) from error


def _whole(file: BinaryIO, name: str) -> bytes:
    parts, size = [], 0
    while part := file.read(_CHUNK):
        size += len(part)
        if size > MAX_FILE_BYTES:
            message = f"it is larger than {MAX_FILE_BYTES:,} bytes"
            raise InvalidError(message, where=name, hint="split it into several files")
        parts.append(part)
    return b"".join(parts)


def framed(envelopes: Iterable[log_pb2.Envelope]) -> bytes:
    """Returns the bytes of a file log that contains these envelopes."""
    parts: list[bytes] = []
    for data in map(encode, envelopes):
        parts += (varint(len(data)), data)
    return b"".join(parts)


def _frames(data: bytes, where: str, limit: int) -> Iterator[tuple[int, int]]:
    """Returns start and end of each envelope. Raises `InvalidError` at the first length that doesn't fit."""
    at, end, count = 0, len(data), 0
    while at < end:
        size, start = _length_at(data, at)
        fault = ""
        if size is None:
            fault = "has a length of more than ten bytes" if start < end else "has a length that is cut off"
        elif size > limit:
            fault = f"has a length of {size} bytes, the limit is {limit}"
        elif size > end - start:
            fault = f"has a length of {size} bytes, but {end - start} are left"
        if size is None or fault:
            message = f"envelope {count} at byte {at} {fault}"
            hint = "nothing was folded; the file must be varint-length-delimited Envelope messages, whole"
            raise InvalidError(message, where=where, hint=hint)
        yield start, start + size
        at, count = start + size, count + 1


def _length_at(data: bytes, at: int) -> tuple[int | None, int]:
    """Returns the varint at byte `at` and its end; None instead of it if it is cut off or too long."""
    size = 0
    for i in range(_MAX_VARINT_BYTES):
        if at + i >= len(data):
            return None, len(data)
        byte = data[at + i]
        size |= (byte & 0x7F) << (7 * i)
        if byte < MORE:
            return size, at + i + 1
    return None, at


def _uuid_of(data: bytes) -> str:
    """Returns a UUID of the content: the start of its SHA-256, marked as version 8 (RFC 9562: custom)."""
    number = int.from_bytes(hashlib.sha256(data).digest()[:16], "big")
    number = number & ~(0xF << 76) | 8 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    return str(uuid.UUID(int=number))


def _checked(log_id: str) -> str:
    try:
        return str(uuid.UUID(log_id))
    except ValueError as error:
        raise InvalidError(
            f"the log id {log_id!r} is not a UUID", hint="leave it out to derive one"
        ) from error
