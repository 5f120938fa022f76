"""`lakefold explain`: what became of one proposal, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, examples, json_option, settings_options
from lakefold.console.outcomes import result_text
from lakefold.console.output import operations_text, print_json, print_line
from lakefold.errors import SettingError
from lakefold_table.entry import Entry, Rejected, rolled_back_text

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold.proposals.explanation import Brokers, Explanation
    from lakefold_table.entry import Conflict

SHOWN = 10
"""So many ids or keys of the evidence are shown to a person; `--json` has all."""


@click.command(
    epilog=examples(
        "lakefold explain /data/flights loader:12",
        "lakefold explain /data/flights 1047",
        "lakefold explain /data/flights lakefold.transactions/3@1047",
        "lakefold explain /data/flights 0f3c2a77-5a0e-4f7e-9f42-6d1c0a3f2b11 --json | jq .state",
        "lakefold explain /data/flights loader:12 --branch audit",
    )
)
@click.argument("table")
@click.argument("proposal", metavar="(UUID | OFFSET | TOPIC/PARTITION@OFFSET | APP_ID:BATCH_ID)")
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@click.option("--branch", metavar="NAME", help="The branch it was for.  [default: the line that TABLE is]")
@click.option(
    "--versions",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="How many of the table's newest versions to look at.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=30.0,
    show_default=True,
    help="How many seconds each search in a topic may take.",
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
    """Tell what became of one proposal for TABLE, and why.

    The table's versions are asked first; they need no broker. Where brokers are named, or `lakefold up` runs
    one here, the outcomes and the log are asked too: what was proposed, and how many wait before it while it
    waits. They are asked in the partition that the table is bound to, then in those that it left, then where
    its name is hashed to; an OFFSET is looked for in that order. If the log lost its end and grew again, so
    that another entry stands now where one was answered, both are named; the state of an OFFSET is then
    `replaced`. Exit code 2 where nothing is known of it, 5 where a place that may know doesn't answer.
    """
    from lakefold.proposals.explain_proposal import explain
    from lakefold_reader.opening import open_branch
    from lakefold_reader.versions.proposals import sought_of

    sought = sought_of(proposal)
    source = open_branch(table, branch, settings.storage_options)
    told = explain(source, sought, _brokers(settings, timeout), versions=versions)
    if as_json:
        print_json(_document(told))
    else:
        _show(told)


def _brokers(settings: Settings, timeout: float) -> Brokers | None:
    """The brokers that are named; None where there are none, or where Kafka's client isn't installed."""
    from importlib.util import find_spec

    from lakefold.proposals.explanation import Brokers

    try:
        servers = settings.brokers()
    except SettingError:
        return None
    if find_spec("confluent_kafka") is None and not settings.bootstrap_servers:
        return None
    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics

    topics = Topics(settings.transactions_topic, settings.outcomes_topic, settings.dead_letters_topic)
    return Brokers(KafkaConfig(servers, settings.kafka), topics, settings.group, timeout)


def _document(told: Explanation) -> dict[str, Any]:
    from lakefold_reader.as_json import iso, plain_position
    from lakefold_table.marks.outcome_messages import json_form, outcome_message

    held = None if told.finding is None else told.finding.version
    standing, position = told.standing, told.position
    return {
        "table": told.table,
        "branch": told.branch,
        "state": told.state,
        "position": None if position is None else plain_position(position),
        "outcome": None if told.outcome is None else json_form(outcome_message(told.outcome)),
        "outcomes": [json_form(outcome_message(one)) for one in told.outcomes],
        "told_by": told.told_by,
        "committed_in": told.version,
        "rolled_back_by": told.rolled_back_by or None,
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
        "proposal": _proposal(told),
        "log": None
        if standing is None
        else {"answered_to": standing.answered, "end": standing.end, "lag": standing.lag},
        "before_it": told.before,
        "another_entry": told.another or None,
        "not_proven": told.unproven or None,
        "advice": told.advice,
        "looked_at": told.looked_at,
        "not_looked_at": told.not_looked_at,
    }


def _proposal(told: Explanation) -> dict[str, Any] | None:
    entry = told.proposal
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
        "time": _time(entry.time_us),
        "bytes": entry.size,
    }


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()


def _show(told: Explanation) -> None:
    line = f", branch {told.branch}" if told.branch else ""
    print_line(f"{told.sought.text} for {told.table}{line}")
    for name, text in (
        ("proposed", _proposed(told)),
        ("position", None if told.position is None else str(told.position)),
        ("another entry", told.another),
        ("not proven", told.unproven),
        ("what became of it", _became(told)),
        ("its rows", rolled_back_text(told.rolled_back_by) if told.rolled_back_by else None),
        *_met(told),
        ("version", _version(told)),
        *_others(told),
        ("known from", told.told_by),
        ("what to do", told.advice),
        *(("not looked at", place) for place in told.not_looked_at),
    ):
        if text:
            print_line(f"  {name:<19}{text}")


def _proposed(told: Explanation) -> str | None:
    plain = _proposal(told)
    if plain is None:
        return None
    key = f"{plain['app_id']}:{plain['batch_id']}, " if plain["app_id"] else ""
    claim = plain["claim"]
    if claim is not None:
        return f"{key}at {plain['time']}, a claim to the {claim['size']:,} bytes at {claim['uri']}"
    read = plain["read_version"]
    built = f"built on version {read}" if read else "built on no version"
    built = "to create the table" if plain["creates"] else built
    size = f"{plain['bytes']:,} bytes"
    return f"{plain['operation']}, {built}, {key}uuid {plain['uuid'] or '-'}, at {plain['time']}, {size}"


def _became(told: Explanation) -> str:
    if told.outcome is not None:
        return result_text(told.outcome)
    if told.state == "waiting" and told.standing is not None:
        return f"it waits: {told.before:,} stand before it, the committer has {told.waiting:,} to go"
    if told.version is not None:
        return f"committed in version {told.version}"
    if told.state == "committed":
        return "committed, in a version that is no longer known"
    if told.state == "replaced":
        return "not answered yet: what was answered at this position was another entry"
    return "answered, but no outcome of it is left"


def _met(told: Explanation) -> list[tuple[str, str]]:
    """What a refused proposal met: the evidence."""
    if told.outcome is None or not isinstance(told.outcome.result, Rejected):
        return []
    conflict = told.outcome.result.conflict
    other = f"version {conflict.other_version} ({conflict.other_operation})"
    met = [("what it met", other)] if conflict.other_version else []
    return met + [(f"  {name}", text) for name, text in _evidence(conflict)]


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


def _version(told: Explanation) -> str | None:
    """The version that holds it or records its refusal."""
    held = None if told.finding is None else told.finding.version
    if held is not None:
        span = f"{held.topic}/{held.partition}@{held.first}-{held.last}"
        when = f"{held.timestamp:%Y-%m-%d %H:%M:%S.%f}"
        did = operations_text(held.operation, held.operations)
        what = f"{did} of {when}, folded on version {held.base_version}"
        return f"{held.version}: {what}, {held.entries:,} entries of {span}"
    if told.finding is not None and told.version is not None and told.version < told.finding.oldest:
        return f"{told.version}: it was cleaned up, the oldest one left is {told.finding.oldest}"
    return None


def _others(told: Explanation) -> list[tuple[str, str]]:
    """What became of it at other positions: it was sent again, or is now."""
    others = [one for one in told.outcomes if one is not told.outcome]
    return [("another time", f"{one.position}: {result_text(one)}") for one in others[:SHOWN]]
