"""The log lines about answers: each refusal with its reason, each repetition that is doubtful.

Every outcome is in the outcomes topic. A log line is for outcomes that a person has to check, and a report of
thousands must not become thousands of log lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOG = structlog.get_logger("lakefold.committer")
MOST_LINES: Final = 10
"""How many outcomes of one report, of each kind, get a log line of their own."""


def log_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Logs the refusals among these outcomes, and the Duplicates whose rows were removed or differ.

    Each of the first ten of a kind gets a log line of its own, the others share a line.
    """
    others = [outcome for outcome in outcomes if not isinstance(outcome.result, Committed)]
    refused = [outcome for outcome in others if isinstance(outcome.result, Rejected | Invalid)]
    _log(LOG.info, "refused", refused)
    rolled_back = [outcome for outcome in others if _is_rolled_back(outcome.result)]
    _log(LOG.warning, "repeated key, rolled back", rolled_back)
    different = [outcome for outcome in others if _differs(outcome.result)]
    _log(LOG.warning, "repeated key, different content", different)


def _log(log: Callable[..., object], event: str, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes[:MOST_LINES]:
        log(
            event,
            table=outcome.table,
            branch=outcome.branch or None,
            position=str(outcome.position),
            uuid=outcome.uuid,
            app_id=outcome.app_id or None,
            batch_id=outcome.batch_id,
            **_reason(outcome.result),
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
        conflict = result.conflict
        return {
            "outcome": "rejected",
            "retryable": conflict.retryable,
            "reason": conflict.message,
            "other_version": conflict.other_version or None,
        }
    return {"outcome": "invalid", "reason": result.message if isinstance(result, Invalid) else ""}
