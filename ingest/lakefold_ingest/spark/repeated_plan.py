"""The plan of a write whose rows don't fit the table: its batch may have been folded before, when they did.

Spark plans a write before its rows exist, and that of a stream before its number is known. So the key can be
looked up at the commit only. The tasks count their rows meanwhile, by which another batch with the key is
noticed, and the fault is raised if the batch is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.formats import read_view
from lakefold_ingest.options.write_options import WriteMode
from lakefold_ingest.rows.source_columns import own_columns
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.recorded_answer import with_marks_before
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_ingest.writing.sending_query import ANYBODY, Sender
from lakefold_table.errors import InvalidError, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lakefold_ingest.merge.clauses import Merge
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


def exists(settings: WriteSettings) -> bool:
    """Returns whether the table exists."""
    return read_view(settings.table, settings.storage_options) is not None


def is_folded(settings: WriteSettings, key: Key) -> bool:
    """Returns whether the table is known to have the batch."""
    view = None if key.batch_id is None else read_view(settings.table, settings.storage_options)
    return view is not None and with_marks_before(view, key, settings.storage_options).folded(key) is not None


def repeated_plan(
    settings: WriteSettings, error: InvalidError, mode: WriteMode, merge: Merge | None, rows: pa.Schema
) -> RepeatedPlan:
    """Returns the plan of a write in this mode whose rows, of this schema, don't fit the table."""
    source = settings.bad_records_columns
    kind, columns = "append", own_columns(rows, source).names
    if mode is WriteMode.CDC:
        kind, columns = "changes", rows.names
    elif merge is not None:
        kind, columns = "merge", rows.names if merge.needs_one_row else [*merge.keys, *source]
    elif mode is WriteMode.OVERWRITE or settings.bad_records:
        kind = ""
    return RepeatedPlan(settings, error.texts, kind, tuple(columns))


@dataclass(frozen=True, slots=True)
class RepeatedPlan:
    """What tasks do with rows that don't fit the table, and what becomes of their batch.

    `kind` and `columns`: as of `batch_content`; an empty kind says nothing. `fault`: why they don't fit, as
    the texts of `InvalidError`.
    """

    settings: WriteSettings
    fault: tuple[Text, Text, Text]
    kind: str
    columns: tuple[str, ...]

    def run(self, batches: Iterable[pa.RecordBatch], task: int = 0) -> int:
        """Returns how many rows a task has."""
        del task
        return sum(batch.num_rows for batch in batches)

    def failed(self, fault: tuple[Text, Text, Text]) -> int:
        """Returns the result of a task that couldn't write either."""
        del fault
        return 0

    def commit(self, key: Key, tasks: Sequence[int], sender: Sender = ANYBODY) -> BatchReport:
        """Returns the report of the batch if it was folded before. Raises the fault, and as `put_batch`."""
        content = batch_content(self.kind, self.columns, sum(tasks)) if self.kind else ""
        return put_batch(self.settings, key, RepeatedBatch(self.fault, content), sender)

    def abort(self, tasks: Sequence[int | None]) -> None:
        """Does nothing: nothing was written."""


@dataclass(frozen=True, slots=True)
class RepeatedBatch:
    """An `Operation` that can only be found to be folded already. `content`: see `SaysContent.said`."""

    fault: tuple[Text, Text, Text]
    content: str
    attempts: int = 1
    schema: pa.Schema | None = None
    batch_columns: None = None

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`."""
        del view, rows
        return self.content

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Raises the fault: the batch is new."""
        del view, key, settings
        message, where, hint = self.fault
        raise InvalidError(message, where=where, hint=hint)
