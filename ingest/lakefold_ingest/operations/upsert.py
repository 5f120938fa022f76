"""Merges the rows of a batch into the table by their keys."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.clause_constants import check_constants
from lakefold_ingest.merge.clauses import (
    MatchedUpdate,
    NotMatchedBySourceUpdate,
    assignments_of,
    first_that_holds,
)
from lakefold_ingest.merge.conditions import SOURCE, TARGET, check, columns_in, holds
from lakefold_ingest.merge.formats import merge_format
from lakefold_ingest.merge.matching import all_rows, matched_rows
from lakefold_ingest.merge.merge_batch import MergeBatch, merge_batch, merge_faults
from lakefold_ingest.merge.read_version import ReadVersion, stored_schema
from lakefold_ingest.merge.row_changes import FoundRows, Rewriting, RowChanges
from lakefold_ingest.merge.turns import keys_of, turn_of
from lakefold_ingest.operations.append import KeepsBadRows
from lakefold_ingest.rows.divided_rows import RowKeys
from lakefold_ingest.rows.json_values import check_json
from lakefold_ingest.rows.source_columns import check_keys, own_columns, own_rows
from lakefold_ingest.view import BatchColumns, View
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.merge.clauses import Clause, Merge
    from lakefold_ingest.merge.key_numbers import KeyShare
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.turns import Turn
    from lakefold_protos.lakefold.log_pb2 import Envelope

LOGGER = logging.getLogger("lakefold")
ATTEMPTS = 20
"""How often an upsert or a delete is built at most. Each time some other writer's proposal was folded.

Writers that take turns need 2 or 3: each overtakes a refused one at most once, by what it had begun before.
The others are for clients that take no turns: older releases, other programs.
"""
PAIRS_AT_ONCE = 2**16
"""For how many pairs of rows conditions are evaluated at once."""


@dataclass(slots=True)
class UpsertRows(KeepsBadRows):
    """An `Operation` that merges rows into the table. `rows` are those of the batch.

    `source`: the columns that only bad rows keep; no key, but some may order the rows. If it is built again,
    only the fragments that changed since are read, and what was written is used again unless the batch
    changes other rows now. Raises `InvalidError` if `source` has a key.
    """

    rows: pa.Table
    merge: Merge
    attempts: int = ATTEMPTS
    bad_rows: list[pa.Table] = field(default_factory=list, compare=False)
    source: tuple[str, ...] = ()
    _built: BuiltChanges | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_keys(self.merge.keys, self.source)

    @property
    def schema(self) -> pa.Schema | None:
        """The schema with which the table is created if it doesn't exist. None: it must exist."""
        return own_columns(self.rows.schema, self.source) if self.merge.inserts else None

    @property
    def batch_columns(self) -> BatchColumns | None:
        """The columns of the batch, if a clause writes values of it."""
        updates = any(isinstance(clause, MatchedUpdate) for clause in self.merge.matched)
        if not updates and not self.merge.inserts:
            return None
        columns = own_columns(self.rows.schema, self.source)
        return BatchColumns(columns, are_all=bool(self.merge.inserts), keys=self.merge.keys)

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Writes the files of the upsert and returns its envelope; None if no row changes.

        Raises `InvalidError` if the batch doesn't fit the table or a condition can't be evaluated,
        `BadKeysError` if rows can't be matched by their keys, and as `ReadVersion`.
        """
        check_waits(settings)
        table, target = merge_format(view).opened(view, settings)
        built = self._built = self._build(table, view, target, keeps_bad_rows=bool(settings.bad_records))
        log_changes(key, view, built.changes)
        return table.proposal(target, key, [built.part], self.merge.keys)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many rows the last build updates, inserts and deletes."""
        if self._built is None:
            return 0, 0, 0
        changes = self._built.changes
        return changes.moved, changes.inserted.size, changes.deleted.size - changes.moved

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`: the rows that it was given."""
        del view, rows
        return batch_content("merge", self.rows.column_names, self.rows.num_rows)

    def _build(self, table: ReadVersion, view: View, target: Target, *, keeps_bad_rows: bool) -> BuiltChanges:
        before, merge = self._built, self.merge
        again = (
            None
            if before is None or merge.by_source
            else table.matched_again(before.table, before.batch.keys, before.matched)
        )
        if before is None or again is None:
            batch = self.batch(view.schema, view.uri, keeps_bad_rows=keeps_bad_rows)
            check_conditions(merge, batch, view.schema)
            matched, others = _matched(table, batch, merge)
        elif again.is_same:
            return replace(before, table=table, matched=again.matched)
        else:
            batch, matched, others = before.batch, again.matched, FoundRows.of([])
        changes = changes_of(table, batch, merge, matched, others)
        return BuiltChanges(table, batch, matched, changes, table.write(target, batch, changes))

    def with_rows(self, rows: pa.Table) -> UpsertRows:
        """Returns the same operation for other rows."""
        return UpsertRows(rows, self.merge, self.attempts, source=self.source)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns by which rows are the same."""
        return self.merge.keys

    def row_keys(self, table: pa.Schema) -> RowKeys:
        """Returns the key columns of the rows, as they are in the batch."""
        del table
        names = [name for name in self.merge.keys if name in self.rows.column_names]
        return RowKeys(self.rows.select(names))

    def turn(self, view: View, key: Key) -> Turn:
        """See `ChangesKeys.turn`."""
        changed = keys_of(self.row_keys(view.schema).keys, view.schema)
        return turn_of(view, key, changed, self.rows)

    def check(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> None:
        """See `ChecksColumns.check`: the rows and their keys, and the conditions."""
        check_conditions(self.merge, self.batch(columns, where, keeps_bad_rows=keeps_bad_rows), columns)

    def changes(
        self,
        table: ReadVersion,
        view: View,
        share: KeyShare | None = None,
        *,
        keeps_bad_rows: bool = False,
    ) -> tuple[MergeBatch, FoundRows, RowChanges]:
        """Returns the batch, the rows of the table that have its keys, and what becomes of them.

        `share`: the keys of this part of a batch; None: the rows are the whole batch, or no clause is about
        rows that the batch lacks. Raises as `build`.
        """
        batch = self.batch(view.schema, view.uri, keeps_bad_rows=keeps_bad_rows)
        matched, others = _matched(table, batch, self.merge, share)
        return batch, matched, changes_of(table, batch, self.merge, matched, others)

    def batch(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> MergeBatch:
        """Returns the batch without the rows that can't be merged, which are put into `bad_rows`.

        `columns` are the table's, `where` names it. Raises as `merge_batch`, and `BadRowsError` if values
        don't fit and bad rows are not kept.
        """
        self.bad_rows.clear()
        rows = own_rows(self.rows, self.source, self.merge.order_by)
        try:
            batch = merge_batch(rows, self.merge, columns, where)
            check_json(batch.rows)
        except InvalidError as error:
            faults = merge_faults(rows, self.merge, columns, where)
            if not faults.rows.size or (isinstance(error, BadKeysError) and not keeps_bad_rows):
                raise
            if not keeps_bad_rows:
                raise faults.error(self.rows, where) from error
        else:
            return batch
        self.bad_rows.append(faults.described(self.rows, source=self.source))
        good = np.setdiff1d(np.arange(rows.num_rows), faults.rows)
        return merge_batch(rows.take(pa.array(good)), self.merge, columns, where)


def check_waits(settings: WriteSettings) -> None:
    """Raises `InvalidError` if the outcome is not awaited: a refusal must be answered with a new build.

    Also for an order of the rows, which have that of their keys.
    """
    if settings.sort_by:
        message = "it is for rows that are appended"
        raise InvalidError(
            message, where=OptionName("sort_by"), hint="leave it out: other modes order rows by themselves"
        )
    if settings.wait != "commit":
        raise InvalidError(
            "upserts and deletes have to wait for their outcome, because they are built again if others "
            "changed the same rows meanwhile",
            where=OptionName("wait"),
            hint='give wait="commit", or leave it out',
        )


@dataclass(frozen=True, slots=True)
class BuiltChanges:
    """What an upsert found in the version `table`, and the part that it wrote."""

    table: ReadVersion
    batch: MergeBatch
    matched: FoundRows
    changes: RowChanges
    part: Envelope


def log_changes(key: Key, view: View, changes: RowChanges) -> None:
    """Logs how many rows a batch changes, if any."""
    if changes.deleted.size or changes.inserted.size:
        LOGGER.info(
            "%s changes version %s of %s: %s rows updated, %s inserted, %s deleted",
            key,
            view.version,
            view.uri,
            changes.moved,
            changes.inserted.size,
            changes.deleted.size - changes.moved,
        )


def _matched(
    table: ReadVersion, batch: MergeBatch, merge: Merge, share: KeyShare | None = None
) -> tuple[FoundRows, FoundRows]:
    """Returns the rows that have a key of the batch, and those that the batch lacks and a clause is about."""
    if not merge.by_source:
        return matched_rows(table, batch.keys), FoundRows.of([])
    return all_rows(table, batch.keys, [clause.condition for clause in merge.by_source], share)


def changes_of(
    table: ReadVersion, batch: MergeBatch, merge: Merge, matched: FoundRows, others: FoundRows
) -> RowChanges:
    """Returns what becomes of the batch's rows, of those that they match, and of `others` of the table."""
    is_new = np.ones(batch.rows.num_rows, np.bool_)
    is_new[matched.choices] = False
    clause_of = _clauses_of_pairs(table, batch, matched, merge.matched)
    rewritings = [
        Rewriting(
            matched.only(clause_of == index),
            frozenset(batch.rows.column_names if clause.columns is None else clause.columns).difference(
                assignments_of(clause)
            ),
            assignments_of(clause),
        )
        for index, clause in enumerate(merge.matched)
        if isinstance(clause, MatchedUpdate)
    ]
    rewritings += [
        Rewriting(others.only(others.choices == index), frozenset(), clause.assignments, in_batch=False)
        for index, clause in enumerate(merge.by_source)
        if isinstance(clause, NotMatchedBySourceUpdate)
    ]
    return RowChanges(
        rewritings,
        np.sort(np.concatenate([matched.addresses[clause_of >= 0], others.addresses])),
        _inserted(batch, np.flatnonzero(is_new), merge),
        matched.addresses[clause_of < 0],
        reads_all=bool(merge.by_source),
    )


def _clauses_of_pairs(
    table: ReadVersion, batch: MergeBatch, matched: FoundRows, clauses: Sequence[Clause]
) -> NDArray[np.int64]:
    """Returns for each matched row the index of the clause that holds for it, -1 if none does."""
    conditions = [clause.condition for clause in clauses]
    rows = matched.addresses.size
    texts = [text for text in conditions if text]
    if not texts:
        return first_that_holds([None for _ in clauses], rows)
    of_batch, of_table = columns_in(texts, batch.source.column_names), columns_in(texts, table.columns)
    parts = [np.empty(0, np.int64)]
    for start in range(0, rows, PAIRS_AT_ONCE):
        part = slice(start, min(start + PAIRS_AT_ONCE, rows))
        sides = {
            SOURCE: batch.source.select(of_batch).take(pa.array(matched.choices[part])),
            TARGET: table.rows_at(matched.addresses[part], of_table),
        }
        count = part.stop - part.start
        parts.append(first_that_holds(holds(conditions, sides, count), count))
    return np.concatenate(parts)


def _inserted(batch: MergeBatch, new: NDArray[np.int64], merge: Merge) -> NDArray[np.int64]:
    """Returns those of the rows `new` of the batch for which an insert clause holds."""
    conditions = [clause.condition for clause in merge.inserts]
    texts = [text for text in conditions if text]
    source = batch.source
    sides = {SOURCE: source.select(columns_in(texts, source.column_names)).take(pa.array(new))}
    clause = first_that_holds(holds(conditions, sides, new.size), new.size)
    return new[clause >= 0]


def check_conditions(merge: Merge, batch: MergeBatch, columns: pa.Schema) -> None:
    """Raises `InvalidError` if a condition of a clause can't be evaluated on the table's `columns`.

    Also raises it for one that has a constant which `check_constants` refuses.
    """
    source, target = batch.source.schema, stored_schema(columns)
    with_lengths = {SOURCE: source, TARGET: columns}
    for clauses, sides in (
        (merge.matched, {SOURCE: source, TARGET: target}),
        (merge.inserts, {SOURCE: source}),
        (merge.by_source, {TARGET: target}),
    ):
        texts = [clause.condition for clause in clauses if clause.condition]
        for clause in clauses:
            texts += assignments_of(clause).values()
        check(texts, sides)
        for text in texts:
            check_constants(text, {side: with_lengths[side] for side in sides})
