"""`lakefold forget`: has a table forget which batches of an application it has, through the log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import exit_if_refused, print_outcome
from lakefold.console.output import print_json, print_line, ranges_text
from lakefold.writing.verb_options import message_option, wait_option

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_table.marks.intervals import Interval


@verb(
    "lakefold forget /data/flights nightly-2026-05-01 --dry-run",
    "lakefold forget /data/flights nightly-2026-05-01",
    "lakefold forget s3://lake/flights loader --branch audit --yes --json",
)
@click.argument("table")
@click.argument("app_id")
@click.option("--branch", metavar="NAME", help="The branch that forgets.  [default: main, or that at TABLE]")
@click.option("--dry-run", is_flag=True, help="Send nothing; print which batches would be forgotten.")
@click.option("--yes", is_flag=True, help="Forget the app without asking.")
@wait_option(or_log=False)
@message_option
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - its options
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    app_id: str,
    *,
    branch: str | None,
    dry_run: bool,
    yes: bool,
    wait: float,
    message: str,
    as_json: bool,
) -> None:
    """Have TABLE forget which batches of the application APP_ID it has. Their rows stay.

    After that a batch of APP_ID that is sent again is added again, as if it had never been sent: its rows are
    in the table twice. So forget only applications that send nothing any more, or whose batches are to be
    added again. Nothing else is forgotten: no other app, and none in other tables or branches.

    No version needs this: a table takes any number of apps, and keeps less of those that are silent for
    longest. `lakefold status` shows how many it knows, and `lakefold show` which batches. It goes through the
    log like any proposal, after what was sent before. Its outcome is printed, and the exit code is 3 if it
    was refused, for instance because the table knows no batch of APP_ID.
    """
    from lakefold.proposals.logged_proposal import send_and_wait
    from lakefold_reader.formats import on_branch

    proposed = partial(_proposed, app_id)
    uri, envelope, batches = on_branch(table, branch, settings.storage_options, proposed)
    known = ranges_text(batches)
    text = f"{uri}: batches {known} of {app_id}" if known else f"{uri}: no batch of {app_id} is known"
    if dry_run:
        if as_json:
            print_json({"table": uri, "app_id": app_id, "batches": batches, "dry_run": True})
        else:
            print_line(f"{text} (dry run: nothing was sent)")
        return
    if not yes:
        print_line(f"{text}; one of them that is sent again afterwards is added again", err=True)
        click.confirm("Forget the app?", abort=True, err=True)
    outcome = send_and_wait(settings, envelope, wait, message)
    print_outcome(outcome, as_json=as_json)
    exit_if_refused(context, outcome)


def _proposed(app_id: str, source: Source) -> tuple[str, Envelope, tuple[Interval, ...]]:
    """Returns a branch's URI, the proposal that it forgets an app, and the app's batches in its marks."""
    from lakefold_protos.lakefold.log_pb2 import Envelope, ForgetApp
    from lakefold_reader.snapshot.snapshot import table_of
    from lakefold_reader.versions.branches import main_and_branch

    main, branch = main_and_branch(source)
    marks = table_of(source).marks
    message = ForgetApp(app_id=app_id, uuid=str(uuid4()))
    table_id = "" if marks is None else marks.full_id
    envelope = Envelope(table=main.uri, branch=branch, table_id=table_id, forget_app=message)
    mark = None if marks is None else marks.apps.get(app_id)
    return source.uri, envelope, () if mark is None else mark.folded
