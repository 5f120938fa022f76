"""What became of one batch, and in words for the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected, rolled_back_text

if TYPE_CHECKING:
    from lakefold_table.entry import Outcome


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What became of a batch.

    `result`: the outcome, or None if it is not known (there was nothing to change, or the writer waits for
    the log only). `attempts`: how often the envelope was built; 0 if the table's marks had the batch already.
    """

    result: Committed | Duplicate | None
    attempts: int

    @property
    def is_doubtful(self) -> bool:
        """Whether it is a Duplicate whose rows may not be in the table."""
        result = self.result
        return isinstance(result, Duplicate) and bool(result.rolled_back_by or result.different_content)

    def __str__(self) -> str:
        built = f" (built {self.attempts} times)" if self.attempts > 1 else ""
        match self.result:
            case Committed() as result:
                rows = f"{result.rows_added} rows"
                rows += f", {result.rows_deleted} deleted" if result.rows_deleted else ""
                return f"committed in version {result.version}, {rows}{built}"
            case Duplicate() as result:
                doubts = f"; {rolled_back_text(result.rolled_back_by)}" if result.rolled_back_by else ""
                doubts += (
                    "; its content is another than that of the first" if result.different_content else ""
                )
                return f"duplicate, folded before {in_version(result)}: nothing was added{doubts}"
            case None:
                return f"no outcome is known: it has no rows, or the writer waits for the log only{built}"


def refusal_text(outcome: Outcome) -> str:
    """Returns the log message for a refused batch whose outcome the writer did not wait for."""
    result = outcome.result
    reason = result.conflict.message if isinstance(result, Rejected) else ""
    if isinstance(result, Invalid):
        reason = f"{result.message} ({result.hint})" if result.hint else result.message
    key = f"batch {outcome.batch_id} of {outcome.app_id} into {outcome.table}"
    return f"{key}: refused at {outcome.position}, nothing was added (uuid {outcome.uuid}): {reason}"


def in_version(result: Duplicate) -> str:
    """Returns in which version the key of a Duplicate was folded, as words."""
    return f"in version {result.version}" if result.version else "in a version no longer known"
