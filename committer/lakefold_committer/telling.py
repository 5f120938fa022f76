"""The log lines about what was answered: each refusal with its reason, as far as a person can read them.

What became of each entry stands in the outcomes topic. A line is for those that somebody has to look at, and
a report of thousands must not become thousands of lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lakefold_table.entry import Invalid, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.entry import Outcome

LOG = structlog.get_logger("lakefold.committer")
MOST_LINES: Final = 10
"""How many refusals of one report get a line of their own."""


def tell_refusals(outcomes: Sequence[Outcome]) -> None:
    """One line for each of these outcomes that is a refusal, and one for those beyond the first ten."""
    refused = [one for one in outcomes if isinstance(one.result, Rejected | Invalid)]
    for one in refused[:MOST_LINES]:
        LOG.info(
            "refused",
            table=one.table,
            branch=one.branch or None,
            position=str(one.position),
            uuid=one.uuid,
            app_id=one.app_id or None,
            batch_id=one.batch_id,
            **_reason(one.result),
        )
    if rest := refused[MOST_LINES:]:
        LOG.info("refused more", entries=len(rest), first=str(rest[0].position), last=str(rest[-1].position))


def _reason(result: object) -> dict[str, object]:
    if isinstance(result, Rejected):
        found = result.conflict
        return {
            "outcome": "rejected",
            "retryable": found.retryable,
            "reason": found.message,
            "other_version": found.other_version or None,
        }
    return {"outcome": "invalid", "reason": result.message if isinstance(result, Invalid) else ""}
