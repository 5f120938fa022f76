"""`lakefold explain`: shows the outcome of a proposal, and the reason."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import result_text
from lakefold.console.output import operations_text, print_json, print_line
from lakefold.errors import SettingError
from lakefold_table.app_removal import FORGET_APP
from lakefold_table.branch_deletion import DELETE_BRANCH
from lakefold_table.branch_names import MAIN
from lakefold_table.entry import Conflict, Entry, Rejected, rolled_back_text
from lakefold_table.tag_proposal import TAG

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold.proposals.explanation import Brokers, Explanation

SHOWN = 10
"""At most this many ids or keys of the evidence are printed as text; `--json` prints all."""


@verb(
    "lakefold explain /data/flights loader:12",
    "lakefold explain /data/flights 1047",
    "lakefold explain /data/flights lakefold.transactions/3@1047",
    "lakefold explain /data/flights 0f3c2a77-5a0e-4f7e-9f42-6d1c0a3f2b11 --json | jq .state",
    "lakefold explain /data/flights loader:12 --branch audit",
)
@click.argument("table")
@click.argument("proposal", metavar="(UUID | OFFSET | TOPIC/PARTITION@OFFSET | APP_ID:BATCH_ID)")
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@click.option(
    "--branch", metavar="NAME", help="The proposal's branch.  [default: main, or the branch at TABLE]"
)
@click.option(
    "--versions",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="How many of the table's newest versions to search.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=30.0,
    show_default=True,
    help="Seconds that each search in a topic may take.",
)
@json_option
def command(
    settings: Settings,
    table: str,
    proposal: str,
    *,
    branch: str | None,
    versions: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Show the outcome of a proposal for TABLE, the reason, and what to do.

    The table's versions are searched first; that needs no broker. If brokers are set, or `lakefold up` runs
    one in this folder, the outcomes and the log are searched as well: they have the content of the proposal,
    and the number of proposals before it if it waits. The partition that the table is bound to is searched
    first, then those that it was bound to before, then the partition that its URI hashes to. An OFFSET is
    searched in the same order.

    If the log lost its end and another entry is now at the position of an answered entry, both are shown, and
    the state of an OFFSET is `replaced`. The exit code is 2 if nothing is known of the proposal, and 5 if a
    store or broker that may know it doesn't answer.
    """
    from lakefold.proposals.explain_proposal import explain
    from lakefold_reader.formats import on_branch
    from lakefold_reader.versions.proposals import sought_of

    sought = sought_of(proposal)
    brokers = brokers_of(settings, timeout)
    search = partial(explain, sought=sought, brokers=brokers, versions=versions)
    explanation = on_branch(table, branch, settings.storage_options, search)
    if as_json:
        print_json(explanation_document(explanation))
    else:
        _show(explanation)


def brokers_of(settings: Settings, timeout: float) -> Brokers | None:
    """Returns the brokers of the settings, or None if none are set or Kafka's client isn't installed."""
    from importlib.util import find_spec

    from lakefold.proposals.explanation import Brokers

    try:
        settings.brokers()
    except SettingError:
        return None
    if find_spec("confluent_kafka") is None and not settings.bootstrap_servers:
        return None
    return Brokers(settings.kafka_config(), settings.topics(), settings.group, timeout)


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Returns what is known of a proposal as plain values, as `--json` prints it."""
    from lakefold_reader.as_json import iso, plain_author, plain_position
    from lakefold_table.marks.outcome_messages import json_form, outcome_message

    held = None if explanation.finding is None else explanation.finding.version
    status, position = explanation.status, explanation.position
    return {
        "table": explanation.table,
        "format": explanation.format,
        "branch": explanation.branch,
        "state": explanation.state,
        "position": None if position is None else plain_position(position),
        "outcome": None if explanation.outcome is None else json_form(outcome_message(explanation.outcome)),
        "outcomes": [json_form(outcome_message(outcome)) for outcome in explanation.outcomes],
        "told_by": explanation.known_from,
        "committed_in": explanation.version,
        "rolled_back_by": explanation.rolled_back_by or None,
        "undone": _undone(explanation),
        "version": None
        if held is None
        else {
            "version": held.version,
            "timestamp": iso(held.timestamp),
            "operation": held.operation,
            "operations": dict(held.operations),
            "base_version": held.base_version,
            "entries": held.entries,
            "first_offset": held.first,
            "last_offset": held.last,
        },
        "author": None if explanation.author is None else plain_author(explanation.author),
        "other_client": None if explanation.other_client is None else plain_author(explanation.other_client),
        "proposal": _proposal(explanation),
        "log": None
        if status is None
        else {"answered_to": status.answered, "end": status.end, "lag": status.lag},
        "before_it": explanation.before,
        "another_entry": explanation.another or None,
        "not_proven": explanation.unproven or None,
        "advice": explanation.advice,
        "looked_at": explanation.looked_at,
        "not_looked_at": explanation.not_looked_at,
    }


def _proposal(explanation: Explanation) -> dict[str, Any] | None:
    entry = explanation.proposal
    if not isinstance(entry, Entry):
        return None
    proposal = entry.proposal
    claim = entry.envelope.claim if entry.is_claim else None
    return {
        "operation": None if proposal is None else proposal.operation or None,
        "read_version": None if proposal is None else proposal.read_version,
        "claim": None if claim is None else {"uri": claim.uri, "size": claim.size},
        "uuid": entry.uuid,
        "app_id": entry.app_id,
        "batch_id": entry.batch_id,
        "branch": entry.envelope.branch,
        "creates": entry.envelope.HasField("create"),
        "forgets": entry.envelope.forget_app.app_id or None,
        "time": _time(entry.time_us),
        "bytes": entry.size,
    }


def _undone(explanation: Explanation) -> str | None:
    by = explanation.rolled_back_by
    return rolled_back_text(by, explanation.undoing) if by else None


def _time(time_us: int) -> str:
    from lakefold_reader.versions.times import nearest_time

    return nearest_time(time_us).isoformat()


def _show(explanation: Explanation) -> None:
    branch = f", branch {explanation.branch}" if explanation.branch else ""
    print_line(f"{explanation.sought.text} for {explanation.table} ({explanation.format}){branch}")
    for name, text in (
        ("proposed", _proposed(explanation)),
        ("author", None if explanation.author is None else str(explanation.author)),
        ("position", None if explanation.position is None else str(explanation.position)),
        ("another entry", explanation.another),
        ("not verified", explanation.unproven),
        ("outcome", _outcome(explanation)),
        ("its rows", _undone(explanation)),
        *_conflict(explanation),
        ("version", _version(explanation)),
        *_others(explanation),
        ("known from", explanation.known_from),
        ("what to do", explanation.advice),
        *(("not searched", source) for source in explanation.not_looked_at),
    ):
        if text:
            print_line(f"  {name:<16}{text}")


def _proposed(explanation: Explanation) -> str | None:
    plain = _proposal(explanation)
    if plain is None:
        return None
    key = f"{plain['app_id']}:{plain['batch_id']}, " if plain["app_id"] else ""
    claim = plain["claim"]
    if claim is not None:
        return f"{key}at {plain['time']}, a claim: its {claim['size']:,} bytes are stored at {claim['uri']}"
    read = plain["read_version"]
    built = f"built on version {read}" if read else "built on no version"
    built = "to create the table" if plain["creates"] else built
    if plain["operation"] == TAG:
        built = f"of version {read}" if read else "to remove it"
    elif plain["operation"] == FORGET_APP:
        built = f"of {plain['forgets']}"
    elif plain["operation"] == DELETE_BRANCH:
        built = f"of {plain['branch'] or MAIN}"
    size = f"{plain['bytes']:,} bytes"
    return f"{plain['operation']}, {built}, {key}uuid {plain['uuid'] or '-'}, at {plain['time']}, {size}"


def _outcome(explanation: Explanation) -> str:
    if explanation.outcome is not None:
        return result_text(explanation.outcome)
    if explanation.state == "waiting" and explanation.status is not None:
        return (
            f"it waits; {explanation.before:,} of the {explanation.waiting:,} waiting proposals are before it"
        )
    if explanation.version is not None:
        return f"committed in version {explanation.version}"
    if explanation.state == "committed":
        return "committed, in a version that is no longer known"
    if explanation.state == "replaced":
        return "not answered yet; another entry was answered at this position"
    return "answered, but no outcome of it is left"


def _conflict(explanation: Explanation) -> list[tuple[str, str]]:
    """Returns the evidence of a rejected proposal: the other version, fragments, fields, keys and rows."""
    if explanation.outcome is None or not isinstance(explanation.outcome.result, Rejected):
        return []
    conflict = explanation.outcome.result.conflict
    other = f"version {conflict.other_version} ({conflict.other_operation})"
    other += "" if explanation.other_client is None else f" of {explanation.other_client}"
    rows = [("conflicts with", other)] if conflict.other_version else []
    return rows + [(f"  {name}", text) for name, text in _evidence(conflict)]


def _evidence(conflict: Conflict) -> list[tuple[str, str]]:
    kinds: dict[str, tuple[object, ...]] = {
        "fragments": conflict.fragment_ids,
        "fields": conflict.field_ids,
        "keys": conflict.keys,
        "rows": tuple(f"{row >> 32}:{row & 0xFFFFFFFF}" for row in conflict.row_addresses),
    }
    return [
        (name, ", ".join(map(str, ids[:SHOWN])) + (f" and {len(ids) - SHOWN:,} more" * (len(ids) > SHOWN)))
        for name, ids in kinds.items()
        if ids
    ]


def _version(explanation: Explanation) -> str | None:
    """Returns a description of the version that contains the proposal or records its refusal."""
    from lakefold_reader.snapshot.history import Positions

    held = None if explanation.finding is None else explanation.finding.version
    if held is not None:
        span = Positions(held.log, held.topic, held.first, held.last)
        when = f"{held.timestamp:%Y-%m-%d %H:%M:%S.%f}"
        operation = operations_text(held.operation, held.operations)
        made = f"{operation} of {when}, folded on version {held.base_version}"
        return f"{held.version}: {made}, {held.entries:,} entries of {span}"
    finding, version = explanation.finding, explanation.version
    if finding is not None and version is not None and version < finding.oldest:
        return f"{version}: it was cleaned up; the oldest existing version is {finding.oldest}"
    return None


def _others(explanation: Explanation) -> list[tuple[str, str]]:
    """Returns the outcomes at other positions, if the proposal was sent more than once."""
    others = [outcome for outcome in explanation.outcomes if outcome is not explanation.outcome]
    return [("sent also at", f"{outcome.position}: {result_text(outcome)}") for outcome in others[:SHOWN]]
