"""Percent-encoding, of paths in the log and of the text that a checksum is made from."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def decode_percent(text: str) -> str:
    """Returns the decoded text. Raises `ValueError` if a `%` begins no escape, or the bytes are not UTF-8."""
    if _MALFORMED.search(text):
        raise ValueError("a % is not followed by two hexadecimal digits")
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode()).decode()


def encode_percent(text: str) -> str:
    """Returns the text with everything escaped but letters, digits, and `-._~`."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode())
