"""Adds the columns that a batch has and the table lacks, through the log, before the batch's rows are sent.

The columns are a proposal of their own, a Merge, which is awaited. Then the rows are written for the schema
that has them. Each of the two may fail or be repeated at any point:

- Nothing is sent before it is known that the rows fit the table with the new columns.
- A Merge is refused if another operation changed the table's fragments or its schema since the version that
  it was built on. So two writers that add a column at once can't add it twice: the second Merge is refused,
  built again on the newest version, and adds what is missing still, often nothing.
- If the process ends after the Merge, the table has columns without values. The batch that is run again
  finds them and sends its rows only. The Merge has a key of its own: the batch's key belongs to its rows.

A Merge is small but loses against each write that comes in between, so it is built up to `ATTEMPTS` times.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakefold_ingest.proposals.envelopes import add_columns
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.rows.new_columns import NewColumns, new_columns
from lakefold_ingest.writing.view import read_view, seen_source
from lakefold_reader.lance.versions import read_state
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import InvalidError, RefusedError, RetryError
from lakefold_table.lance.schemas.arrow import schema_to_arrow
from lakefold_table.lance.schemas.data_files import file_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.writing.log_client import Answer
    from lakefold_ingest.writing.operation import BatchColumns
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.view import View
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.position import Position

LOGGER = logging.getLogger("lakefold")
ATTEMPTS = 100
"""How often a Merge is built at most. One attempt takes some tens of milliseconds."""
_HINT = (
    "mergeSchema adds columns and changes none: Lance stores the type of a column in its data files, so a "
    "column can't get a wider type; cast the batch's column, or write it under another name"
)


class AskingLog(Protocol):
    """What is needed of the log. `log_client.LogClient` implements it."""

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


def with_columns_of(view: View, columns: BatchColumns, settings: WriteSettings, log: AskingLog) -> View:
    """Returns the table with all columns of the batch; adds those that it lacks.

    Returns `view` if it has them all. Raises `InvalidError` if the rows don't fit the table with the new
    columns, or one can't be added: then nothing was sent. Raises `RefusedError` if the Merge is invalid,
    `RetryError` if nothing answered in time or every attempt was refused.
    """
    refusals: list[str] = []
    missing = [key for key in columns.keys if key not in view.schema.names]
    if missing:
        hint = "name columns that the table has: the keys of its rows are compared"
        raise InvalidError(f"the table doesn't have the keys {', '.join(missing)}", where=view.uri, hint=hint)
    if not _lacks(view, columns):
        _check(columns, view.schema, view.uri)
        return view
    # Another writer, or an earlier batch of this writer, may have added them since the view was read.
    view = _newest(view, settings, afresh=False)
    while len(refusals) < ATTEMPTS:
        if not _lacks(view, columns):
            return view
        added, envelope = _merge(view, columns, settings)
        log.check_binding(view.bound, view.uri)
        answer = log.ask(
            envelope, view.partition, settings.timeout_s, storage_options=settings.storage_options
        )
        result = None if answer.outcome is None else answer.outcome.result
        if answer.outcome is not None and isinstance(result, Invalid):
            message = f"the committer can't add columns: {result.message}"
            raise RefusedError(message, outcome=answer.outcome, where=view.uri, hint=result.hint)
        view = _newest(view, settings, afresh=True)
        if isinstance(result, Rejected):
            refusals.append(result.conflict.message)
        elif result is not None:
            LOGGER.info("%s: the columns %s were added", view.uri, ", ".join(added.names))
        elif _lacks(view, columns):
            raise RetryError(
                f"no outcome within {settings.timeout_s:g} s for the new columns {', '.join(added.names)} at "
                f"{answer.position}",
                where=view.uri,
                hint="see that a committer runs; the same batch may be run again, it adds no column twice",
            )
    raise RetryError(
        f"the new columns were refused {len(refusals)} times, the last time because {refusals[-1]}",
        where=view.uri,
        hint="others change the table meanwhile; run the batch again when they write less often",
    )


def _lacks(view: View, columns: BatchColumns) -> bool:
    """Returns whether the table lacks columns of the batch. Raises as `new_columns`."""
    return (
        new_columns(columns.schema, view.fields, 0, file_version(view.data_storage_version), view.uri)
        is not None
    )


def _merge(view: View, columns: BatchColumns, settings: WriteSettings) -> tuple[NewColumns, Envelope]:
    """Returns what the table lacks, and the proposal that adds it.

    Raises `InvalidError` if the rows would not fit the table then.
    """
    state = read_state(seen_source(view.uri, settings.storage_options), view.version)
    used = {number for fragment in state.fragments for file in fragment.files for number in file.fields}
    highest = max(used.union(field.id for field in view.fields), default=-1)
    version = file_version(view.data_storage_version)
    added = new_columns(columns.schema, view.fields, highest, version, view.uri)
    if added is None:
        raise RuntimeError("a Merge is built only if the table lacks columns")
    _check(columns, schema_to_arrow(added.fields, {}), view.uri)
    return added, add_columns(view.uri, new_key(), view.version, added.fields, state.fragments)


def _check(columns: BatchColumns, table: pa.Schema, where: str) -> None:
    wanted = table
    if not columns.are_all:
        wanted = pa.schema([field for field in table if field.name in columns.schema.names])
    try:
        fit(columns.schema, wanted, where)
    except InvalidError as error:
        raise InvalidError(error.message, where=error.where, hint=_HINT) from error


def _newest(view: View, settings: WriteSettings, *, afresh: bool) -> View:
    """Returns the table as it is now. Raises `RetryError` if it was removed meanwhile."""
    now = read_view(view.uri, settings.storage_options, afresh=afresh)
    if now is None:
        raise RetryError(
            "the table was removed while columns were added", where=view.uri, hint="run the batch again"
        )
    return now
