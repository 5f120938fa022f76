"""The console's pages: its files, its JSON, and who may read them.

Everything is read-only. A browser that has another site open must not read the console through it: the host
that a request names must be this machine while the port is bound to loopback (a name of another site may
point to it), no other site may frame the page, and the page loads nothing from anywhere else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

from lakefold.web.activity import Activity
from lakefold.web.cluster import ClusterWatch
from lakefold.web.documents import (
    MOST_VERSIONS,
    dead_letters_document,
    fragments_document,
    kept_document,
    proposal_document,
    schemas_document,
    table_document,
    version_document,
    versions_document,
)
from lakefold.web.health import health_of
from lakefold.web.loopback import is_loopback
from lakefold.web.tables import TableCatalog
from lakefold_committer.observability.web_server import NOT_FOUND, WebRequest, WebResponse
from lakefold_table.closing import Closing
from lakefold_table.errors import InvalidError, LakefoldError, NotATableError, RetryError
from lakefold_table.packages import MissingPackageError, explained_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakefold.console.settings import Settings

LOG = structlog.get_logger("lakefold.console")
JSON: Final = "application/json"
ASSETS: Final = {
    "index.html": "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "views.js": "text/javascript; charset=utf-8",
    "format.js": "text/javascript; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
    "uPlot.LICENSE.txt": "text/plain; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files that the page consists of, with their content types."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every answer. By them a browser loads nothing from elsewhere and runs no other scripts."""
KEEP_ALIVE_S: Final = 10.0
MIN_PAUSE_S: Final = 1.0
"""The least seconds between two events of a stream, so that a page is updated seldom if the log is busy."""
_LOOK_S: Final = 0.25
"""How often a stream looks whether its client is gone."""
MOST_CHANGED: Final = 100
_LARGEST: Final = 2**63 - 1


class ConsoleSite(Closing):
    """Answers the requests for the page. `host`: the address that the port is bound to.

    `token`: what a client has to know. If it is empty, other machines can read the page, and that is logged.
    `shows_rows`: whether rows of tables may be shown. The site's threads read the log until it is closed.
    """

    def __init__(self, settings: Settings, host: str, token: str = "", *, shows_rows: bool = False) -> None:
        self._settings = settings
        self._shows_rows = shows_rows
        self._token = token
        self._local = is_loopback(host)
        if not token and not self._local:
            LOG.warning(
                "served without a token", host=host, hint="anyone who reaches this port can read the page"
            )
        self._activity = Activity()
        self._catalog = TableCatalog(settings.roots, settings.storage_options, self._activity)
        self._cluster = ClusterWatch(settings, self._activity, self._catalog.refresh_names)
        folder = files("lakefold.web") / "assets"
        self._assets = {name: (folder / name).read_bytes() for name in ASSETS}
        self._documents: dict[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
            "/api/overview": lambda _: self._overview(),
            "/api/activity": self._series,
            "/api/tables": self._tables,
            "/api/table": self._table,
            "/api/versions": self._versions,
            "/api/version": self._version,
            "/api/fragments": lambda query: fragments_document(self._uri(query), self._options),
            "/api/kept": lambda query: kept_document(self._uri(query), self._options),
            "/api/schemas": self._schemas,
            "/api/proposal": self._proposal,
            "/api/dead-letters": lambda query: dead_letters_document(settings, _whole(query, "most", 100)),
        }

    @property
    def _options(self) -> Mapping[str, str]:
        return self._settings.storage_options

    def close(self) -> None:
        """Ends the site's threads and the streams of events."""
        self._activity.close()
        self._cluster.close()
        self._catalog.close()

    def respond(self, request: WebRequest) -> WebResponse:
        """Returns the answer to a request. For any thread."""
        if self._local and not is_loopback(_host_of(request)):
            return _text(HTTPStatus.FORBIDDEN, "this port answers requests to 127.0.0.1 and localhost only")
        if self._token and not self._knows_token(request):
            if _same(request.query.get("token", ""), self._token):
                return self._with_cookie(request)
            return _text(HTTPStatus.UNAUTHORIZED, "open the address with its token, as it was printed")
        if request.path == "/api/events":
            return _answer(self._events(request.is_gone), "text/event-stream")
        document = self._documents.get(request.path)
        if document is not None:
            self._cluster.touch()
            return _document(document, request.query)
        name = "index.html" if request.path == "/" else request.path.removeprefix("/assets/")
        if name not in self._assets:
            return NOT_FOUND
        return _answer(self._assets[name], ASSETS[name])

    def _knows_token(self, request: WebRequest) -> bool:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        cookies = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
        return _same(given, self._token) or any(
            name == self._cookie(request) and _same(value, self._ticket) for name, _, value in cookies
        )

    def _with_cookie(self, request: WebRequest) -> WebResponse:
        """Returns an answer after which the browser sends the token by itself, and doesn't show it."""
        cookie = f"{self._cookie(request)}={self._ticket}; Path=/; HttpOnly; SameSite=Strict"
        headers = {**HEADERS, "Location": "/", "Set-Cookie": cookie}
        return WebResponse(b"", status=HTTPStatus.SEE_OTHER, headers=headers)

    @property
    def _ticket(self) -> str:
        """The cookie's value. The token itself may have characters that a cookie can't have."""
        return hashlib.sha256(self._token.encode()).hexdigest()

    @staticmethod
    def _cookie(request: WebRequest) -> str:
        """Returns the cookie's name. Browsers don't keep the cookies of two ports of a host apart."""
        port = request.headers.get("host", "").rpartition(":")[2]
        return f"lakefold_console_{port if port.isdecimal() else 'port'}"

    def _overview(self) -> dict[str, Any]:
        from lakefold import __version__

        return {
            "release": __version__,
            "shows_rows": self._shows_rows,
            "roots": list(self._settings.printable_roots()),
            "tables": self._catalog.count,
            "tables_problem": self._catalog.problem,
            **self._cluster.document(),
        }

    def _tables(self, query: Mapping[str, str]) -> dict[str, Any]:
        page = self._catalog.page(
            _whole(query, "offset", 0),
            _whole(query, "limit", 50),
            query.get("search", ""),
            query.get("order", "recent"),
        )
        for row in page["tables"]:
            row["parked"] = self._cluster.parked_of(row["table"])
            row["partition_lag"] = self._cluster.lag_of(row.get("position"))
            row["waiting"] = self._cluster.waiting_of(row["table"], row.get("position"))
            row["health"] = health_of(row)
        return page

    def _table(self, query: Mapping[str, str]) -> dict[str, Any]:
        uri = self._uri(query)
        document = table_document(uri, self._options)
        position = None if document["marks"] is None else document["marks"]["position"]
        return {
            **document,
            "partition_lag": self._cluster.lag_of(position),
            "waiting": self._cluster.waiting_of(uri, position),
            "activity": self._activity.of(uri),
            "parked": self._cluster.parked_of(uri),
        }

    def _series(self, query: Mapping[str, str]) -> dict[str, Any]:
        minutes = _whole(query, "minutes", 60)
        if "uri" in query:
            return self._activity.table_series(self._uri(query), minutes)
        return self._activity.series(minutes)

    def _versions(self, query: Mapping[str, str]) -> dict[str, Any]:
        return versions_document(
            self._uri(query),
            self._options,
            branch=query.get("branch", ""),
            last=_last(query),
            most=_whole(query, "most", 25),
            app=query.get("app", ""),
            operation=query.get("operation", ""),
        )

    def _version(self, query: Mapping[str, str]) -> dict[str, Any]:
        with_rows = query.get("rows", "") == "1"
        if with_rows and not self._shows_rows:
            hint = "start it with `lakefold console --rows`"
            raise InvalidError("this console shows no rows", where="rows", hint=hint)
        version, branch = _whole(query, "version", 0), query.get("branch", "")
        return version_document(
            self._uri(query), self._options, branch=branch, version=version, with_rows=with_rows
        )

    def _schemas(self, query: Mapping[str, str]) -> dict[str, Any]:
        most, last = max(1, _whole(query, "most", 20, MOST_VERSIONS)), _last(query)
        return schemas_document(self._uri(query), self._options, most=most, last=last)

    def _proposal(self, query: Mapping[str, str]) -> dict[str, Any]:
        proposal = query.get("proposal", "").strip()
        if not proposal:
            raise InvalidError("the request names no proposal", where="proposal")
        return proposal_document(self._uri(query), proposal, query.get("branch", ""), self._settings)

    def _uri(self, query: Mapping[str, str]) -> str:
        """Returns the table of a request. Raises `InvalidError` if it is not below the roots."""
        uri = query.get("uri", "")
        if not self._catalog.has(uri):
            raise InvalidError("there is no such table below the roots of this console", where="uri")
        return uri

    def _events(self, is_gone: Callable[[], bool]) -> Iterator[bytes]:
        """Yields an event when something has changed: what to fetch again, not the content.

        It ends soon after the client is gone, so that no thread waits for what nobody reads.
        """
        sequence = 0
        previous: dict[str, Any] = {}
        yield b"retry: 2000\n\n"
        while not self._activity.is_closed:
            self._cluster.touch()
            before, sequence = sequence, self._next(sequence, is_gone, KEEP_ALIVE_S if previous else 0)
            if is_gone():
                return
            changed = self._activity.changed_since(before, MOST_CHANGED)
            event = {
                "tables": changed,
                "more": len(changed) == MOST_CHANGED,
                "overview": self._overview(),
            }
            if event == previous:
                yield b": nothing has changed\n\n"
            else:
                yield f"data: {json.dumps(event)}\n\n".encode()
            previous = event
            self._activity.pause(MIN_PAUSE_S)

    def _next(self, sequence: int, is_gone: Callable[[], bool], timeout_s: float) -> int:
        """Waits as `Activity.wait` does, or until the client is gone."""
        until = time.monotonic() + timeout_s
        while True:
            left_s = max(until - time.monotonic(), 0)
            newest = self._activity.wait(sequence, min(left_s, _LOOK_S))
            if newest > sequence or left_s == 0 or self._activity.is_closed or is_gone():
                return newest


def _host_of(request: WebRequest) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _same(given: str, token: str) -> bool:
    """Returns whether a text is the token, in a time that doesn't depend on the first differing character."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _whole(query: Mapping[str, str], name: str, default: int, most: int = _LARGEST) -> int:
    """Returns a whole number of the request, at most `most`. Raises `InvalidError` for other texts."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST))):
        raise InvalidError("this is not a whole number from 0 on", where=name)
    return min(int(text), most)


def _last(query: Mapping[str, str]) -> int | None:
    """Returns the newest version of a page, None for the newest of all."""
    return _whole(query, "last", 0) if "last" in query else None


def _made(make: Callable[[Mapping[str, str]], dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Returns the document of a request. Raises `MissingPackageError` if it needs a package that isn't there.

    The committer's image has no pylance, which adds up the files of old versions.
    """
    with explained_imports():
        return make(query)


def _document(make: Callable[[Mapping[str, str]], dict[str, Any]], query: Mapping[str, str]) -> WebResponse:
    try:
        return _answer(json.dumps(_made(make, query)).encode(), JSON)
    except LakefoldError as error:
        kinds: tuple[tuple[type[LakefoldError], HTTPStatus], ...] = (
            (MissingPackageError, HTTPStatus.NOT_IMPLEMENTED),
            (NotATableError, HTTPStatus.NOT_FOUND),
            (RetryError, HTTPStatus.SERVICE_UNAVAILABLE),
            (InvalidError, HTTPStatus.BAD_REQUEST),
        )
        status = next(
            (code for kind, code in kinds if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
        )
        plain = {"message": error.message, "where": error.where, "hint": error.hint}
        return _answer(json.dumps({"error": plain}).encode(), JSON, status)


def _answer(body: bytes | Iterator[bytes], kind: str, status: HTTPStatus = HTTPStatus.OK) -> WebResponse:
    return WebResponse(body, kind, status, HEADERS)


def _text(status: HTTPStatus, text: str) -> WebResponse:
    return WebResponse(f"{text}\n".encode(), status=status, headers=HEADERS)
