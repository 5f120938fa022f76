"""What a write of Spark's that applies change events does in its tasks and on the driver.

The tasks send their events to the driver, as `merge_plan` does, in the order of Spark's partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import check_waits
from lakefold_ingest.writing.view import read_view

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefold_ingest.cdc.change_format import ChangeFormat
    from lakefold_ingest.writing.settings import WriteSettings


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """How a batch of events is applied, decided before its tasks. `schema`: the columns that they send."""

    settings: WriteSettings
    format: ChangeFormat
    schema: pa.Schema

    def operation(self, rows: pa.Table) -> ApplyChanges:
        """Returns what applies the events of all tasks."""
        return ApplyChanges(rows, self.format)


def plan_changes(settings: WriteSettings, format_: ChangeFormat, schema: pa.Schema) -> ChangePlan:
    """Returns how events with this schema are applied to the table.

    Raises `InvalidError` if they don't fit the table, or the outcome would not be awaited.
    """
    check_waits(settings)
    view = read_view(settings.table, settings.storage_options)
    operation = ApplyChanges(schema.empty_table(), format_)
    if view is None or settings.merge_schema:
        # Columns that the table lacks are added when the batch is committed.
        _ = operation.schema if view is None else operation.batch_columns
    else:
        operation.last_changes(view.schema, view.uri)
    return ChangePlan(settings, format_, schema)
