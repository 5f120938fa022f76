"""The log lines about what was answered: each refusal with its reason, each repetition that is doubtful.

What became of each entry stands in the outcomes topic. A line is for those that somebody has to look at, and
a report of thousands must not become thousands of lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lakefold_table.entry import Duplicate, Invalid, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_table.entry import Outcome

LOG = structlog.get_logger("lakefold.committer")
MOST_LINES: Final = 10
"""How many outcomes of one report, of each sort, get a line of their own."""


def tell_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Logs the refusals among these outcomes, and the Duplicates whose rows are gone or were others.

    Each of the first ten of a sort gets a line of its own, those beyond them share one.
    """
    _tell(LOG.info, "refused", [one for one in outcomes if isinstance(one.result, Rejected | Invalid)])
    again = [one for one in outcomes if isinstance(one.result, Duplicate)]
    _tell(LOG.warning, "repeated key, rolled back", [one for one in again if _is_rolled_back(one.result)])
    _tell(LOG.warning, "repeated key, different content", [one for one in again if _differs(one.result)])


def _tell(log: Callable[..., object], event: str, outcomes: Sequence[Outcome]) -> None:
    for one in outcomes[:MOST_LINES]:
        log(
            event,
            table=one.table,
            branch=one.branch or None,
            position=str(one.position),
            uuid=one.uuid,
            app_id=one.app_id or None,
            batch_id=one.batch_id,
            **_reason(one.result),
        )
    if rest := outcomes[MOST_LINES:]:
        first, last = str(rest[0].position), str(rest[-1].position)
        log(f"{event} more", entries=len(rest), first=first, last=last)


def _is_rolled_back(result: object) -> bool:
    return isinstance(result, Duplicate) and bool(result.rolled_back_by)


def _differs(result: object) -> bool:
    return isinstance(result, Duplicate) and result.different_content


def _reason(result: object) -> dict[str, object]:
    if isinstance(result, Duplicate):
        return {
            "version": result.version or None,
            "rolled_back_by": result.rolled_back_by or None,
            "different_content": result.different_content,
        }
    if isinstance(result, Rejected):
        found = result.conflict
        return {
            "outcome": "rejected",
            "retryable": found.retryable,
            "reason": found.message,
            "other_version": found.other_version or None,
        }
    return {"outcome": "invalid", "reason": result.message if isinstance(result, Invalid) else ""}
