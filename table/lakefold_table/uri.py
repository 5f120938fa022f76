r"""Canonical table URIs: one table must have one name, because that name is the key of its log.

Two spellings of one table would be two keys, and two keys may go to two partitions with two committers. So
every text that people or programs give for a table passes through `canonical` once, and its result is used
from there on: as the key, in the envelope, in settings and in messages.

The rules (vectors: `tests/contracts/uri.json`):

- The scheme and the bucket (host) are written in lower case; `s3a`, as Hadoop calls it, is `s3`.
- No trailing slash, no empty and no `.` segments. `..` is refused in a URI, also as `%2e%2e`.
- A query is kept only for `ddbTableName`, the external manifest store's table. A fragment (`#`) is refused.
- Percent-encoding is left alone. So one location can still be spelled in two ways (`k=v` and `k%3Dv`);
  `parse_location` returns what both name, and its results compare equal.
- A plain path or a `file:` URI becomes `file://` and its real path: absolute, without symbolic links, `..` or
  `~` (which is a name like any other). A plain path is taken as it is: `%20` in it is three characters.

The form of `file://` and a real path for unusual names follows what Lance clients do with a URI (pylance
14.0.2): they decode percent-encoding, take `?` and `#` for a query and a fragment, read `\` as `/`, and drop
spaces at the end. Spaces elsewhere and non-ASCII letters they take as they are. So in a real path exactly
`%`, `?`, `#`, `\` and a space at the very end are percent-encoded, and the rest stays: `/lake/é t` is
`file:///lake/é t`, `/lake/100%` is `file:///lake/100%25`. Any Lance client opens the result, and `local_path`
returns the path. ASCII control characters and bytes that are not UTF-8 are refused: no Lance client opens
such a path.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE: Final = "file"
_DDB: Final = "ddbTableName"
_ALIASES: Final = {"s3a": "s3"}
_DBFS: Final = "dbfs"
_AZURE: Final = "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
NOT_BUILT: Final = {
    _DBFS: "name the bucket itself, as s3://BUCKET/PATH: `dbutils.fs.mounts()` shows which one it is",
    **dict.fromkeys(["abfs", "wasb", "wasbs"], _AZURE),
}
"""What to write instead of some schemes for which no store is built."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
# Hadoop and Java write local URIs with one slash.
_FILE_WITH_ONE_SLASH = re.compile(r"file:(/(?!/).*)", re.DOTALL | re.IGNORECASE)
_OTHER_WITH_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
# A bucket, a host with a port, or (Azure) container@host. Never user:password, which must not be in a key.
_AUTHORITY = re.compile(r"(?:[a-z0-9._-]+@)?[a-z0-9._-]+(?::[0-9]+)?")
_LOGIN = re.compile(r"(?<=://)[^/@]*:[^/@]*(?=@)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LOOKS: Final = 20
"""How often a path is looked at whose links are being replaced."""
_NOT_AS_THEY_ARE = re.compile(r"[%?#\\]| \Z")


@dataclass(frozen=True, slots=True)
class Location:
    """The parts of a canonical URI, percent-decoded. Two URIs with equal parts name the same table.

    `authority` is the bucket or host (empty for a local path); `external` is the value of `ddbTableName`.
    """

    scheme: str
    authority: str
    segments: tuple[str, ...]
    external: str = ""

    @property
    def path(self) -> str:
        """The segments joined by `/`, without a leading one: the key prefix in a bucket."""
        return "/".join(self.segments)


def canonical(text: str | os.PathLike[str]) -> str:
    """Returns the only name of the table (or root) that `text` names: a URI or a plain local path.

    A `PathLike` is always a path, never read as a URI. For local paths the file system resolves symbolic
    links (some 10 µs), so call this once per table, not once per entry.

    Raises `InvalidError`, which says what a table's URI can't contain and how to write it instead.
    """
    if isinstance(text, os.PathLike):
        return _of_path(os.fspath(text))
    if not isinstance(text, str):
        hint = "give a text or a pathlib.Path"  # type: ignore[unreachable] # by callers that check types
        raise InvalidError(f"{text!r} is not a table's name", hint=hint)
    if not text:
        raise InvalidError("the table's name is empty", hint="give a path or a URI such as s3://lake/flights")
    if uri := _URI.fullmatch(text):
        scheme = uri[1].lower()
        # What is refused is shown, in logs too; a login is refused, and may be a real one.
        return _of_uri(_LOGIN.sub("***", text), _ALIASES.get(scheme, scheme), uri[2])
    if local := _FILE_WITH_ONE_SLASH.fullmatch(text):
        return _of_uri(text, FILE, local[1])
    if short := _OTHER_WITH_ONE_SLASH.match(text):
        if short[1].lower() == _DBFS:
            message = "tables in dbfs:/, Databricks' file system, are not built in this release"
            raise InvalidError(message, where=text, hint=NOT_BUILT[_DBFS])
        hint = f"write {short[1]}://… for a URI, or ./{text} for a local path"
        raise InvalidError("a URI has two slashes after its scheme", where=text, hint=hint)
    return _of_path(text)


def parse_location(uri: str) -> Location:
    """Returns the parts of a canonical `uri`. Raises `InvalidError` if it is not a URI."""
    match = _URI.fullmatch(uri)
    if not match:
        raise InvalidError("this is not a canonical URI", where=uri, hint="use the result of canonical()")
    path, _, query = match[2].partition("?")
    authority, _, rest = path.partition("/")
    segments = tuple(unquote(segment) for segment in rest.split("/") if segment)
    return Location(match[1], authority, segments, unquote(query.partition("=")[2]))


def local_path(uri: str) -> str:
    """Returns the absolute path of a canonical `file://` URI. Raises `InvalidError` for any other scheme."""
    location = parse_location(uri)
    if location.scheme != FILE:
        raise InvalidError(f"a {location.scheme} URI has no local path", where=uri, hint="give a file:// URI")
    return "/" + location.path


def is_under(uri: str, roots: Iterable[str]) -> bool:
    """Returns whether the canonical `uri` is a root of the canonical `roots`, or is below a root.

    Compared segment by segment after decoding, so `s3://lake/a` is not a root of `s3://lake/ab`.
    """
    table = parse_location(uri)
    for root in map(parse_location, roots):
        same_store = (root.scheme, root.authority) == (table.scheme, table.authority)
        if same_store and table.segments[: len(root.segments)] == root.segments:
            return True
    return False


def _of_uri(text: str, scheme: str, rest: str) -> str:
    """Returns the canonical form of `scheme://rest`; `text` is what was given, for messages."""
    _check_characters(text)
    if "#" in text:
        raise InvalidError("a table's URI has no fragment", where=text, hint="write %23 for a # in a name")
    path, _, query = rest.partition("?")
    authority, _, path = path.partition("/")
    segments = [segment for segment in path.split("/") if segment not in {"", "."}]
    for segment in segments:
        _check_segment(text, segment)
    if text[-1] == " " or (segments and segments[-1][-1] == " "):
        raise InvalidError("a space at the end would be dropped", where=text, hint="remove it, or write %20")
    if scheme == FILE:
        return _of_file_uri(text, authority, rest, segments)
    authority = authority.lower()
    if not _AUTHORITY.fullmatch(authority):
        hint = f"write {scheme}://BUCKET/PATH; give credentials in the storage options"
        raise InvalidError("this is not a bucket or host name", where=text, hint=hint)
    return f"{scheme}://{'/'.join([authority, *segments])}{_kept_query(text, query)}"


def _check_characters(text: str) -> None:
    """Raises `InvalidError` for characters that no Lance client accepts, or that it would drop silently."""
    if match := _CONTROL.search(text):
        message = f"a table's URI can't contain the control character {match[0]!r}"
        raise InvalidError(message, where=ascii(text), hint="no Lance client opens it: choose another name")
    try:
        text.encode()
    except UnicodeEncodeError:
        hint = "no Lance client opens it: rename it"
        raise InvalidError("the name is not UTF-8", where=ascii(text), hint=hint) from None


def _check_segment(text: str, segment: str) -> None:
    """Raises `InvalidError` for a segment that means something else after a client has decoded it."""
    try:
        name = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        hint = "percent-encode the UTF-8 form of the name"
        raise InvalidError(f"{segment} is not UTF-8 once decoded", where=text, hint=hint) from None
    if name in {".", ".."}:
        hint = "write the path without it"
        raise InvalidError(f"a table's URI can't contain {segment}", where=text, hint=hint)
    if "/" in name:
        raise InvalidError("%2F would be read as a slash", where=text, hint="write / between segments")
    _check_characters(name)


def _kept_query(text: str, query: str) -> str:
    """Returns the part of the query that distinguishes one table from another."""
    parts = [part for part in query.split("&") if part.partition("=")[0] == _DDB]
    if not parts:
        return ""
    if len(parts) > 1 or not parts[0].partition("=")[2]:
        hint = f"write ?{_DDB}=TABLE"
        raise InvalidError(f"{_DDB} must be given once, with a value", where=text, hint=hint)
    return f"?{parts[0]}"


def _of_file_uri(text: str, host: str, rest: str, segments: list[str]) -> str:
    """Returns the canonical form of a local URI; its spelling is kept if it already names a real path."""
    if host.lower() not in {"", "localhost"} or not rest:
        hint = "write file:///PATH with three slashes and an absolute path"
        raise InvalidError("a local URI names no host", where=text, hint=hint)
    if any("\\" in segment for segment in segments):
        raise InvalidError("a backslash would be read as a slash", where=text, hint="write %5C for it")
    named = "/" + "/".join(unquote(segment) for segment in segments)
    if real_path(named) == named:
        return f"file:///{'/'.join(segments)}"
    return _of_path(named)


def real_path(path: str) -> str:
    """Returns what `os.path.realpath` does, which raises if a link is replaced while it looks at it."""
    for _ in range(_LOOKS - 1):
        with suppress(OSError):
            return os.path.realpath(path)
    return os.path.realpath(path)


def _of_path(path: str) -> str:
    """Returns `file://` and the real path, with the characters encoded that clients don't take as is."""
    _check_characters(path)
    try:
        real = real_path(path)
    except OSError as error:
        hint = "the current folder is gone: give an absolute path"
        raise InvalidError(f"this path can't be resolved: {error.strerror}", where=path, hint=hint) from error
    _check_characters(real)
    return "file://" + _NOT_AS_THEY_ARE.sub(lambda match: f"%{ord(match[0]):02X}", real)
