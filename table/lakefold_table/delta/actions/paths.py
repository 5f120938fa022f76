"""Where the file of an action is: a path below the table, or a URI of its own.

The log holds paths percent-encoded (Delta fact 3.1). A path with `..` is refused, since it could name
files of other tables.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from lakefold_table.errors import DamagedError
from lakefold_table.values import value

CHANGE_DATA: Final = "_change_data/"
"""The folder of change data files, as it begins their paths."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ASCII_ESCAPE: Final = re.compile(r"%[0-7][0-9A-Fa-f]")
HINT: Final = "name files below the table, or by an absolute URI, percent-encoded"
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SLASH: Final = re.compile(r"%2[Ff]")
_LOWER_CASE: Final = re.compile(r"%(?:[a-f]|[0-9A-F][a-f])")
_IN_NO_URI: Final = re.compile(
    r"""[\x00-\x20"#<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"""
)
"""The characters that a URI has only escaped, and `?` and `#`, which end its path."""
_NOT_IN_JAVA: Final = re.compile(f"{_IN_NO_URI.pattern}|%")
"""What Java escapes in the path of a URI. Other characters that are not ASCII stay."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~/=-]*")
"""A path that each client writes so, but for `=`."""
_RESERVED: Final = "/=!$&'()*+,;:@"
"""What may be in the path of a URI with and without an escape."""
_BEGINNINGS: Final = {"file": ("", "file:", "file://"), "s3": ("s3://", "s3a://")}
"""How clients begin the absolute paths of files, by the scheme of the table's URI."""
_UNRESERVED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def decode_percent(text: str) -> str:
    """Returns the decoded text. Raises `ValueError` if a `%` begins no escape, or the bytes are not UTF-8."""
    if _MALFORMED.search(text):
        raise ValueError("a % is not followed by two hexadecimal digits")
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode()).decode()


def encode_percent(text: str, kept: str = "") -> str:
    """Returns the text with everything escaped but letters, digits, `-._~`, and ASCII characters to keep."""
    raw = _UNRESERVED.union(kept.encode())
    return "".join(chr(byte) if byte in raw else f"%{byte:02X}" for byte in text.encode())


@value()
class FilePath:
    """A decoded path. `absolute`: it is a URI, or begins with a slash; else it is relative to the table."""

    text: str
    absolute: bool


def needless_part(encoded: str) -> bool:
    """Returns whether a relative path is written as no client writes it: no file may be in a table twice."""
    if any(part in ("", ".") for part in encoded.split("/")):
        return True
    if "%" not in encoded:
        return False
    if _SLASH.search(encoded) or _LOWER_CASE.search(encoded):
        return True
    return any(encode_percent(char) == char for char in map(decode_percent, _ASCII_ESCAPE.findall(encoded)))


def unescaped(encoded: str) -> str:
    """Returns the first character of a path that other clients take only as an escape, empty if none is."""
    match = _IN_NO_URI.search(encoded)
    return "" if match is None else match[0]


def other_spellings(encoded: str, table: str = "") -> set[str]:
    """Returns how else clients write the path of this file (Delta fact 3.2): they escape other characters.

    `table`: the table's canonical URI, if its files may also be named by absolute paths. Raises `ValueError`
    if the path is not percent-encoded.
    """
    roots = _roots(table)
    within = next((encoded.removeprefix(root) for root in roots if encoded.startswith(root)), encoded)
    relative = {within, *_escaped_otherwise(within)}
    return {*relative, *(f"{root}{path}" for root in roots for path in relative)} - {encoded}


@lru_cache(256)
def _roots(table: str) -> tuple[str, ...]:
    """Returns how the absolute path of a file of the table begins; nothing if the table has no URI."""
    scheme, _, root = table.partition("://")
    if not root:
        return ()
    # A URI of a bucket may have a % that begins no escape.
    escaped = _MALFORMED.sub("%25", root)
    spellings = sorted({root, escaped, decode_percent(escaped), *_escaped_otherwise(escaped)})
    beginnings = _BEGINNINGS.get(scheme, (f"{scheme}://",))
    return tuple(f"{beginning}{path}/" for beginning in beginnings for path in spellings)


def _escaped_otherwise(encoded: str) -> set[str]:
    if _PLAIN.fullmatch(encoded):
        return {encoded.replace("=", "%3D")}
    path = decode_percent(encoded)
    escaped = {encode_percent(path, kept) for kept in ("/", "/=", _RESERVED)}
    in_java = _NOT_IN_JAVA.sub(lambda match: encode_percent(match[0]), path)
    return {*escaped, in_java}


def hidden_part(path: str) -> str:
    """Returns the first part of a decoded path that Delta's clients overlook, empty if there is none.

    It begins with `_` or a dot. Folders of partitions have an equals sign, and are not hidden.
    """
    return next((part for part in path.split("/") if part[:1] in ("_", ".") and "=" not in part), "")


def is_hidden(path: str) -> bool:
    """Returns whether Delta's clients overlook a decoded path, which is not that of a change data file."""
    return bool(hidden_part(path.removeprefix(CHANGE_DATA)))


def file_path(encoded: str, where: str = "") -> FilePath:
    """Returns the file that a path of the log names. Raises `DamagedError` if it can't be a file's path."""
    try:
        path = decode_percent(encoded)
    except ValueError as error:
        message = f"the path {encoded!r} is not percent-encoded: {error}"
        raise DamagedError(message, where=where, hint=HINT) from error
    if not path or "\0" in path:
        raise DamagedError(f"{encoded!r} is not a path of a file", where=where, hint=HINT)
    if ".." in path.split("/"):
        raise DamagedError(f"the path {encoded!r} leads out of its folder by '..'", where=where, hint=HINT)
    return FilePath(path, path.startswith("/") or _SCHEME.match(encoded) is not None)
