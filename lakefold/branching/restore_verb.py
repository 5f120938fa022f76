"""`lakefold restore`: makes an earlier version of a table its newest again, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import click

from lakefold.branching.chosen_version import ChosenVersion, VersionChoice, version_options
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import exit_if_refused, result_text
from lakefold.console.output import print_json, print_line
from lakefold.writing.verb_options import wait_option
from lakefold_table.entry import Committed, Outcome

if TYPE_CHECKING:
    from lakefold.branching.taken_back import TakenBack
    from lakefold.console.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope

SEND_AGAIN: Final = (
    "these batches stay folded under their keys, so send them again under another app id; "
    "proposals without an app id are built and sent again as new ones"
)


@verb(
    "lakefold restore /data/flights --version 12 --dry-run",
    "lakefold restore /data/flights --version 12",
    "lakefold restore /data/flights --tag release-3",
    "lakefold restore /data/flights --as-of 2026-06-01T00:00:00Z --json",
)
@click.argument("table")
@version_options("Restore the version that")
@click.option("--dry-run", is_flag=True, help="Send nothing; print which batches would be taken back.")
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    *,
    choice: VersionChoice,
    dry_run: bool,
    wait: float,
    as_json: bool,
) -> None:
    """Publish a new version of TABLE with the rows and the schema of the version that is chosen.

    The versions after that one stay readable, but their rows are no longer in the table. The batches that
    made them are listed. They stay folded under their keys: sent again under these, they are Duplicates. So
    send them again, corrected, under another app id. Batches that the committer folds before the restore are
    taken back too, those that it folds afterwards are not. The restore goes through the log as any proposal;
    the exit code is 3 if it was refused.
    """
    if choice.is_newest:
        raise click.UsageError("name the version: --version, --tag, --as-of or --at-position")
    from lakefold.branching.taken_back import newest_before, taken_back
    from lakefold.proposals.sending import send_and_wait

    chosen = choice.find(table, settings.storage_options)
    if dry_run:
        _print(None, chosen, taken_back(chosen, newest_before(chosen, None)), as_json=as_json)
        return
    outcome = send_and_wait(settings, restoring(chosen, newest_before(chosen, None)), wait)
    made = outcome.result.version if isinstance(outcome.result, Committed) else None
    lost = None if made is None else taken_back(chosen, newest_before(chosen, made))
    _print(outcome, chosen, lost, as_json=as_json)
    exit_if_refused(context, outcome)


def restoring(chosen: ChosenVersion, newest: int) -> Envelope:
    """Returns the proposal that restores a version of a branch whose newest version is `newest`."""
    from lakefold_protos.lakefold.log_pb2 import Envelope

    envelope = Envelope(table=chosen.main.uri, branch=chosen.branch)
    envelope.lance.uuid, envelope.lance.read_version = str(uuid4()), newest
    envelope.lance.restore.version = chosen.version
    return envelope


def _print(outcome: Outcome | None, chosen: ChosenVersion, lost: TakenBack | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(outcome, chosen, lost))
        return
    if outcome is not None:
        print_line(f"{outcome.position}  {outcome.uuid or '-'}  {result_text(outcome)}")
    if lost is None:
        return
    verb = "would be taken back" if outcome is None else "taken back"
    versions = f"{lost.versions:,} version{'s' * (lost.versions != 1)}"
    print_line(f"{verb}: {versions} after version {chosen.version:,}")
    for app in lost.apps:
        batches = (
            f"batch {app.first:,}" if app.first == app.last else f"batches {app.first:,} to {app.last:,}"
        )
        print_line(f"  {app.app_id}: {batches} ({app.count:,})")
    if lost.entries_without_app_id:
        count = lost.entries_without_app_id
        print_line(f"  {count:,} proposal{'s' * (count != 1)} without an app id")
    if lost.foreign_versions:
        numbers = ", ".join(f"{number:,}" for number in lost.foreign_versions)
        print_line(f"  versions of other Lance clients: {numbers}")
    if lost.apps or lost.entries_without_app_id:
        print_line(SEND_AGAIN)


def _document(outcome: Outcome | None, chosen: ChosenVersion, lost: TakenBack | None) -> dict[str, Any]:
    from lakefold.branching.taken_back import plain
    from lakefold_log.codec.envelope import json_form, outcome_message

    return {
        "outcome": None if outcome is None else json_form(outcome_message(outcome)),
        "restored_version": chosen.version,
        "taken_back": None if lost is None else plain(lost),
        "hint": SEND_AGAIN,
    }
