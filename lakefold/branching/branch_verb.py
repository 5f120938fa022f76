"""`lakefold branch`: begins a branch of a table at one of its versions, through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import click

from lakefold.branching.chosen_version import ChosenVersion, VersionChoice, version_options
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import exit_if_refused, print_outcome
from lakefold.writing.verb_options import wait_option

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope


@verb(
    "lakefold branch /data/flights audit",
    "lakefold branch /data/flights audit --version 12",
    "lakefold branch s3://lake/flights next --branch audit",
    "lakefold branch /data/flights june --as-of 2026-06-01T00:00:00Z --json",
)
@click.argument("table")
@click.argument("name")
@version_options("Begin at the version that")
@wait_option(or_log=False)
@settings_options(*KAFKA, *TOPICS, *STORE)
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    name: str,
    *,
    choice: VersionChoice,
    wait: float,
    as_json: bool,
) -> None:
    """Begin the branch NAME of TABLE at its newest version, or at the version that is chosen.

    The branch has the rows of that version and shares its files; from then on it is written to and read
    independently (--branch of the other verbs, branch= in Python). It goes through the log as any proposal,
    its outcome is printed, and the exit code is 3 if it was refused, for instance because the branch exists.
    """
    from lakefold.proposals.sending import send_and_wait
    from lakefold_table.branch_names import check_branch_name

    check_branch_name(name)
    chosen = choice.find(table, settings.storage_options)
    outcome = send_and_wait(settings, branching(chosen, name), wait)
    print_outcome(outcome, as_json=as_json)
    exit_if_refused(context, outcome)


def branching(chosen: ChosenVersion, name: str) -> Envelope:
    """Returns the proposal that begins a branch at a version: a shallow Clone below the table's root."""
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.uri import local_path

    uri = chosen.source.uri
    envelope = Envelope(table=chosen.main.uri, branch=name)
    envelope.lance.uuid, envelope.lance.read_version = str(uuid4()), chosen.version
    clone = envelope.lance.clone
    clone.is_shallow, clone.ref_version, clone.branch_name = True, chosen.version, name
    # As other Lance clients name a local table, in the manifest that is made of it.
    clone.ref_path = local_path(uri) if uri.startswith("file:") else uri
    if chosen.branch:
        clone.ref_name = chosen.branch
    return envelope
