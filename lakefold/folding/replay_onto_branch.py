"""`lakefold replay --onto-branch`: a branch that shows what a table would be without some batches.

The log isn't folded again entry by entry, as the result is known from what the versions changed: the branch
begins at a version, the batches are undone on it, and rows of files are appended to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefold.branching.chosen_version import VersionChoice
from lakefold.branching.ref_proposals import branching
from lakefold.branching.revert import plan_on, request_of, send_revert
from lakefold.branching.revert_verb import print_report
from lakefold.console.options import Point
from lakefold.console.outcomes import exit_if_refused, print_outcome
from lakefold.console.output import print_json
from lakefold.proposals.logged_proposal import send_and_wait
from lakefold.reading.diff import diff_document, print_diff
from lakefold.writing.dry_run import written
from lakefold.writing.files import rows_for
from lakefold.writing.options import settings_for
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.rows.row_source import RowSource
from lakefold_reader.diff.diff import diff
from lakefold_reader.versions.branches import branched
from lakefold_table.branch_names import check_branch_name
from lakefold_table.entry import Committed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import click

    from lakefold.branching.revert import RevertReport
    from lakefold.console.settings import Settings
    from lakefold_ingest.writing.settings import WriteSettings


def replay_onto_branch(  # noqa: PLR0913 - the options of its verb
    context: click.Context,
    settings: Settings,
    table: str,
    name: str,
    undone: Mapping[str, Any],
    added: tuple[Path, ...],
    until: str | None,
    *,
    wait: float,
    as_json: bool,
) -> None:
    """Begins the branch at the version that `until` names, undoes batches on it, prints what differs.

    `undone`: the batches, and what becomes of rows that changed later, by the names of `lakefold.revert`.
    `added`: files whose rows are appended then.

    Nothing is sent if the batches can't be undone: raises as `lakefold.revert`. Neither if the table would
    refuse the rows of the files: raises as `lakefold.append`.
    """
    check_branch_name(name)
    if added:
        _append(settings_for(table, settings, wait_s=wait, dry_run=True), added)
    chosen = _choice(until).find_with_refs(table, settings.storage_options)
    request = None
    if undone["batches"]:
        request = request_of(version=None, positions=None, **undone)
        plan_on(settings, chosen.source, chosen.version, request)
    outcome = send_and_wait(settings, branching(chosen, name), wait)
    if not isinstance(outcome.result, Committed):
        print_outcome(outcome, as_json=as_json)
        exit_if_refused(context, outcome)
        return
    report: RevertReport | None = None
    if request is not None:
        source = branched(chosen.main, name)
        report = send_revert(settings, source, request, wait_s=wait, properties={})
    if added:
        _append(settings_for(branched(chosen.main, name).uri, settings, wait_s=wait), added)
    begins = f"{chosen.branch or 'main'}@{chosen.version}"
    difference = diff(chosen.main.uri, begins, f"branch:{name}", storage_options=settings.storage_options)
    if as_json:
        reverted = None if report is None else report.document()
        print_json({"branch": name, "revert": reverted, "diff": diff_document(difference)})
        return
    print_outcome(outcome, as_json=False)
    if report is not None:
        print_report(report, refused=False, as_json=False)
    print_diff(difference)


def _append(settings: WriteSettings, files: tuple[Path, ...]) -> None:
    written(settings, new_key(), append_source(RowSource(rows_for(settings, files), checks=False)), None)


def _choice(until: str | None) -> VersionChoice:
    """Returns the version that a text names: by its number, a position in the log, or a time."""
    number = as_of = at_position = None
    if until is not None:
        if until.isdecimal():
            number = int(until)
        elif "@" in until or until.startswith("{"):
            at_position = until
        else:
            as_of = until
    return VersionChoice(number, None, None, Point(as_of, at_position))
