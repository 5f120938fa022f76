"""Where deletion vectors are stored, and how they are read from there (Delta facts 5.4, 5.5).

Actions hold bytes as Z85, a text in base 85: four bytes in five characters (Delta fact 5.1).
"""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lakefold_table.delta.actions.file_actions import DeletionVector
from lakefold_table.delta.deletion_vectors.serialisation import Rows, count_rows, decode_rows, encode_rows
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.bitmaps import Bitmap

INLINE: Final = "i"
RELATIVE: Final = "u"
ABSOLUTE: Final = "p"
FILE_VERSION: Final = 1
LENGTH_BYTES: Final = 4
CHECKSUM_BYTES: Final = 4
_UUID_CHARACTERS: Final = 20
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC_1924: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_PYTHON: Final = bytes.maketrans(_Z85, _RFC_1924)
_FROM_PYTHON: Final = bytes.maketrans(_RFC_1924, _Z85)
_ALPHABET: Final = frozenset(_Z85.decode())
_Z85_BYTES: Final = 4
_Z85_CHARACTERS: Final = 5
_FILE_NAME: Final = re.compile(
    r"(?:(?P<folder>[^/]+)/)?deletion_vector_(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.bin"
)
_HINT: Final = "restore the deletion vector from a copy: without it deleted rows would be read"


def vector_path(vector: DeletionVector, where: str = "") -> str | None:
    """Returns the file of a deletion vector: a path below the table's root, or an absolute URI.

    Returns None if the vector is inline. Raises `DamagedError` if it can't be located.
    """
    if vector.storage_type == INLINE:
        return None
    if vector.storage_type == ABSOLUTE:
        return vector.path_or_inline
    if vector.storage_type != RELATIVE:
        message = f"deletion vectors can't be stored as {vector.storage_type!r}"
        raise DamagedError(message, where=where, hint="read the table by a newer release")
    prefix, encoded = vector.path_or_inline[:-_UUID_CHARACTERS], vector.path_or_inline[-_UUID_CHARACTERS:]
    if len(encoded) < _UUID_CHARACTERS or "/" in prefix or prefix in (".", ".."):
        message = f"the deletion vector's name {vector.path_or_inline!r} is malformed"
        raise DamagedError(message, where=where, hint=_HINT)
    name = f"deletion_vector_{UUID(bytes=decode_z85(encoded, where))}.bin"
    return f"{prefix}/{name}" if prefix else name


def relative_vector(vector: DeletionVector, path: str) -> DeletionVector | None:
    """Returns a vector whose file is at this path below the table's root, named by that.

    Returns None if the file's name is not one that a relative vector can have.
    """
    match = _FILE_NAME.fullmatch(path)
    if match is None:
        return None
    name = (match["folder"] or "") + encode_z85(UUID(match["uuid"]).bytes)
    return replace(vector, storage_type=RELATIVE, path_or_inline=name)


def inline_rows(vector: DeletionVector, where: str = "") -> dict[int, Bitmap]:
    """Returns the rows of a vector that its action holds. Raises `DamagedError`."""
    data = decode_z85(vector.path_or_inline, where)
    # The bytes were filled up to a multiple of four.
    if not vector.size <= len(data) < vector.size + 4:
        message = f"the deletion vector has {len(data)} bytes, its action says {vector.size}"
        raise DamagedError(message, where=where, hint=_HINT)
    return _checked(vector, data[: vector.size], where)


def stored_rows(vector: DeletionVector, content: bytes, where: str = "") -> dict[int, Bitmap]:
    """Returns the rows of a vector in the content of its file. Raises `DamagedError`."""
    if content[:1] != bytes([FILE_VERSION]):
        raise DamagedError("the file does not contain deletion vectors", where=where, hint=_HINT)
    start = 1 if vector.offset is None else vector.offset
    data = start + LENGTH_BYTES
    end = data + vector.size
    if start < 1 or vector.size < 0 or end + CHECKSUM_BYTES > len(content):
        message = f"the file of {len(content)} bytes ends before the deletion vector at {start} does"
        raise DamagedError(message, where=where, hint=_HINT)
    size = int.from_bytes(content[start:data], "big")
    if size != vector.size:
        message = f"the deletion vector has {size} bytes, its action says {vector.size}"
        raise DamagedError(message, where=where, hint=_HINT)
    if int.from_bytes(content[end : end + CHECKSUM_BYTES], "big") != zlib.crc32(content[data:end]):
        raise DamagedError("the deletion vector's checksum is wrong", where=where, hint=_HINT)
    return _checked(vector, content[data:end], where)


def inline_vector(rows: Rows) -> DeletionVector:
    """Returns the vector that holds these rows in the action itself."""
    data = encode_rows(rows)
    return DeletionVector(INLINE, encode_z85(data), len(data), count_rows(rows))


def vector_file(several: Iterable[Rows], uuid: UUID) -> tuple[bytes, list[DeletionVector]]:
    """Returns the content of a file with several vectors, and the vectors. `uuid` names the file."""
    content = bytearray([FILE_VERSION])
    vectors = []
    for rows in several:
        data = encode_rows(rows)
        name = encode_z85(uuid.bytes)
        vectors.append(DeletionVector(RELATIVE, name, len(data), count_rows(rows), len(content)))
        content += len(data).to_bytes(LENGTH_BYTES, "big") + data
        content += zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "big")
    return bytes(content), vectors


def _checked(vector: DeletionVector, data: bytes, where: str) -> dict[int, Bitmap]:
    rows = decode_rows(data, where)
    if count_rows(rows) != vector.cardinality:
        message = f"the deletion vector has {count_rows(rows)} rows, its action says {vector.cardinality}"
        raise DamagedError(message, where=where, hint=_HINT)
    return rows


def decode_z85(text: str, where: str = "") -> bytes:
    """Returns the bytes of a text. Raises `DamagedError` if it is not Z85."""
    if len(text) % _Z85_CHARACTERS or not _ALPHABET.issuperset(text):
        raise DamagedError(f"{text[:40]!r} is not encoded in Z85", where=where)
    try:
        return base64.b85decode(text.encode().translate(_TO_PYTHON))
    except ValueError as error:
        raise DamagedError(f"{text[:40]!r} is not encoded in Z85", where=where) from error


def encode_z85(data: bytes) -> str:
    """Returns the text of bytes, filled up with zeros to a multiple of four."""
    filled = data + bytes(-len(data) % _Z85_BYTES)
    return base64.b85encode(filled).translate(_FROM_PYTHON).decode()
