"""Z85, the base-85 text in which actions hold bytes: four bytes in five characters (Delta fact 5.1)."""

from __future__ import annotations

import base64
from typing import Final

from lakefold_table.errors import DamagedError

_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC_1924: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_PYTHON: Final = bytes.maketrans(_Z85, _RFC_1924)
_FROM_PYTHON: Final = bytes.maketrans(_RFC_1924, _Z85)
_CHARACTERS: Final = frozenset(_Z85.decode())
BYTES: Final = 4
CHARACTERS: Final = 5


def decode_z85(text: str, where: str = "") -> bytes:
    """Returns the bytes of a text. Raises `DamagedError` if it is no Z85."""
    if len(text) % CHARACTERS or not _CHARACTERS.issuperset(text):
        raise DamagedError(f"{text[:40]!r} is not encoded in Z85", where=where)
    try:
        return base64.b85decode(text.encode().translate(_TO_PYTHON))
    except ValueError as error:
        raise DamagedError(f"{text[:40]!r} is not encoded in Z85", where=where) from error


def encode_z85(data: bytes) -> str:
    """Returns the text of bytes, filled up with zeros to a multiple of four."""
    filled = data + bytes(-len(data) % BYTES)
    return base64.b85encode(filled).translate(_FROM_PYTHON).decode()
