"""The catalog over HTTP: a request becomes an operation of the namespace, its result an answer in JSON."""

from __future__ import annotations

import hmac
import json
import logging
from contextlib import contextmanager
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote

import lance_namespace as interface
from lance_namespace.errors import ErrorCode, InvalidInputError, LanceNamespaceError, ThrottlingError
from pydantic import ValidationError

from lakefold.namespace.failures import STATUS, as_interface_errors
from lakefold.namespace.names import SEPARATOR
from lakefold.namespace.routes import route_of
from lakefold.namespace.rows import IDEMPOTENCY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from wsgiref.types import StartResponse, WSGIEnvironment

    from lakefold.namespace.namespace import LakefoldNamespace
    from lakefold.namespace.routes import Route

LOGGER = logging.getLogger("lakefold")
MOST_JSON_BYTES: Final = 4 << 20
"""How long a request's JSON may be."""
MOST_BYTES: Final = 512 << 20
"""The most bytes of rows that are held at once, in all requests together."""
ARROW: Final = "application/vnd.apache.arrow.file"
_LANCEDB: Final = "HTTP_X_LANCEDB_DATABASE"
_FLAGS: Final = {"true": True, "false": False}


class CatalogSite:
    """The WSGI application of a namespace. `token`: what a client has to know; empty: nothing.

    A client gives it as `Authorization: Bearer TOKEN`, or as `x-api-key`, which LanceDB's clients send.
    `most_waiting`: how many requests may wait for the log at once, so that others are answered meanwhile.
    """

    def __init__(self, namespace: LakefoldNamespace, token: str = "", most_waiting: int = 240) -> None:
        self._namespace = namespace
        self._token = token
        self._most_waiting = most_waiting
        self._waiting, self._held_bytes = 0, 0
        self._lock = Lock()

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answers a request."""
        status, body = self._answer(environ)
        kind = ARROW if body[:6] == b"ARROW1" else "application/json"
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        if status is HTTPStatus.TOO_MANY_REQUESTS:
            headers.append(("Retry-After", "1"))
        start(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, bytes]:
        path = environ.get("PATH_INFO", "")
        try:
            if not self._knows_token(environ):
                return _failure(ErrorCode.UNAUTHENTICATED, "the token is missing or wrong")
            route = route_of(str(environ["REQUEST_METHOD"]), path)
            if route is None:
                return HTTPStatus.NOT_FOUND, _json({"error": f"there is no route {path[:200]}", "code": 0})
            with self._room(route[0], environ), as_interface_errors():
                return HTTPStatus.OK, _body_of(self._operated(*route, environ))
        except LanceNamespaceError as error:
            return _failure(error.code, str(error))
        except Exception as error:
            LOGGER.exception("the request %s ended in an error", path[:200])
            return _failure(ErrorCode.INTERNAL, f"{type(error).__name__}: {error}")

    def _knows_token(self, environ: WSGIEnvironment) -> bool:
        given = (
            environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer "),
            environ.get("HTTP_X_API_KEY", ""),
        )
        return not self._token or any(
            hmac.compare_digest(each.encode("latin-1", "replace"), self._token.encode()) for each in given
        )

    @contextmanager
    def _room(self, route: Route, environ: WSGIEnvironment) -> Iterator[None]:
        """Counts a request that waits, and its bytes. Raises `ThrottlingError` if there are too many."""
        size, waits = int(environ.get("CONTENT_LENGTH") or 0) if route.sends_rows else 0, int(route.waits)
        with self._lock:
            if self._held_bytes and self._held_bytes + size > MOST_BYTES:
                raise ThrottlingError("too many rows are on their way: come again in a second")
            if self._waiting + waits > self._most_waiting:
                raise ThrottlingError("too many requests wait for the log: come again in a second")
            self._held_bytes, self._waiting = self._held_bytes + size, self._waiting + waits
        try:
            yield
        finally:
            with self._lock:
                self._held_bytes, self._waiting = self._held_bytes - size, self._waiting - waits

    def _operated(self, route: Route, in_path: Mapping[str, str], environ: WSGIEnvironment) -> object:
        operation: Callable[..., object] = getattr(self._namespace, route.operation)
        if operation.__func__ is getattr(interface.LanceNamespace, route.operation):  # type: ignore[attr-defined] # a method
            raise interface.UnsupportedOperationError(f"Not supported: {route.operation}")
        fields = {**_query_fields(route, environ), **({} if route.sends_rows else _json_fields(environ))}
        fields |= {name: unquote(value) for name, value in in_path.items()}
        key = environ.get("HTTP_IDEMPOTENCY_KEY", "")
        if key:
            fields["context"] = {IDEMPOTENCY: key}
        if "id" in fields:
            fields["id"] = [name for name in str(fields["id"]).split(SEPARATOR) if name]
        request = _request(route, fields)
        if route.sends_rows:
            return operation(request, environ["wsgi.input"].read())
        result = operation(request)
        if isinstance(result, interface.CountTableRowsResponse):
            return result.count
        if isinstance(result, interface.ListTableTagsResponse) and _LANCEDB in environ:
            # LanceDB's clients read the tags without the name of their field.
            return result.to_dict()["tags"]
        return result


def _query_fields(route: Route, environ: WSGIEnvironment) -> dict[str, object]:
    try:
        given = parse_qs(environ.get("QUERY_STRING", ""), max_num_fields=50)
    except ValueError as error:
        raise InvalidInputError("the query has too many parameters") from error
    fields = {name: _value(name, values[0]) for name, values in given.items() if name in route.parameters}
    return {**fields, "on": ",".join(given["on"]).split(",")} if "on" in fields else fields


def _value(name: str, text: str) -> object:
    if name == "limit" and text.isdecimal():
        return int(text)
    return _FLAGS.get(text, text)


def _json_fields(environ: WSGIEnvironment) -> dict[str, Any]:
    text = environ["wsgi.input"].read(MOST_JSON_BYTES + 1)
    if len(text) > MOST_JSON_BYTES:
        raise InvalidInputError(f"the request has more than {MOST_JSON_BYTES} bytes of JSON")
    try:
        fields = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the request is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidInputError("the request is no JSON object")
    return fields


def _request(route: Route, fields: Mapping[str, object]) -> object:
    if not route.request:
        return dict(fields)
    model = getattr(interface, route.request)
    try:
        return model.from_dict(dict(fields))
    except (ValidationError, ValueError, TypeError) as error:
        raise InvalidInputError(f"the request is wrong: {error}") from error


def _body_of(result: object) -> bytes:
    if isinstance(result, bytes):
        return result
    if result is None:
        return b"{}"
    return _json(result.to_dict()) if hasattr(result, "to_dict") else _json(result)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _failure(code: ErrorCode, text: str) -> tuple[HTTPStatus, bytes]:
    return STATUS.get(code, HTTPStatus.INTERNAL_SERVER_ERROR), _json({"error": text, "code": int(code)})
