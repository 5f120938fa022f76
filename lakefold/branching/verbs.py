"""The verbs `tag`, `branch` and `restore`: each is about one version of a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from lakefold.branching.chosen_version import ChosenVersion, VersionChoice, version_options
from lakefold.branching.ref_proposals import (
    branching,
    check_branch,
    check_free,
    deleting,
    id_of_branch,
    main_branch,
    restoring,
    send_restore,
    tagging,
    untagging,
)
from lakefold.branching.revert_verb import print_report
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import exit_if_refused, print_outcome, result_text
from lakefold.console.output import counted, print_json, print_line, print_table
from lakefold.writing.verb_options import message_option, wait_option
from lakefold_table.entry import Committed, Outcome

if TYPE_CHECKING:
    from lakefold.branching.undone_versions import UndoneVersions
    from lakefold.console.settings import Settings


@verb(
    "lakefold tag /data/flights release-3",
    "lakefold tag /data/flights release-3 --version 12",
    "lakefold tag /data/flights release-3 --version 14 --move",
    "lakefold tag /data/flights release-3 --delete",
    "lakefold show /data/flights --tag release-3",
)
@click.argument("table")
@click.argument("name")
@version_options("Tag the version that")
@click.option("--move", is_flag=True, help="Let the tag name this version if it exists already.")
@click.option("--delete", is_flag=True, help="Remove the tag; the version stays until a clean-up.")
@wait_option(or_log=False)
@message_option
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def tag(  # noqa: PLR0913 - its options
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    name: str,
    *,
    choice: VersionChoice,
    move: bool,
    delete: bool,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    """Give a version of TABLE the name NAME: the newest version, or the one that is chosen.

    Clean-ups keep a version that a tag names. A tag is a file beside the versions, which every Lance client
    reads. It goes through the log like any proposal, so tags are set and removed in the order of the log; its
    outcome is printed, and the exit code is 3 if it was refused, for instance because the tag exists. The
    version is chosen before it is sent: what was sent before but isn't folded yet is not in the newest one.
    If another Lance client changes the tag as well, the later change counts.
    """
    if delete and (move or not choice.is_newest or choice.branch is not None):
        raise click.UsageError("--delete removes the tag, whichever version it names; leave the others out")
    from lakefold.proposals.logged_proposal import send_and_wait

    check_free(name)
    if delete:
        envelope = untagging(table, name, settings)
    else:
        envelope = tagging(choice.find_with_refs(table, settings.storage_options), name, move=move)
    outcome = send_and_wait(settings, envelope, wait, message)
    print_outcome(outcome, as_json=as_json)
    exit_if_refused(context, outcome)


@verb(
    "lakefold branch /data/flights audit",
    "lakefold branch /data/flights audit --version 12",
    "lakefold branch s3://lake/flights next --branch audit",
    "lakefold branch /data/flights june --as-of 2026-06-01T00:00:00Z --json",
    "lakefold branch /data/flights audit --promote --dry-run",
    "lakefold branch /data/flights audit --promote --commit-message 'checked on Tuesday'",
    "lakefold branch /data/flights audit --delete",
)
@click.argument("table")
@click.argument("name")
@version_options("Begin at the version that")
@click.option("--delete", is_flag=True, help="Delete the branch, with its versions and files.")
@click.option("--promote", is_flag=True, help="Put what was written to the branch on the main branch.")
@click.option("--dry-run", is_flag=True, help="With --promote: send nothing; print what would be done.")
@wait_option(or_log=False)
@message_option
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def branch(  # noqa: PLR0913 - its options
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    name: str,
    *,
    choice: VersionChoice,
    delete: bool,
    promote: bool,
    dry_run: bool,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    """Begin the branch NAME of TABLE at its newest version, or at the version that is chosen.

    The branch has the rows of that version and shares its files. From then on it is written to by the name of
    its folder, TABLE/tree/NAME, and read by that or by --branch (branch= in Python). It goes through the log,
    its outcome is printed, and the exit code is 3 if it was refused, for instance because the branch exists.
    The branch knows the batches of its rows: a job that goes on there with its checkpoint adds none twice.

    With --delete the branch is deleted. What was sent to it before is folded, what is sent later is refused.
    The deletion is refused while a tag, a consumer or a branch that was made from it needs it. Once it is
    committed, the files of the branch are removed; this can't be undone. If the command is interrupted, run
    it again to continue.

    With --promote what was written to the branch since it began at the main branch, or was promoted last, is
    put on the main branch by one proposal. Its batches count there from then on. If rows were changed on both
    meanwhile, they are listed, nothing is sent, and the exit code is 3.
    """
    from lakefold.proposals.logged_proposal import send_and_wait
    from lakefold_table.branch_names import check_branch_name

    check_branch_name(name)
    if (delete and promote) or (dry_run and not promote):
        raise click.UsageError("give --delete or --promote; --dry-run goes with --promote")
    if promote:
        if not choice.is_newest or choice.branch is not None:
            raise click.UsageError("--promote is about all versions of the branch; leave the others out")
        _promote(settings, table, name, dry_run=dry_run, wait=wait, message=message, as_json=as_json)
        return
    if delete:
        if not choice.is_newest or choice.branch is not None:
            raise click.UsageError("--delete deletes the branch with all its versions; leave the others out")
        _delete_branch(context, settings, table, name, wait=wait, message=message, as_json=as_json)
        return
    chosen = choice.find_with_refs(table, settings.storage_options)
    outcome = send_and_wait(settings, branching(chosen, name), wait, message)
    print_outcome(outcome, as_json=as_json)
    exit_if_refused(context, outcome)


def _promote(
    settings: Settings, table: str, name: str, *, dry_run: bool, wait: float, message: str, as_json: bool
) -> None:
    from lakefold.branching.promote import promoted
    from lakefold_ingest.revert.conflicts import SHOWN

    report = promoted(settings, table, name, dry_run=dry_run, wait_s=wait, message=message)
    if as_json:
        print_json(report.document())
        return
    print_table(report.table, "lance")
    for text in [
        *(f"changed on both: {conflict}" for conflict in report.conflicts[:SHOWN]),
        *(f"folded into both: {batch}" for batch in report.shared_batches[:SHOWN]),
    ]:
        print_line(f"  {text}")
    refused = "would be refused" if report.conflicts or report.shared_batches else "would be one proposal"
    done = {"empty": "nothing new", "planned": refused, "committed": f"promoted in version {report.version}"}
    rows = f"{counted(report.rows_added, 'row')} added, {report.rows_removed:,} removed"
    print_line(f"{name}@{report.branch_version} {done[report.kind]}: {rows}, batches: {report.batches:,}")


def _delete_branch(
    context: click.Context,
    settings: Settings,
    table: str,
    name: str,
    *,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    from lakefold.branching.branch_removal import is_deleted, remove_files
    from lakefold.proposals.logged_proposal import send_and_wait
    from lakefold_log.codec.envelope import json_form, outcome_message
    from lakefold_table.versions.table_address import TableAddress

    main, outcome = main_branch(table, settings), None
    uri = main.uri
    address = TableAddress(uri, settings.storage_options)
    if not is_deleted(address, name):
        outcome = send_and_wait(settings, deleting(uri, name, id_of_branch(main, name)), wait, message)
    is_committed = outcome is None or isinstance(outcome.result, Committed)
    if is_committed:
        remove_files(address, name, lambda removed: print_line(f"{removed:,} removed", err=True))
    if as_json:
        form = None if outcome is None else json_form(outcome_message(outcome))
        print_json({"table": uri, "branch": name, "outcome": form, "files_removed": is_committed})
    elif outcome is not None:
        print_outcome(outcome, as_json=False)
    if is_committed and not as_json:
        print_line(f"{uri}: branch {name} deleted, with its files")
    if outcome is not None:
        exit_if_refused(context, outcome)


SEND_AGAIN: Final = (
    'to put rows back, send them with on_rolled_back="again", or with a new app id: '
    "the old ids are remembered; proposals without an app id are built and sent again as new ones"
)


@verb(
    "lakefold restore /data/flights --version 12 --dry-run",
    "lakefold restore /data/flights --version 12",
    "lakefold restore /data/flights --tag release-3",
    "lakefold restore /data/flights --as-of 2026-06-01T00:00:00Z --json",
    "lakefold restore /data/flights --version 12 --except loader:7",
)
@click.argument("table")
@click.argument("batches", nargs=-1, metavar="[APP_ID:BATCH_ID…]")
@version_options("Restore the version that")
@click.option(
    "--except", "excepted", multiple=True, metavar="APP_ID:BATCH_ID", help="Undo only these later batches."
)
@click.option("--reapply", is_flag=True, help="Have later batches again; --except implies it.")
@click.option("--dry-run", is_flag=True, help="Send nothing; print which batches this would undo.")
@wait_option(or_log=False)
@message_option
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def restore(  # noqa: PLR0913 - its options
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    *,
    batches: tuple[str, ...],
    choice: VersionChoice,
    excepted: tuple[str, ...],
    reapply: bool,
    dry_run: bool,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    """Publish a new version of TABLE with the rows and the schema of the version that is chosen.

    The versions after that one stay readable, but their rows are no longer in the table. The batches that
    made them are listed. Their ids are remembered: sent again with these, they are Duplicates. So send them
    again, corrected, with on_rolled_back="again" or with a new app id. Batches that the committer folds
    before the restore are undone too, those that it folds afterwards are not. The restore goes through the
    log, as proposals do; the exit code is 3 if it was refused. The restore of a Delta table is built again if
    others commit at the same time, and is refused if they do so 10 times.

    With --except only the named batches are undone: everything else that came after the version stays, as
    if the version was restored and all later batches were put on again but for them. This is `lakefold
    revert` of these batches, with its conflicts, and refused if one of them came before the version.
    """
    if choice.is_newest:
        raise click.UsageError("name the version: --version, --tag, --as-of or --at-position")
    if (batches or reapply) and not excepted:
        raise click.UsageError("name which later batches stay out: --except APP_ID:BATCH_ID")
    from lakefold.branching.revert import all_but, planned_revert, send_revert
    from lakefold.branching.undone_versions import newest_before, undone_versions

    chosen = choice.find(table, settings.storage_options)
    check_branch(chosen, table)
    if excepted:
        request = all_but((*excepted, *batches), chosen.version)
        if dry_run:
            report = planned_revert(settings, chosen.source, request)
        else:
            report = send_revert(
                settings, chosen.source, request, wait_s=wait, properties={}, message=message
            )
        print_report(report, refused=bool(report.conflicts), as_json=as_json)
        return
    if dry_run:
        newest = newest_before(chosen, None)
        restoring(chosen, newest)
        _print_restored(None, chosen, undone_versions(chosen, newest), as_json=as_json)
        return
    outcome = send_restore(settings, chosen, wait, message)
    made = outcome.result.version if isinstance(outcome.result, Committed) else None
    undone = None if made is None else undone_versions(chosen, newest_before(chosen, made))
    _print_restored(outcome, chosen, undone, as_json=as_json)
    exit_if_refused(context, outcome)


def _restored_text(outcome: Outcome, chosen: ChosenVersion) -> str:
    result = outcome.result
    if not isinstance(result, Committed):
        return result_text(outcome)
    more = result.rows_added - result.rows_deleted
    rows = f"{counted(abs(more), 'row')} {'more' if more > 0 else 'fewer'}" if more else "as many rows"
    return f"restored version {chosen.version:,} as {result.version:,}; {rows}"


def _print_restored(
    outcome: Outcome | None, chosen: ChosenVersion, undone: UndoneVersions | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(_restored_document(outcome, chosen, undone))
        return
    print_table(chosen.source.uri, chosen.source.format.name)
    if outcome is not None:
        print_line(f"{outcome.position}  {outcome.uuid or '-'}  {_restored_text(outcome, chosen)}")
    if undone is None:
        return
    undoes = "would undo" if outcome is None else "undid"
    print_line(f"{undoes} {counted(undone.versions, 'version')} after version {chosen.version:,}")
    for app in undone.apps:
        batches = (
            f"batch {app.first:,}" if app.first == app.last else f"batches {app.first:,} to {app.last:,}"
        )
        print_line(f"  {app.app_id}: {batches} ({app.count:,})")
    if undone.entries_without_app_id:
        print_line(f"  {counted(undone.entries_without_app_id, 'proposal')} without an app id")
    if undone.foreign_versions:
        numbers = ", ".join(f"{number:,}" for number in undone.foreign_versions)
        print_line(f"  versions of other clients: {numbers}")
    if undone.apps or undone.entries_without_app_id:
        print_line(SEND_AGAIN)


def _restored_document(
    outcome: Outcome | None, chosen: ChosenVersion, undone: UndoneVersions | None
) -> dict[str, Any]:
    from lakefold_log.codec.envelope import json_form, outcome_message

    return {
        "format": chosen.source.format.name,
        "outcome": None if outcome is None else json_form(outcome_message(outcome)),
        "restored_version": chosen.version,
        "taken_back": None if undone is None else asdict(undone),
        "hint": SEND_AGAIN,
    }
