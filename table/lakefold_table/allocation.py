"""Distinguishes a lack of memory from bytes that are not a message: protobuf raises one error for both.

Bytes that are not a message are refused or reported as damaged for good. A process with too little memory now
may have enough later, so nothing may be answered then.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError, EncodeError

_SAYS: Final = "alloc failed"
"""What the library's error says if it got no memory (seen with protobuf 7: "Arena alloc failed")."""


def check_allocated(error: BaseException) -> None:
    """Raises `MemoryError` if an error while decoding a message came from a lack of memory."""
    if _SAYS in str(error):
        raise MemoryError(str(error)) from None


def lacks_memory(error: BaseException) -> bool:
    """Returns whether an error means that there was too little memory.

    Whatever could be decoded can be encoded, so encoding fails for no other reason.
    """
    return isinstance(error, MemoryError | EncodeError) or (
        isinstance(error, DecodeError) and _SAYS in str(error)
    )
