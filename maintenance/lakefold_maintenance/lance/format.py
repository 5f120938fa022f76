"""Lance tables behind the seam of `lakefold_maintenance.format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_maintenance.format import WaitingEntry
from lakefold_maintenance.lance.names import files_of_proposal, is_unique
from lakefold_maintenance.lance.proposals import rewrite, without_reuse_index
from lakefold_maintenance.lance.survey import LanceSurveyor
from lakefold_maintenance.lance.unnamed_files import may_be_removed, unnamed_files
from lakefold_table.entry import Committed, Result
from lakefold_table.lance.rows.row_order import groups_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_maintenance.format import (
        RewriteResult,
        TableSurvey,
        TaskLimits,
        UnnamedPaths,
    )
    from lakefold_maintenance.lance.rewriter import LanceRewriter, RewrittenTask
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source


class LanceMaintenance:
    """See `MaintenanceFormat`. pylance is loaded when the first task is run."""

    name = "lance"
    files_of = staticmethod(files_of_proposal)
    is_unique = staticmethod(is_unique)
    clean_up_takes = staticmethod(may_be_removed)

    def surveyor(self, source: Source, settings: Mapping[str, str]) -> LanceSurveyor:
        """See `MaintenanceFormat.surveyor`."""
        return LanceSurveyor(self, source, settings)

    def rewriter(self, survey: TableSurvey, limits: TaskLimits) -> LanceRewriter:
        """See `MaintenanceFormat.rewriter`."""
        from lakefold_maintenance.lance.rewriter import LanceRewriter

        return LanceRewriter(survey, limits)

    def rewrite(self, survey: TableSurvey, results: Sequence[RewriteResult]) -> Envelope:
        """See `MaintenanceFormat.rewrite`."""
        return rewrite(survey, _own(results))

    def new_ids(self, survey: TableSurvey, results: Sequence[RewriteResult], answer: Result) -> Iterable[int]:
        """See `MaintenanceFormat.new_ids`."""
        del survey
        if isinstance(answer, Committed) and answer.num_fragment_ids:
            return range(answer.first_fragment_id, answer.first_fragment_id + answer.num_fragment_ids)
        return [fragment.id for result in _own(results) for fragment in result.new]

    def names(self, survey: TableSurvey, fragment_ids: Collection[int]) -> list[int | str]:
        """Returns the ids: they are Lance's own."""
        del survey
        return list(fragment_ids)

    def without_reuse_index(self, survey: TableSurvey) -> Envelope | None:
        """See `MaintenanceFormat.without_reuse_index`."""
        return without_reuse_index(survey)

    def optimize_indices(self, survey: TableSurvey) -> None:
        """See `MaintenanceFormat.optimize_indices`."""
        from lakefold_maintenance.lance.indices import optimize_indices

        optimize_indices(survey.source)

    def waiting(self, envelope: Envelope) -> WaitingEntry:
        """See `MaintenanceFormat.waiting`. A Restore needs the version that it restores as well."""
        transaction = envelope.lance
        if transaction.HasField("restore"):
            return WaitingEntry(min(transaction.read_version, transaction.restore.version))
        if transaction.HasField("clone"):
            clone = transaction.clone
            return WaitingEntry(transaction.read_version, (), clone.ref_version, clone.ref_name)
        if not transaction.HasField("rewrite"):
            return WaitingEntry(transaction.read_version)
        old = (fragment.id for group in groups_of(transaction.rewrite) for fragment in group.old_fragments)
        return WaitingEntry(transaction.read_version, list(old))

    def rewritten_ids(self, survey: TableSurvey, rewritten: Collection[int | str]) -> set[int]:
        """See `MaintenanceFormat.rewritten_ids`."""
        del survey
        return {number for number in rewritten if isinstance(number, int)}

    def unnamed(
        self, survey: TableSurvey, waiting: AbstractSet[str], refused: AbstractSet[str], now: float
    ) -> UnnamedPaths:
        """See `MaintenanceFormat.unnamed`."""
        del now
        return unnamed_files(survey, waiting, refused)


def _own(results: Sequence[RewriteResult]) -> Sequence[RewrittenTask]:
    return cast("Sequence[RewrittenTask]", results)
