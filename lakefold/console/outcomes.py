"""Prints outcomes: protobuf's JSON for programs, a line of text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold.console.output import print_json, print_line
from lakefold_table.entry import (
    Committed,
    Duplicate,
    Invalid,
    Outcome,
    Rejected,
    Tagged,
    rolled_back_text,
    tagged_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click

REFUSED: Final = 3
"""The exit code if a proposal was refused."""
UNKNOWN_FIRST: Final = "a batch whose version is no longer known, or that another client recorded"


def print_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """Prints an outcome on a line."""
    if as_json:
        from lakefold_log.codec.envelope import json_form, outcome_message

        print_json(json_form(outcome_message(outcome)))
        return
    key = f"{outcome.app_id}:{outcome.batch_id}" if outcome.batch_id is not None else outcome.uuid or "-"
    print_line(f"{outcome.position}  {key}  {result_text(outcome)}")


def exit_if_refused(context: click.Context, outcome: Outcome) -> None:
    """Ends the verb with the exit code 3 if the proposal was refused."""
    if isinstance(outcome.result, Rejected | Invalid):
        context.exit(REFUSED)


def result_text(outcome: Outcome) -> str:
    """Returns the result of a proposal as a sentence."""
    result = outcome.result
    if isinstance(result, Committed):
        rebased = ", rebased" if result.rebased else ""
        deleted = f", {result.rows_deleted:,} deleted" if result.rows_deleted else ""
        return f"committed in version {result.version}: {result.rows_added:,} rows added{deleted}{rebased}"
    if isinstance(result, Tagged):
        return tagged_text(result)
    if isinstance(result, Duplicate):
        first = f"version {result.version}" if result.version else UNKNOWN_FIRST
        text = f"duplicate of {first}"
        restored = f"; {rolled_back_text(result.rolled_back_by)}" if result.rolled_back_by else ""
        return text + restored + ("; its content differs from the first" if result.different_content else "")
    if isinstance(result, Rejected):
        kind = "rejected, may be built again" if result.conflict.retryable else "rejected"
        return f"{kind}: {result.conflict.message}"
    return invalid_text(result)


def invalid_text(result: Invalid) -> str:
    """Returns what is wrong with an Invalid proposal and what to do."""
    return f"invalid: {result.message}" + (f" ({result.hint})" if result.hint else "")


def outcome_line(kinds: Mapping[str, int], *, dry_run: bool = False) -> str:
    """Returns the number of outcomes of each kind as a line."""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())) or "nothing to fold"
    return f"{counts} (dry run: nothing was written)" if dry_run else counts
