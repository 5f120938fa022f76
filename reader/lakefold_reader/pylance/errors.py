"""Translates pylance's errors, which are of a few Python classes with the details in their text.

A caller must know what to do next: the file is gone, stored bytes are damaged, the store can't be reached or
refuses, or the request is wrong. The text shows it, and so does the source file of Lance at its end: errors
from Lance's crates for files, encodings and tables concern stored bytes, others the request. Damage can also
end in a panic, which is not an `Exception` in Python. If a panic ends another of Lance's threads, the error
says that the stream fed by that thread was terminated.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError
from lakefold_table.storage.os_errors import failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PANIC: Final = "PanicException"
"""The class that a panic of Rust has in Python. It comes from a module that can't be imported."""

# Lance says the same about files that store none of the requested columns: all of them may exist.
_GONE: Final = re.compile(r"Not found: (?!No data files found for schema)|was not found")
_DENIED: Final = re.compile(
    r"status code: 40[13]|necessary privileges|valid authentication|Unauthenticated|InvalidAccessKeyId|"
    r"SignatureDoesNotMatch|AccessDenied|RequestTimeTooSkewed|CredentialsNotLoaded|load credentials",
    re.IGNORECASE,
)
_AWAY: Final = re.compile(r"HTTP error|status code: |error sending request|dispatch failure|timed? ?out")
_CONFLICT: Final = re.compile(r"[Cc]ommit conflict|Too many concurrent writers")
_OS: Final = re.compile(r"\(os error (\d+)\)")
_STORED: Final = re.compile(
    r"rust/lance-(?:file|encoding|io|table)/|LanceError\(IO\)|invalid magic|corrupt|Invalid range|panicked|"
    r"reader producer terminated"
)
# A scan raises a ValueError for this; `count_rows` and `take_blobs` raise other classes (tried).
_ASKED: Final = re.compile(
    r"^Invalid user input: .*rust/(?:lance|lance-datafusion)/src/|^Field '.*' not found\.", re.DOTALL
)
_INTERRUPTED: Final = re.compile(r"\bKeyboardInterrupt\b")
# A URL's query may hold a signature; the body of a response adds nothing.
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")
_RUST_LINE: Final = re.compile(r",? \S*(?:rustc|rust)/\S+:\d+:\d+")


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Translates what pylance raises into an error of this project, about `where`.

    Raises `FileNotFoundError` if a file is gone, `DamagedError` if stored bytes can't be read, `InvalidError`
    if the request is wrong or the store refuses it, and `RetryError` if the store can't be reached or another
    client's commit came before pylance's. Errors of this project are raised as they are.
    """
    try:
        yield
    except LakefoldError:
        raise
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        check_interrupt(error)
        raise meaning(error, where) from error
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise DamagedError(f"Lance panicked: {words_of(error)}", where=where) from error


def check_interrupt(error: Exception) -> None:
    """Raises `KeyboardInterrupt` if the error is one: a Ctrl-C while pylance or Arrow called Python."""
    if _INTERRUPTED.search(str(error)):
        raise KeyboardInterrupt from error


def translated_batches(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """Returns the batches; errors that are raised while they are read are translated."""
    with translated_errors(where):
        yield from batches


def meaning(error: Exception, where: str) -> LakefoldError | FileNotFoundError:
    """Returns our error for an error of pylance, by what the caller has to do."""
    text, words = str(error), words_of(error)
    if isinstance(error, FileNotFoundError) or _GONE.search(text):
        return FileNotFoundError(words)
    if _CONFLICT.search(text):
        return RetryError(words, where=where, hint="another client committed first: run it again")
    if match := _OS.search(text):
        number = int(match[1])
        return failure(OSError(number, os.strerror(number)), where)
    if isinstance(error, OSError) and error.errno:
        return failure(error, where)
    if _DENIED.search(text):
        hint = "check the credentials, what they are allowed to do, and this machine's clock"
        return InvalidError(words, where=where, hint=hint)
    if _AWAY.search(text):
        return RetryError(words, where=where, hint="the store can't be reached or is busy: try again")
    stored = _STORED.search(text) or (isinstance(error, OSError | RuntimeError) and not _ASKED.search(text))
    if stored:
        hint = "the file was changed or not written to its end: restore it from a copy"
        return DamagedError(words, where=where, hint=hint)
    return InvalidError(words, where=where, hint="`lakefold show` lists the columns")


def words_of(error: BaseException) -> str:
    """Returns the first line of an error's text.

    Locations in source code and the queries of URLs are left out.
    """
    return _QUERY.sub("", _RUST_LINE.sub("", str(error).partition("\n")[0]))
