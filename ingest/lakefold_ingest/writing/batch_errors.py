"""The errors for batches whose rows are not in the table: refused, rolled back, or folded before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_ingest.proposals.key import APP_ID
from lakefold_ingest.writing.report import in_version, refusal_text
from lakefold_ingest.writing.reused_key import ON_REUSED_KEY, other_first_batch, reused_key
from lakefold_table.entry import (
    Committed,
    Duplicate,
    Invalid,
    Outcome,
    RefusedError,
    Rejected,
    Tagged,
    rolled_back_text,
)
from lakefold_table.errors import InvalidError, OptionName, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.writing.sending_query import Sender
    from lakefold_ingest.writing.settings import WriteSettings

SHARED_APP_ID = (
    "another query uses this ",
    APP_ID,
    ": give each query one of its own; with another one this query begins with the batch that it runs next, ",
    "and the rows of the batches before have to be written again",
)
_ROLLED_BACK = (
    "a key is folded once: give the sink another ",
    APP_ID,
    ", under which its batches are new; or ",
    OptionName("on_rolled_back"),
    '="skip", to leave the rows out, or ="again", to add them if they were corrected',
)


def earlier_refused(refusals: Sequence[Outcome], more: str) -> RefusedError:
    """Returns the error for batches that were sent earlier and added nothing; `more` ends its message."""
    first, others = refusals[0], len(refusals) - 1
    message = refusal_text(first) + (f" (and {others} more, see the log)" if others else "")
    hint: Text = (
        "a refused batch's rows are not in the table: `lakefold redrive` shows it and sends it again; then ",
        "run the query again, which continues with this batch; ",
        OptionName("on_refused"),
        '="warn" only logs refusals',
    )
    if isinstance(first.result, Duplicate):
        hint = _ROLLED_BACK if is_rolled_back(first) else SHARED_APP_ID
        if first.result.different_content and not is_rolled_back(first):
            hint = (*SHARED_APP_ID, "; ", ON_REUSED_KEY, '="skip" leaves out the rows of such batches')
    return RefusedError(f"{message}{more}", outcome=first, where=first.table, hint=hint)


def is_rolled_back(outcome: Outcome) -> bool:
    """Returns whether it is a Duplicate of a batch that a Restore left out."""
    return isinstance(outcome.result, Duplicate) and bool(outcome.result.rolled_back_by)


def has_other_rows(outcome: Outcome) -> bool:
    """Returns whether it is a Duplicate with other rows than the batch that has its key."""
    return isinstance(outcome.result, Duplicate) and outcome.result.different_content


def rolled_back(result: Duplicate, key: Key, table: str) -> InvalidError:
    """Returns the error for a batch that was folded, and whose rows were undone since."""
    return InvalidError(
        f"{key} was folded before {in_version(result)}, and its rows were "
        f"{rolled_back_text(result.rolled_back_by)}; nothing was added",
        where=table,
        hint=_ROLLED_BACK,
    )


def older(key: Key, later: int, table: str) -> InvalidError:
    """Returns the error for a batch that was folded before, as were later ones up to `later`."""
    return InvalidError(
        (
            f"{key} was folded before, and so were later ones up to {later}: the query's ",
            "checkpoint is older than the table, or another query uses this ",
            APP_ID,
            "; nothing was added",
        ),
        where=table,
        hint=(
            "restore the newest checkpoint, or give the sink another ",
            APP_ID,
            " and start the source where the table ends; ",
            OptionName("on_older_batch"),
            '="skip" leaves out the rows of all such batches',
        ),
    )


def accepted(outcome: Outcome) -> Committed | Duplicate | Rejected:
    """Returns the result of the outcome; a Rejected one only if it is retryable.

    Raises `RefusedError` if the proposal was refused for good.
    """
    result = outcome.result
    if isinstance(result, Invalid):
        raise invalid(outcome, result)
    if isinstance(result, Rejected) and not result.conflict.retryable:
        hint = "`lakefold explain` shows what it conflicts with; build the change again on the table as it is"
        message = f"the batch was refused: {result.conflict.message}"
        raise RefusedError(message, outcome=outcome, where=outcome.table, hint=hint)
    assert not isinstance(result, Tagged)  # noqa: S101 - a batch is no tag
    return result


def invalid(outcome: Outcome, result: Invalid) -> RefusedError:
    """Returns the error for a proposal that the committer can't fold."""
    message = f"the committer can't fold it: {result.message}"
    return RefusedError(message, outcome=outcome, where=outcome.table, hint=result.hint)


def check_duplicate(result: Duplicate, key: Key, settings: WriteSettings, sender: Sender) -> None:
    """Raises `InvalidError` if the batch was undone, `ReusedKeyError` if another batch has its key.

    That is, unless the settings let it pass. Whoever knows that a batch is sent for the first time checks
    other rows himself (`query_runs`).
    """
    if result.rolled_back_by and settings.on_rolled_back != "skip":
        raise rolled_back(result, key, settings.table)
    passes = sender.in_order and settings.on_older_batch == "skip"
    refuses = settings.on_reused_key == "raise" and not passes and sender.may_repeat
    if result.different_content and refuses:
        begins_anew = sender.in_order and key.batch_id == 0
        raise (other_first_batch if begins_anew else reused_key)(result, key, settings.table)
