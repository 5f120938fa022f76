"""The list of tables, a page at a time: what each one's newest version contains, and who reads it.

A table is opened only if a page shows it, and again only if it may have a newer version. So a list of ten
thousand tables costs what the tables on the page cost.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lakefold.setup.tables import all_tables, may_be_table, without_branches
from lakefold.web.activity import MAX_TABLES, Activity
from lakefold_maintenance.planning.policy import MaintenancePolicy, policy_of
from lakefold_reader.as_json import iso, plain_consumer, plain_position
from lakefold_reader.consumers.consumers import lags
from lakefold_reader.formats import in_its_format, open_source
from lakefold_reader.snapshot.history import history_page
from lakefold_reader.snapshot.snapshot import Table, table_of
from lakefold_reader.versions.listing import newest_of
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.uri import is_under

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_reader.format.snapshots import FragmentSize
    from lakefold_reader.format.source import Source

FRESH_S: Final = 5.0
"""A table is not checked for a newer version again within this time, unless an outcome reports one."""
OPENED_S: Final = 60.0
"""A table is opened again after this time: it may have been dropped and created with the same versions."""
PATIENCE_S: Final = 0.6
"""Tables that aren't read after this time are shown as loading: the first page appears within a second."""
MOST: Final = 200
"""The most tables of a page."""
MAX_COUNTED: Final = 20_000
"""If a table has more fragments, its small fragments are not counted for the list."""
_THREADS: Final = 4
_KEPT: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of a table: when it was last checked for a newer version, and when it was opened."""

    document: dict[str, Any]
    version: int
    at: float
    opened_at: float


class TableCatalog:
    """The tables below the roots, and those that outcomes name below the roots. For any thread."""

    def __init__(
        self,
        roots: tuple[str, ...],
        storage_options: Mapping[str, str],
        activity: Activity,
    ) -> None:
        self._roots = roots
        self._options = storage_options
        self._activity = activity
        self._names: list[str] = []
        self._named: set[str] = set()
        self._sequence = 0
        self.problem = ""
        self._known: dict[str, _Known] = {}
        self._reading: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, "console-tables")

    def close(self) -> None:
        """Ends the catalog's threads after their present reads."""
        self._pool.shutdown(cancel_futures=True)

    def refresh_names(self) -> None:
        """Lists the tables below the roots again. If a root can't be listed, `problem` says why."""
        try:
            names = set(all_tables(self._roots, self._options))
            self.problem = ""
        except LakefoldError as error:
            names, self.problem = set(self._names), str(error)
        with self._lock:
            self._named = {uri for uri in self._activity.tables() if self.has(uri)}
            self._names = without_branches(names | self._named)

    def has(self, uri: str) -> bool:
        """Returns whether the page may show the table with this URI, which is canonical and below a root."""
        return may_be_table(uri, self._roots)

    def page(self, offset: int, limit: int, search: str = "", order: str = "recent") -> dict[str, Any]:
        """Returns tables `offset` to `offset + limit` of those whose names contain `search`.

        `order`: `recent` begins with those that had an outcome last, `name` is by name.
        """
        self._add_new()
        names = [name for name in self._names if search.casefold() in name.casefold()]
        if order == "recent":
            ranks = {uri: number for number, uri in enumerate(self._activity.tables())}
            names.sort(key=lambda name: ranks.get(name, len(ranks)))
        chosen = names[max(0, offset) : max(0, offset) + min(limit, MOST)]
        self._read(chosen)
        return {
            "total": len(names),
            "offset": max(0, offset),
            "problem": self.problem,
            "tables": [self._row(uri) for uri in chosen],
        }

    def _add_new(self) -> None:
        """Adds tables that outcomes have named since the last call, so that a new table is shown at once."""
        with self._lock:
            before, self._sequence = self._sequence, self._activity.wait(0, 0)
            changed = self._activity.changed_since(before, MAX_TABLES)
            new = {uri for uri in changed if uri not in self._named and self.has(uri)}
            if new:
                self._named |= new
                self._names = without_branches({*self._names, *new})

    @property
    def count(self) -> int:
        """The number of known tables."""
        self._add_new()
        return len(self._names)

    def _row(self, uri: str) -> dict[str, Any]:
        shown = self._known.get(uri)
        read = {"loading": True} if shown is None else {"loading": False, **shown.document}
        return {"table": uri, "name": self._short(uri), **read, "activity": self._activity.of(uri)}

    def _short(self, uri: str) -> str:
        """Returns the part of the URI below its root, or its last part if it is a root itself."""
        root = next((root for root in self._roots if is_under(uri, (root,))), "")
        return uri.removeprefix(root).strip("/") or uri.rpartition("/")[2]

    def _read(self, chosen: list[str]) -> None:
        """Reads those tables whose documents may be out of date, for `PATIENCE_S` at most."""
        with self._lock:
            for uri in chosen:
                if uri not in self._reading and not self._is_fresh(uri):
                    self._reading[uri] = self._pool.submit(self._read_one, uri)
            awaited = [self._reading[uri] for uri in chosen if uri in self._reading]
        wait(awaited, PATIENCE_S)

    def _is_fresh(self, uri: str) -> bool:
        shown = self._known.get(uri)
        if shown is None or (shown.version and self._activity.of(uri)["version"] > shown.version):
            return False
        return time.monotonic() < shown.at + FRESH_S

    def _read_one(self, uri: str) -> None:
        before = self._known.get(uri)
        try:
            shown = self._read_table(uri, before)
        except LakefoldError as error:
            shown = _Known({"error": error.message}, 0, time.monotonic(), 0.0)
        except Exception as error:  # noqa: BLE001 - a fault with one table is shown in its row, the others stay
            shown = _Known({"error": repr(error)}, 0, time.monotonic(), 0.0)
        with self._lock:
            self._known.pop(uri, None)
            self._known[uri] = shown
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
            self._reading.pop(uri, None)

    def _read_table(self, uri: str, before: _Known | None) -> _Known:
        """Returns the newest version, as read before if it is still the newest; consumers are read again."""

        def read(source: Source) -> _Known:
            newest, now = newest_of(source), time.monotonic()
            if before is not None and before.version == newest and now < before.opened_at + OPENED_S:
                document, opened_at = before.document, before.opened_at
            else:
                document, opened_at = summary_of(source, newest), now
                if document["seconds_to_visible"] is not None:
                    made_at = datetime.fromisoformat(document["timestamp"]).timestamp()
                    self._activity.add_seconds(document["seconds_to_visible"], made_at)
            return _Known({**document, "consumers": consumers_of(source)}, newest, now, opened_at)

        return in_its_format(open_source(uri, self._options), read)


def summary_of(source: Source, version: int) -> dict[str, Any]:
    """Returns the facts about a version that the list shows."""
    table = table_of(source, version, is_checked=True)
    row = next(iter(history_page(source, version, 1)), None)
    position = None if table.marks is None else table.marks.position
    small, size = small_fragments(table)
    return {
        "format": table.format,
        "version": version,
        "timestamp": iso(table.timestamp),
        "rows": table.count_rows(),
        "fragments": table.fragment_count,
        "small_fragments": small,
        "bytes": size,
        "position": None if position is None else plain_position(position),
        "operation": "" if row is None else row.operation,
        "own": row is not None and row.own,
        "seconds_to_visible": None if row is None else row.seconds_to_visible,
    }


def small_fragments(table: Table) -> tuple[int | None, int | None]:
    """Returns how many fragments have fewer rows and bytes than the table's policy aims at, and all bytes.

    Returns None if they are too many to be counted for a list; of bytes also if a fragment's aren't known.
    """
    if table.fragment_count > MAX_COUNTED:
        return None, None
    policy, sizes = policy_in(table.config), list(table.fragment_sizes())
    size_in_bytes = [size.bytes for size in sizes if size.bytes is not None]
    is_known = len(size_in_bytes) == len(sizes)
    return sum(is_small(size, policy) for size in sizes), sum(size_in_bytes) if is_known else None


def is_small(size: FragmentSize, policy: MaintenancePolicy) -> bool:
    """Returns whether a fragment has fewer rows and bytes than the policy aims at."""
    return (size.rows or 0) < policy.target_rows and (size.bytes or 0) < policy.target_bytes


def policy_in(config: Mapping[str, str]) -> MaintenancePolicy:
    """Returns the maintenance policy of a table with this configuration; the default if that is invalid."""
    try:
        return policy_of(config)
    except InvalidError:
        return MaintenancePolicy()


def consumers_of(source: Source) -> list[dict[str, Any]]:
    """Returns the named consumers and how far behind they are; none if the format has no consumers."""
    try:
        return [plain_consumer(lag) for lag in lags(source)]
    except InvalidError:
        return []
