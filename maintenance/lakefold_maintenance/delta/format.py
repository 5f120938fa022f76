"""Delta tables behind the seam of `lakefold_maintenance.format`.

A fragment is a logical file of the table. Files have paths and no numbers, so a surveyor numbers them while
it exists. What reads and writes Parquet files is loaded when the first task is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from lakefold_maintenance.delta.proposals import RewrittenFiles, optimize
from lakefold_maintenance.delta.survey import DeltaSurvey, DeltaSurveyor
from lakefold_maintenance.delta.unnamed_files import is_unique, unnamed_files
from lakefold_maintenance.format import WaitingEntry
from lakefold_table.delta.proposal import proposal_in
from lakefold_table.delta.rows.vectors import file_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_maintenance.delta.rewriter import DeltaRewriter
    from lakefold_maintenance.format import (
        RewriteResult,
        TableSurvey,
        TaskLimits,
        UnnamedPaths,
    )
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_table.entry import Result
    from lakefold_table.storage.base import Storage

NONE_NEEDED: Final = 2**63 - 1
"""A number above that of every version."""


class DeltaMaintenance:
    """See `MaintenanceFormat`."""

    name = "delta"
    is_unique = staticmethod(is_unique)

    def surveyor(self, source: Source, settings: Mapping[str, str]) -> DeltaSurveyor:
        """See `MaintenanceFormat.surveyor`."""
        return DeltaSurveyor(self, source, settings)

    def rewriter(self, survey: TableSurvey, limits: TaskLimits) -> DeltaRewriter:
        """See `MaintenanceFormat.rewriter`. Row groups are read and written in turn, by one thread."""
        from lakefold_maintenance.delta.rewriter import DeltaRewriter

        del limits
        return DeltaRewriter(cast("DeltaSurvey", survey))

    def rewrite(self, survey: TableSurvey, results: Sequence[RewriteResult]) -> Envelope:
        """See `MaintenanceFormat.rewrite`."""
        return optimize(cast("DeltaSurvey", survey), _own(results))

    def new_ids(self, survey: TableSurvey, results: Sequence[RewriteResult], answer: Result) -> Iterable[int]:
        """See `MaintenanceFormat.new_ids`."""
        del answer
        numbers = cast("DeltaSurvey", survey).numbers
        return [numbers.of(file.path) for result in _own(results) for file in result.new]

    def names(self, survey: TableSurvey, fragment_ids: Collection[int]) -> list[int | str]:
        """Returns the paths of the files."""
        return [cast("DeltaSurvey", survey).files[number].path for number in fragment_ids]

    def without_reuse_index(self, survey: TableSurvey) -> None:
        """Returns None: Delta has no indices."""

    def optimize_indices(self, survey: TableSurvey) -> None:
        """Does nothing: Delta has no indices."""

    def waiting(self, envelope: Envelope) -> WaitingEntry:
        """See `MaintenanceFormat.waiting`. A proposal that depends on no version needs none that exists.

        A restore needs the files of the version that it restores, or of any if it doesn't name the version.
        """
        proposal = proposal_in(envelope)
        if proposal is None or proposal.based_on is None:
            return WaitingEntry(NONE_NEEDED)
        if proposal.restores:
            return WaitingEntry(proposal.restored or 0)
        moved = [] if proposal.changes_data else [file.path for file in proposal.removes]
        return WaitingEntry(proposal.based_on, moved)

    def files_of(self, envelope: Envelope) -> Iterable[str]:
        """See `MaintenanceFormat.files_of`. Deletion vectors that it replaces are among them."""
        proposal = proposal_in(envelope)
        if proposal is None:
            return ()
        replaced = (file_of(file.deletion_vector) for file in proposal.removes)
        return [*proposal.files, *(path for path in replaced if path is not None)]

    def rewritten_ids(self, survey: TableSurvey, rewritten: Collection[int | str]) -> set[int]:
        """See `MaintenanceFormat.rewritten_ids`."""
        own = cast("DeltaSurvey", survey)
        return {own.numbers.of(path) for path in rewritten if path in own.snapshot.files}  # type: ignore[arg-type]

    def clean_up_takes(self, storage: Storage, files: Collection[str], now: float) -> bool:
        """Returns False: a clean-up removes only files that versions have named."""
        del storage, files, now
        return False

    def unnamed(
        self, survey: TableSurvey, waiting: AbstractSet[str], refused: AbstractSet[str], now: float
    ) -> UnnamedPaths:
        """See `MaintenanceFormat.unnamed`."""
        del refused
        return unnamed_files(survey, waiting, now)


def _own(results: Sequence[RewriteResult]) -> Sequence[RewrittenFiles]:
    return cast("Sequence[RewrittenFiles]", results)
