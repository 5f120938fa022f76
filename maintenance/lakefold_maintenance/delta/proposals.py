"""The result of a task, and the proposal of results: files removed and added, in which no row is new."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.delta.row_tracking import kept_columns
from lakefold_table.delta.actions.file_actions import AddFile, removal_of
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.record_counts import record_count
from lakefold_table.delta.table_features.row_tracking import PRESERVING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_maintenance.delta.survey import DeltaSurvey
    from lakefold_maintenance.planning.plan import RewriteTask

OPTIMIZE: Final = "OPTIMIZE"


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """See `RewriteResult`. `old`: the files that were read. `new`: those with their rows, if any."""

    task: RewriteTask
    old: Sequence[AddFile]
    new: Sequence[AddFile]

    @property
    def files(self) -> list[str]:
        """See `RewriteResult.files`."""
        return [file_path(file.path).text for file in self.new]


def optimize(survey: DeltaSurvey, results: Sequence[RewrittenFiles]) -> Envelope:
    """Returns the proposal of these results, built on the version of the survey.

    It changes no rows (`dataChange` is false). The new files say where rows were moved (decision 0083), so
    neither a compaction nor a deletion of rows beside it is refused.
    """
    envelope = Envelope(table=survey.table, table_id=survey.table_id)
    envelope.delta.read_version = survey.version
    envelope.delta.operation = OPTIMIZE
    # As delta-spark names them.
    envelope.delta.operation_parameters.update({"predicate": "[]", "zOrderBy": "[]", "auto": "false"})
    removes = [
        # Statistics and tags of removed files would only make the log longer.
        replace(removal_of(file, data_change=False), stats=_found_empty(file, result), tags=None)
        for result in results
        for file in result.old
    ]
    tags = [PRESERVING] if kept_columns(survey.snapshot, survey.table) else []
    envelope.delta.actions = lines_of([*tags, *removes, *(file for result in results for file in result.new)])
    return envelope


def _found_empty(file: AddFile, result: RewrittenFiles) -> str | None:
    """Returns statistics of a file if it has no rows to move and the table does not know that, else None."""
    return None if result.new or record_count(file) is not None else '{"numRecords":0}'
