"""Fits the table to the columns of a batch, through the log, before the batch's rows are sent.

Columns that the table lacks are added, and in Lance tables columns whose types are too narrow get wider types
(`lance.evolution`). Both are one proposal of their own (of Lance a Merge, of Delta a metaData action), which
is awaited. Then the rows are written for the schema that it made. Each of the two may fail or be repeated at
any point:

- Nothing is sent or written before it is known that the rows fit the table with the changed columns, and that
  conditions and keys of a merge can be used there. Values that don't fit are noticed later.
- The proposal is refused if another operation changed the table's schema, or in Lance its fragments, since
  the version that it was built on. So two writers that change a column at once can't change it twice: the
  second proposal is refused, built again on the newest version, and changes what still has to be, often
  nothing.
- If the process ends after the proposal, the table has columns without values. The batch that is run again
  finds them and sends its rows only. The proposal has a key of its own: the batch's key belongs to its rows.

It loses against each such write that comes in between, so it is built up to `ATTEMPTS` times. Values that
were written again for a wider type are kept for the next attempt.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.formats import FORMATS, read_view, seen_source
from lakefold_ingest.rows.fitting import is_list, leaf_fits, plain_field
from lakefold_table.entry import Invalid, RefusedError, Rejected
from lakefold_table.errors import InvalidError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_ingest.view import BatchColumns, View
    from lakefold_ingest.writing.log_client import Answer
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import Position

    Check = Callable[[pa.Schema, str], None]

LOGGER = logging.getLogger("lakefold")
ATTEMPTS = 100
"""How often the proposal is built at most. One attempt takes some tens of milliseconds."""
_NO_OUTCOME = "see with `lakefold status` that a committer runs and whether the table is parked; "
_UNBOUND = "the table is bound to no log: if another client has replaced it, bind it by `lakefold adopt`; "


class EvolutionLog(Protocol):
    """The calls of the log that are needed here. `log_client.LogClient` implements them."""

    def check_binding(self, bound: Position | None, table: str) -> None:
        """See `LogClient.check_binding`."""

    def ask(
        self,
        envelope: Envelope,
        partition: int | None,
        timeout_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> Answer:
        """See `LogClient.ask`."""


def with_columns_of(
    view: View, columns: BatchColumns, settings: WriteSettings, log: EvolutionLog, check: Check | None = None
) -> View:
    """Returns the table with all columns of the batch, in types that have its values; changes it if needed.

    Returns `view` if nothing has to be changed. `check` raises `InvalidError` if the batch can't be applied
    to the columns that the table will have. Raises `InvalidError` if the rows don't fit the table with
    the changed columns, one can't be added, or the table is too large to write columns again: then nothing
    was sent. Raises `RefusedError` if the proposal is invalid, `RetryError` if nothing answered in time or
    every attempt was refused.
    """
    refusals: list[str] = []
    missing = [key for key in columns.keys if key not in view.schema.names]
    if missing:
        hint = "name columns that the table has: the keys of its rows are compared"
        raise InvalidError(f"the table doesn't have the keys {', '.join(missing)}", where=view.uri, hint=hint)
    evolution = FORMATS[view.format].evolution(settings)
    if not evolution.is_needed(view, columns):
        return view
    if check is not None:
        check(changed_schema(view.schema, columns.schema), view.uri)
    # Another writer, or an earlier batch of this writer, may have changed them since the view was read.
    view = _newest(view, settings, afresh=False)
    while len(refusals) < ATTEMPTS:
        if not evolution.is_needed(view, columns):
            return view
        change = evolution.change(view, columns, seen_source(view.uri, settings.storage_options))
        change.envelope.table_id = view.carried.full_id
        log.check_binding(view.bound, view.uri)
        answer = log.ask(
            change.envelope, view.partition, settings.timeout_s, storage_options=settings.storage_options
        )
        result = None if answer.outcome is None else answer.outcome.result
        if answer.outcome is not None and isinstance(result, Invalid):
            message = f"the committer can't change columns: {result.message}"
            raise RefusedError(message, outcome=answer.outcome, where=view.uri, hint=result.hint)
        view = _newest(view, settings, afresh=True)
        if isinstance(result, Rejected):
            refusals.append(result.conflict.message)
        elif result is not None:
            LOGGER.info("%s: the schema has %s", view.uri, change.text)
        elif evolution.is_needed(view, columns):
            raise RetryError(
                f"no outcome within {settings.timeout_s:g} s for {change.text} at {answer.position}",
                where=view.uri,
                hint=f"{no_outcome_hint(view)}the same batch may be run again, it changes no column twice",
            )
    raise RetryError(
        f"the changed columns were refused {len(refusals)} times, the last time because {refusals[-1]}",
        where=view.uri,
        hint="others change the table meanwhile; run the batch again when they write less often",
    )


def no_outcome_hint(view: View | None) -> str:
    """Returns what to do about a proposal without an outcome. `view`: the table as it is now."""
    return _NO_OUTCOME if view is None or view.bound is not None else _UNBOUND + _NO_OUTCOME


def changed_schema(table: pa.Schema, batch: pa.Schema) -> pa.Schema:
    """Returns about the columns that a table will have once it is fitted to a batch.

    A column, or a field inside of it, whose values don't fit the table's type has that of the batch.
    """
    return pa.schema(_merged(list(table), list(batch)))


def _merged(table: Sequence[pa.Field], batch: Sequence[pa.Field]) -> list[pa.Field]:
    """Returns the fields of a table or struct, then those that only the batch has."""
    types = {field.name: field.type for field in batch}
    merged = [field.with_type(_merged_type(field.type, types.get(field.name, pa.null()))) for field in table]
    present = {field.name for field in table}
    return [*merged, *(field for field in batch if field.name not in present)]


def _merged_type(table: pa.DataType, batch: pa.DataType) -> pa.DataType:
    batch, stored = (plain_field(pa.field("", kind)).type for kind in (batch, table))
    if types.is_null(batch) or leaf_fits(batch, stored):
        return table
    if types.is_struct(table) and types.is_struct(batch):
        return pa.struct(_merged(list(table), list(batch)))
    if types.is_map(table) and types.is_map(batch):
        key, item = (
            field.with_type(_merged_type(field.type, given))
            for field, given in ((table.key_field, batch.key_type), (table.item_field, batch.item_type))
        )
        return pa.map_(key, item, table.keys_sorted)
    if is_list(table) and is_list(batch):
        item = table.value_field.with_type(_merged_type(table.value_type, batch.value_type))
        if types.is_fixed_size_list(table):
            return pa.list_(item, table.list_size)
        return pa.large_list(item) if types.is_large_list(table) else pa.list_(item)
    return batch


def _newest(view: View, settings: WriteSettings, *, afresh: bool) -> View:
    """Returns the table as it is now. Raises `RetryError` if it was removed meanwhile."""
    now = read_view(view.uri, settings.storage_options, afresh=afresh)
    if now is None:
        raise RetryError(
            "the table was removed while columns were added", where=view.uri, hint="run the batch again"
        )
    return now
