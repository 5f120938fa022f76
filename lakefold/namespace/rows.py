"""Rows that a catalog's clients send: written by Lakefold's own functions, so no client meets a conflict.

Small inserts of many clients share files and versions: each table has a `Writer`, whose batches are sent
after a few milliseconds, and each request is answered by its own outcome.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from lance_namespace.errors import TableAlreadyExistsError, TableNotFoundError

from lakefold.tables.functions import create
from lakefold.writing.functions import Writer
from lakefold.writing.options import write_settings
from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.clauses import (
    Clause,
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
    names_of,
)
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.overwrite import OverwriteRows
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.writing.batch import put_batch
from lakefold_table.errors import InvalidError, StopError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold.console.settings import BrokerOptions
    from lakefold.namespace.dataset_changes import DatasetChanges
    from lakefold.namespace.requests import Asked
    from lakefold.writing.options import WriteOptions
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.report import BatchReport

MAX_DELAY_S: Final = 0.005
"""How long an insert waits for others to share its file."""
MOST_WRITERS: Final = 64
"""The most tables that have a writer ready; that of the table used longest ago is closed."""
IDEMPOTENCY: Final = "header.idempotency-key"
"""The field of a request's context that is the header by which a request may be repeated."""
_NAME: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[A-Za-z_]\w*(?=\s*\()|(?:\.\s*)?[A-Za-z_]\w*"""
)
"""In SQL: texts, quoted names, names of functions, and names; those behind a dot are fields."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What a request did: the version that has it, and how many rows were updated, inserted and deleted."""

    version: int
    updated: int = 0
    inserted: int = 0
    deleted: int = 0


def key_of(request: Asked) -> Key | None:
    """Returns the key that a request names by its header Idempotency-Key, None if it has none.

    It is an app id and the number of a batch, `APP:NUMBER`, as for `lakefold.append`: another text would be
    remembered for a while only. Raises `InvalidError` if it is none.
    """
    context = {str(name).casefold(): str(value) for name, value in (request.get("context") or {}).items()}
    text = context.get(IDEMPOTENCY)
    if text is None:
        return None
    app_id, _, number = text.rpartition(":")
    if not app_id or not number.isdecimal():
        hint = "give an app id and the number of a batch, e.g. loader:12"
        raise InvalidError(f"{text[:100]!r} can't be an Idempotency-Key", hint=hint)
    return Key(app_id, int(number))


class TableRows:
    """Writes rows to tables, with these options of `lakefold.append`. For any number of threads."""

    def __init__(self, options: BrokerOptions, changes: DatasetChanges) -> None:
        self._options = options
        self._writing = cast("WriteOptions", options)
        self._changes = changes
        self._writers: OrderedDict[str, Writer] = OrderedDict()
        self._lock = threading.Lock()

    def create(
        self, uri: str, names: Sequence[str], data: bytes, mode: str, key: Key | None = None
    ) -> RowCounts:
        """Creates a table with rows. `mode` says what happens if it exists: "create" fails."""
        if mode not in ("create", "exist_ok", "overwrite"):
            raise InvalidError(f"there is no mode {mode!r}", hint="give create, exist_ok or overwrite")
        rows = _rows_in(data)
        exists = self._view(uri) is not None
        if exists and mode == "create":
            raise TableAlreadyExistsError(f"the table {uri} exists")
        if exists and mode != "overwrite":
            return RowCounts(self._version(uri))
        if exists:
            return self._overwritten(uri, rows, key)
        if key is not None:
            create(uri, rows.schema, if_not_exists=True, **self._options)
            return self._appended(uri, rows, key)
        return RowCounts(self._created(uri, names, rows), inserted=rows.num_rows)

    def _created(self, uri: str, names: Sequence[str], rows: pa.Table) -> int:
        """Returns the version with the first rows. Raises `TableAlreadyExistsError` if another came first."""
        try:
            return self._changes.create(names, rows)
        except InvalidError as error:
            if self._view(uri) is None:
                raise
            raise TableAlreadyExistsError(f"the table {uri} exists") from error

    def insert(self, uri: str, data: bytes, mode: str, key: Key | None = None) -> RowCounts:
        """Adds rows to a table, or replaces its rows and columns with the mode "overwrite"."""
        if mode not in ("append", "overwrite"):
            raise InvalidError(f"there is no mode {mode!r}", hint="give append or overwrite")
        self._existing(uri)
        rows = _rows_in(data)
        is_overwrite = mode == "overwrite"
        return self._overwritten(uri, rows, key) if is_overwrite else self._appended(uri, rows, key)

    def merge(self, uri: str, data: bytes, given: Mapping[str, object], key: Key | None = None) -> RowCounts:
        """Merges rows into a table by the parameters of the interface's `merge_insert`."""
        view = self._existing(uri)
        rows = _rows_in(data)
        keys = given.get("on") or ()
        clauses = _clauses(given, view.schema.names)
        merge = Merge(names_of(cast("Iterable[str]", keys), "on"), clauses=clauses)
        return self._merged(uri, rows, merge, key)

    def update(
        self, uri: str, updates: Sequence[Sequence[str]], predicate: str | None, key: Key | None = None
    ) -> RowCounts:
        """Gives columns of the rows for which a predicate holds the values of SQL expressions."""
        view = self._existing(uri)
        names = view.schema.names
        assigned = {column: qualified(text, names) for column, text in updates}
        clause = NotMatchedBySourceUpdate(assigned, qualified(predicate, names) if predicate else None)
        nothing = view.schema.empty_table().select(names[:1])
        return self._merged(uri, nothing, Merge((names[0],), clauses=(clause,)), key)

    def delete(self, uri: str, predicate: str, key: Key | None = None) -> RowCounts:
        """Deletes the rows for which a predicate holds."""
        self._existing(uri)
        report = self._put(uri, DeleteWhere(predicate), key)
        return RowCounts(report.version or self._version(uri), deleted=report.rows_deleted)

    def forget(self, uri: str) -> None:
        """Ends the writer of a table that is to be dropped."""
        with self._lock:
            writer = self._writers.pop(uri, None)
        if writer is not None:
            writer.close()

    def _put(
        self, uri: str, operation: Operation, key: Key | None, rows: RowSource | None = None
    ) -> BatchReport:
        return put_batch(write_settings(uri, self._writing), key or new_key(), operation, rows=rows)

    def _merged(self, uri: str, rows: pa.Table, merge: Merge, key: Key | None) -> RowCounts:
        operation = UpsertRows(rows, merge)
        report = self._put(uri, operation, key, RowSource(rows, checks=key is not None))
        return RowCounts(report.version or self._version(uri), *operation.counts)

    def _overwritten(self, uri: str, rows: pa.Table, key: Key | None) -> RowCounts:
        settings = replace(write_settings(uri, self._writing), keeps_schema=False)
        source = RowSource(rows, checks=key is not None)
        report = put_batch(settings, key or new_key(), OverwriteRows(source, None, settings), rows=source)
        return RowCounts(report.version or self._version(uri), inserted=rows.num_rows)

    def _appended(self, uri: str, rows: pa.Table, key: Key | None) -> RowCounts:
        if key is None:
            report = self._append(uri, rows)
        else:
            source = RowSource(rows, checks=True)
            report = self._put(uri, append_source(source), key, source)
        return RowCounts(report.version or self._version(uri), inserted=report.rows_added)

    def _append(self, uri: str, rows: pa.Table) -> BatchReport:
        try:
            return self._writer(uri).append(rows).result()
        except StopError:
            # Nothing can be added by this writer any more, e.g. as the topic was made anew.
            with self._lock:
                self._writers.pop(uri, None)
            raise

    def _writer(self, uri: str) -> Writer:
        with self._lock:
            writer = self._writers.get(uri)
            if writer is None:
                writer = self._writers[uri] = Writer(uri, max_delay=MAX_DELAY_S, **self._writing)
            self._writers.move_to_end(uri)
            closed = [self._writers.popitem(last=False)[1] for _ in range(len(self._writers) - MOST_WRITERS)]
        for each in closed:
            each.close()
        return writer

    def close(self) -> None:
        """Waits for what was sent, and ends the writers."""
        with self._lock:
            writers = [self._writers.popitem()[1] for _ in range(len(self._writers))]
        for writer in writers:
            writer.close()

    def _view(self, uri: str) -> View | None:
        return read_view(uri, self._options.get("storage_options") or {})

    def _existing(self, uri: str) -> View:
        view = self._view(uri)
        if view is None:
            raise TableNotFoundError(f"there is no table at {uri}")
        return view

    def _version(self, uri: str) -> int:
        return self._existing(uri).version


def _rows_in(data: bytes) -> pa.Table:
    """Returns the rows of a stream or a file of Arrow. Raises `InvalidError`."""
    try:
        opened = pa.ipc.open_file if data[:6] == b"ARROW1" else pa.ipc.open_stream
        return opened(data).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        message = f"the body is no stream of Arrow: {error}"
        raise InvalidError(message, hint="send rows as application/vnd.apache.arrow.stream") from error


def _clauses(given: Mapping[str, object], names: Sequence[str]) -> tuple[Clause, ...]:
    """Returns the clauses that the parameters of a `merge_insert` mean."""

    def condition(name: str) -> str | None:
        text = given.get(f"{name}_filt")
        return qualified(str(text), names) if text else None

    clauses: list[Clause] = []
    if given.get("when_matched_update_all"):
        clauses.append(MatchedUpdate(condition=condition("when_matched_update_all")))
    if given.get("when_not_matched_insert_all"):
        clauses.append(NotMatchedInsert())
    if given.get("when_not_matched_by_source_delete"):
        clauses.append(NotMatchedBySourceDelete(condition("when_not_matched_by_source_delete")))
    return tuple(clauses)


def qualified(text: str, names: Sequence[str]) -> str:
    """Returns SQL in which the table's columns are named `target.x`, as a merge's conditions have them."""
    known = frozenset(names)

    def named(match: re.Match[str]) -> str:
        name = match[0]
        plain = name.strip('"`')
        is_quoted = name[0] in '"`'
        behind = text[match.end() :].lstrip()[:1]
        if name[0] == "'" or plain not in known or (behind == "(" and not is_quoted):
            return name
        return f"target.{name}"

    return _NAME.sub(named, text)
