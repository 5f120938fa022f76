"""Writes a batch, or says what it would do, by the committer's fold on the table as it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakefold_committer.fold.grouping import Limits
from lakefold_committer.replay.file_fold import fold_file
from lakefold_committer.tables.branches import open_branch
from lakefold_ingest.formats import format_of, read_view
from lakefold_ingest.rows.unused_files import remove_files
from lakefold_ingest.writing.batch import folded_before, put_batch
from lakefold_ingest.writing.batch_errors import accepted, check_duplicate
from lakefold_ingest.writing.report import BatchReport, figures_of
from lakefold_ingest.writing.sending_query import ANYBODY
from lakefold_log.read.file_log import FileLog, framed
from lakefold_table.entry import Rejected
from lakefold_table.errors import InvalidError, NotATableError, OptionName
from lakefold_table.formats import BUILT_IN
from lakefold_table.versions.table_address import TableAddress

if TYPE_CHECKING:
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.row_source import RowSource
    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Committed, Duplicate

_LIMITS = Limits(max_entries=1, max_bytes=1)


def written(settings: WriteSettings, key: Key, operation: Operation, rows: RowSource | None) -> BatchReport:
    """Applies a batch as `put_batch`; with `settings.dry_run` it only returns what that would do."""
    return (
        planned(settings, key, operation, rows)
        if settings.dry_run
        else put_batch(settings, key, operation, rows=rows)
    )


def planned(
    settings: WriteSettings, key: Key, operation: Operation, rows: RowSource | None = None
) -> BatchReport:
    """Returns what a batch would do to the newest version of its table.

    The proposal is built as for a write, so its files are written; they are removed before this returns.
    Raises `NotATableError` if there is no table, `InvalidError` if columns would have to be added first, and
    as `put_batch` if the rows don't fit, or the proposal would be refused.
    """
    if settings.merge_schema:
        hint = "add the columns first: `lakefold.alter`, `lakefold alter`"
        raise InvalidError("a dry run adds no columns", where=OptionName("merge_schema"), hint=hint)
    view = read_view(settings.table, settings.storage_options)
    if view is None:
        hint = "create it first: `lakefold.create`, `lakefold create`"
        raise NotATableError("there is no table to try it on", where=settings.table, hint=hint)
    folded = view.folded(key)
    if folded is not None and not (folded.rolled_back_by and settings.on_rolled_back == "again"):
        duplicate = folded_before(view, key, folded, operation, rows)
        check_duplicate(duplicate, key, settings, ANYBODY)
        return BatchReport(duplicate, is_sent=False, is_planned=True)
    envelope = operation.build(view, key, settings)
    if envelope is None:
        return BatchReport(None, is_sent=False, is_planned=True)
    try:
        return BatchReport(
            _result(envelope, settings),
            is_sent=False,
            figures=figures_of(envelope, 0.0, 0.0, 0.0),
            is_planned=True,
        )
    finally:
        paths = list(format_of(envelope).new_paths(envelope))
        remove_files(settings.table, settings.storage_options, paths, "it was a dry run")


def _result(envelope: Envelope, settings: WriteSettings) -> Committed | Duplicate:
    """Returns the result that the proposal would have. Raises `RefusedError` if it would be refused."""
    address = TableAddress(settings.table, settings.storage_options)
    branches = partial(open_branch, address, formats=BUILT_IN)
    log = FileLog(framed([envelope]))
    (outcome,) = fold_file(branches, settings.table, BUILT_IN, log, _LIMITS, dry_run=True)
    result = accepted(outcome)
    if isinstance(result, Rejected):
        # A version came between its view and the fold.
        raise InvalidError(result.conflict.message, where=settings.table, hint="run it again")
    return result
