"""Tells a lack of memory from bytes that are no message: the protobuf library raises one error for both.

Bytes that are no message are refused or called damaged for good. Whoever has too little memory just now may
have enough later, so nothing may be answered then.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError, EncodeError

_SAYS: Final = "alloc failed"
"""What the library says if it got no memory (tried, protobuf 7: "Arena alloc failed")."""


def check_allocated(error: BaseException) -> None:
    """Raises `MemoryError` if an error while decoding a message came from a lack of memory."""
    if _SAYS in str(error):
        raise MemoryError(str(error)) from None


def lacks_memory(error: BaseException) -> bool:
    """Whether an error means that there was too little memory.

    What could be decoded can be encoded, so nothing else makes the protobuf library fail at that.
    """
    return isinstance(error, MemoryError | EncodeError) or (
        isinstance(error, DecodeError) and _SAYS in str(error)
    )
