"""Which error of the Lance Namespace says what an error of ours means, and with which status over HTTP."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lance_namespace import errors as interface

from lakefold_table.entry import RefusedError, Rejected
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LakefoldError,
    NotATableError,
    RetryError,
    VersionExpiredError,
)
from lakefold_table.versions.refs import UnknownRefError

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUS: Final = {
    interface.ErrorCode.UNSUPPORTED: HTTPStatus.NOT_ACCEPTABLE,
    interface.ErrorCode.INVALID_INPUT: HTTPStatus.BAD_REQUEST,
    interface.ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR: HTTPStatus.BAD_REQUEST,
    interface.ErrorCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    interface.ErrorCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    interface.ErrorCode.THROTTLING: HTTPStatus.TOO_MANY_REQUESTS,
    interface.ErrorCode.SERVICE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    interface.ErrorCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    **dict.fromkeys(
        (
            interface.ErrorCode.NAMESPACE_NOT_FOUND,
            interface.ErrorCode.TABLE_NOT_FOUND,
            interface.ErrorCode.TABLE_INDEX_NOT_FOUND,
            interface.ErrorCode.TABLE_TAG_NOT_FOUND,
            interface.ErrorCode.TRANSACTION_NOT_FOUND,
            interface.ErrorCode.TABLE_VERSION_NOT_FOUND,
            interface.ErrorCode.TABLE_COLUMN_NOT_FOUND,
            interface.ErrorCode.TABLE_BRANCH_NOT_FOUND,
        ),
        HTTPStatus.NOT_FOUND,
    ),
    **dict.fromkeys(
        (
            interface.ErrorCode.NAMESPACE_ALREADY_EXISTS,
            interface.ErrorCode.NAMESPACE_NOT_EMPTY,
            interface.ErrorCode.TABLE_ALREADY_EXISTS,
            interface.ErrorCode.TABLE_INDEX_ALREADY_EXISTS,
            interface.ErrorCode.TABLE_TAG_ALREADY_EXISTS,
            interface.ErrorCode.TABLE_BRANCH_ALREADY_EXISTS,
            interface.ErrorCode.CONCURRENT_MODIFICATION,
            interface.ErrorCode.INVALID_TABLE_STATE,
        ),
        HTTPStatus.CONFLICT,
    ),
}
"""The status of an answer for each code of the interface."""


@contextmanager
def as_interface_errors() -> Iterator[None]:
    """Raises errors of ours as those of the interface."""
    try:
        yield
    except LakefoldError as error:
        raise meaning(error) from error


def meaning(error: LakefoldError) -> interface.LanceNamespaceError:
    """Returns the error of the interface that says what an error of ours means."""
    text = str(error)
    match error:
        case NotATableError():
            return interface.TableNotFoundError(text)
        case VersionExpiredError():
            return interface.TableVersionNotFoundError(text)
        case UnknownRefError():
            return interface.TableTagNotFoundError(text)
        case RefusedError() if isinstance(error.outcome.result, Rejected):
            return interface.ConcurrentModificationError(text)
        case InvalidError() | RefusedError():
            return interface.InvalidInputError(text)
        case RetryError():
            return interface.ServiceUnavailableError(text)
        case DamagedError():
            return interface.InvalidTableStateError(text)
        case _:
            return interface.InternalError(text)
