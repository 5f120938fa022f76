"""Merges rows by their keys, or applies change events, in parts that have all rows of some of the keys.

A part finds its rows in the table and writes the new ones as files; a task of Spark's does that. The driver
gets no rows: from each part it gets the fragments, the offsets of the rows that are deleted or moved, and the
hashes of the inserted keys. It makes one Update of them all. No two parts change the same row, because they
have no key in common: `merge.key_numbers` divides the rows.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lakefold_ingest.formats import view_at
from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.formats import merge_format
from lakefold_ingest.merge.key_numbers import KeyShare, key_numbers, key_types
from lakefold_ingest.merge.turns import keys_of, turn_of
from lakefold_ingest.operations.append import KeepsBadRows
from lakefold_ingest.operations.upsert import ATTEMPTS, UpsertRows, check_waits
from lakefold_ingest.rows.row_faults import BAD_ROWS, BadRowsError
from lakefold_ingest.rows.staged_rows import from_streams, rows_or_nothing
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_log.read.turns import smallest
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.errors import InvalidError, Text, shown_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakefold_ingest.operations.apply_changes import ApplyChanges
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.divided_rows import RowKeys
    from lakefold_ingest.rows.target import Target
    from lakefold_ingest.view import BatchColumns, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.turns import Turn

    KeyedOperation = UpsertRows | ApplyChanges

LOGGER = logging.getLogger("lakefold")


@dataclass(frozen=True, slots=True)
class PartFault:
    """Why a part could not be merged, as an error that another process raises.

    If it is a `BadRowsError`, `bad_rows` and `bad_columns` are its rows and columns. `is_key`: it is a
    `BadKeysError`.
    """

    message: Text
    where: Text
    hint: Text
    bad_columns: tuple[str, ...] = ()
    bad_rows: int = 0
    is_key: bool = False

    @classmethod
    def read(cls, text: str) -> PartFault:
        """Returns the fault of a `text`."""
        message, where, hint, columns, rows, is_key = json.loads(text)
        return cls(message, where, hint, tuple(columns), rows, is_key)

    @property
    def text(self) -> str:
        """The fault as a text."""
        texts = shown_texts((self.message, self.where, self.hint))
        return json.dumps([*texts, self.bad_columns, self.bad_rows, self.is_key])

    @classmethod
    def of(cls, error: InvalidError) -> PartFault:
        """Returns the fault that this error reports."""
        if not isinstance(error, BadRowsError):
            return cls(*error.texts)
        return cls(*error.texts, error.columns, error.rows, isinstance(error, BadKeysError))

    def error(self, others: Iterable[PartFault] = ()) -> InvalidError:
        """Returns the error. If rows are bad, it counts those of `others` with the same columns as well."""
        if not self.bad_columns:
            return InvalidError(self.message, where=self.where, hint=self.hint)
        same = [each.bad_rows for each in others if each.bad_columns == self.bad_columns]
        kind = BadKeysError if self.is_key else BadRowsError
        return kind(
            self.message,
            columns=self.bad_columns,
            rows=self.bad_rows + sum(same),
            examples=(),
            where=self.where,
            hint=self.hint,
        )


@dataclass(frozen=True, slots=True)
class MergedPart:
    """What was found and written for one part.

    `part`: an encoded envelope with nothing but the rows that are deleted or moved, the new fragments and the
    inserted keys. `bad_rows`: rows that were left out, as an Arrow stream of `BAD_ROWS`, empty if there are
    none. `fault`: the reason why it stopped, or None. `keys`: hashes of its keys (`merge.turns`), in 4 bytes
    each.
    """

    part: bytes
    bad_rows: bytes = b""
    fault: PartFault | None = None
    keys: bytes = b""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What is needed to merge a part into a version of the table: the driver sends it to executors.

    `operation` has no rows. `keeps_bad_rows`: rows that can't be merged are left out and returned.
    """

    target: Target
    version: int
    operation: KeyedOperation
    keeps_bad_rows: bool = False

    @property
    def key_types(self) -> pa.Schema | None:
        """The key columns in the types of the table."""
        return key_types(self.operation.key_names, self.target.fitting.schema)

    def numbered(self, rows: pa.Table) -> tuple[RowKeys, NDArray[np.int64]]:
        """Returns the keys of these rows of the batch, and a number of each; equal keys have the same.

        Raises `InvalidError` if the rows are change events that can't be read.
        """
        keys = self.operation.with_rows(rows).row_keys(self.target.fitting.schema)
        return keys, key_numbers(keys.keys, self.key_types)

    def run(self, rows: pa.Table, buckets: range | None = None) -> MergedPart:
        """Merges all rows of the batch that have some of its keys. Nothing in the table changes by that.

        `buckets` are those of the keys. If clauses are about rows that the batch lacks, each part finds those
        with keys in its buckets, so a batch in parts has to have a part for each bucket, also without rows.

        Rows that can't be merged are returned as a fault, not raised: Spark would run the task again, and
        then report a text of many lines. If the task fails, its files are removed.
        """
        operation = self.operation.with_rows(rows)
        try:
            part = self._part(operation, buckets).SerializeToString()
        except InvalidError as error:
            return MergedPart(b"", fault=PartFault.of(error))
        bad_rows = b"".join(rows_or_nothing(each) for each in operation.bad_rows)
        columns = self.target.fitting.schema
        changed = keys_of(operation.row_keys(columns).keys, columns)
        return MergedPart(part, bad_rows, keys=np.array(sorted(changed), np.uint32).tobytes())

    def _part(self, operation: KeyedOperation, buckets: range | None) -> Envelope:
        options = self.target.storage_options
        view = view_at(self.target.uri, self.version, options)
        table = merge_format(view).open(view, options)
        kinds = self.key_types
        share = None if buckets is None or kinds is None else KeyShare(kinds, buckets)
        batch, _, changes = operation.changes(table, view, share, keeps_bad_rows=self.keeps_bad_rows)
        return table.write(self.target, batch, changes)


@dataclass(frozen=True, slots=True)
class KeyedParts(KeepsBadRows):
    """An `Operation` that merges rows, or applies events, which are not in one place.

    `operation` says what is done with rows and has none, but their columns. `run` merges all parts and
    returns what `MergeTask.run` returned for each: a part has all rows of the batch with some of its keys. It
    may end after a part that has a fault. `rows`: how many rows the parts have, None if that is not known.
    `changed`: hashes of the keys of the last build.
    `first` returns the operation with its first rows, if these say which columns a new table has.
    """

    operation: KeyedOperation
    run: Callable[[MergeTask], Iterable[MergedPart]]
    attempts: int = ATTEMPTS
    bad_rows: list[pa.Table] = field(default_factory=list, compare=False)
    rows: int | None = None
    changed: list[NDArray[np.uint32]] = field(default_factory=list, compare=False)
    first: Callable[[], KeyedOperation] | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """The schema with which the table is created if it doesn't exist. None: it must exist."""
        return (self.operation if self.first is None else self.first()).schema

    @property
    def batch_columns(self) -> BatchColumns | None:
        """The columns of the rows, if values of them are written. Raises as that of the operation."""
        return self.operation.batch_columns

    def check(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> None:
        """See `ChecksColumns.check`: only what is known without the rows."""
        self.operation.check(columns, where, keeps_bad_rows=keeps_bad_rows)

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`: what the operation would say of all rows."""
        del view, rows
        if self.rows is None:
            return ""
        kind = "merge" if isinstance(self.operation, UpsertRows) else "changes"
        return batch_content(kind, self.operation.rows.column_names, self.rows)

    def turn(self, view: View, key: Key) -> Turn:
        """See `ChangesKeys.turn`. Only the parts know the keys, so none are known before the first build."""
        changed = np.concatenate([np.empty(0, np.uint32), *self.changed])
        return turn_of(view, key, smallest(changed.astype(np.uint64)))

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Has the parts merged into the version of `view`. Returns the envelope of them all.

        Returns None if no row changes. Raises `InvalidError` and `BadRowsError` as the operation does, before
        the parts if it can. The files of all parts are removed if one fails.
        """
        check_waits(settings)
        self.check(view.schema, view.uri)
        self.bad_rows.clear()
        table, target = merge_format(view).opened(view, settings)
        task = MergeTask(target, view.version, self.operation, bool(settings.bad_records))
        results, parts = list[MergedPart](), list[Envelope]()
        try:
            for result in self.run(task):
                results.append(result)
                parts.append(Envelope.FromString(result.part))
            _raise_fault(results)
            LOGGER.info("%s: %s parts change version %s of %s", key, len(parts), view.version, view.uri)
            united = table.proposal(target, key, parts, self.operation.key_names)
        except BaseException as error:
            written = [file for part in parts for file in table.written(part)]
            remove_unused(target, written, str(error))
            raise
        self.changed[:] = [np.frombuffer(result.keys, np.uint32) for result in results]
        bad_rows = from_streams(b"".join(result.bad_rows for result in results), BAD_ROWS)
        if bad_rows.num_rows:
            self.bad_rows.append(bad_rows)
        return united


def _raise_fault(results: Sequence[MergedPart]) -> None:
    """Raises the fault of the first part that has one. If rows are bad, it counts those of all parts."""
    faults = [result.fault for result in results if result.fault is not None]
    if faults:
        raise faults[0].error(faults[1:])
