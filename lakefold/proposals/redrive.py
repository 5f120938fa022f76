"""`lakefold redrive`: lists the refused proposals, and sends chosen proposals again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import REFUSED, result_text
from lakefold.console.output import pages, print_columns, print_json, print_line
from lakefold_table.entry import Entry
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold.console.settings import Settings
    from lakefold.proposals.resend import SentAgain
    from lakefold_log.read.dead_letters import DeadLetter

HEADER = ("position", "time", "table", "operation", "app/batch", "reason")
AGAIN = "refused again"
PATIENCE_S = 30.0
"""While the dead letters are read, the brokers may be silent for this many seconds."""


@verb(
    "lakefold redrive",
    "lakefold redrive --table /data/flights --json | jq .reason",
    "lakefold redrive --offset 1047",
    "lakefold redrive --table /data/flights --all --dry-run",
    "lakefold redrive --table /data/flights --all",
)
@settings_options(*KAFKA, *TOPICS, "group", *STORE)
@click.option("--table", metavar="TABLE", help="Only the dead letters of this table.")
@click.option(
    "--offset",
    "chosen",
    multiple=True,
    metavar="[PARTITION/]OFFSET",
    help="Send the proposal that had this position in the log again; repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Send all proposals again, or all of --table.")
@click.option("--dry-run", is_flag=True, help="Send nothing; print what would be sent.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for each outcome; 0 doesn't wait.",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    settings: Settings,
    *,
    table: str | None,
    chosen: tuple[str, ...],
    every: bool,
    dry_run: bool,
    wait: float,
    as_json: bool,
) -> None:
    """List the dead letters: the proposals that were refused, their positions in the log, and the reasons.

    With --offset or --all they are sent again unchanged, under their own keys, to the partition that their
    table is bound to. If a proposal has several dead letters, the newest is sent.

    A proposal with an app id that was committed meanwhile is answered as Duplicate and changes nothing. One
    without an app id is not sent if the topics show that it was committed, or that it was sent again and not
    refused. So repeated calls add no rows twice while the topics still have those messages.

    Dead letters are not removed. A proposal that is refused again gets another dead letter, and the exit code
    is 3.
    """
    if dry_run and not (chosen or every):
        raise click.UsageError("--dry-run needs --offset or --all; without them nothing is sent")
    if chosen and every:
        raise click.UsageError("give --offset or --all, not both")
    from lakefold.proposals.resend import checked, pick, send_again
    from lakefold_log.read.dead_letters import read_dead_letters

    config, topics = settings.kafka_config(), settings.topics()
    dead_letters = read_dead_letters(config, topics.dead_letters, timeout_s=PATIENCE_S)
    if table is not None:
        uri = canonical(table)
        dead_letters = (letter for letter in dead_letters if letter.table == uri)
    if not (chosen or every):
        _list(dead_letters, as_json=as_json)
        return
    picked = pick(dead_letters, chosen)
    options, group = settings.storage_options, settings.group
    picked = checked(picked, config, topics, options, group=group, timeout_s=PATIENCE_S)
    if dry_run:
        for letter in picked:
            _print_dry(letter, as_json=as_json)
        return
    results = _Results(as_json=as_json)
    for sent in send_again(picked, config, topics, settings.storage_options, wait_s=wait):
        results.add(sent)
    if not as_json:
        click.echo(results.summary())
    if results.refused:
        context.exit(REFUSED)


class _Results:
    """Prints the result of each dead letter that was sent again, and counts the results by kind."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[str] = Counter()

    @property
    def refused(self) -> bool:
        """Whether a proposal was refused again."""
        return self._counts[AGAIN] > 0

    def summary(self) -> str:
        """Returns the number of results of each kind as text."""
        return ", ".join(f"{count:,} {what}" for what, count in self._counts.items()) or "nothing to send"

    def add(self, sent: SentAgain) -> None:
        """Counts and prints the result of a dead letter."""
        from lakefold_reader.as_json import plain_position
        from lakefold_table.marks.outcome_messages import json_form, outcome_message

        kind, text = _result(sent)
        self._counts[kind] += 1
        if self._as_json:
            position, outcome = sent.position, sent.outcome
            more = {
                "sent_to": None if position is None else plain_position(position),
                "outcome": None if outcome is None else json_form(outcome_message(outcome)),
                "same_cause": sent.same_cause,
            }
            print_json({**plain_letter(sent.letter), "obstacle": sent.obstacle, **more})
        else:
            print_line(f"{sent.letter.position}  {_key(sent.letter)}  {text}")


def _result(sent: SentAgain) -> tuple[str, str]:
    """Returns the kind of a result, for the counts, and its text."""
    if sent.position is None:
        return "not sent", f"not sent: {sent.obstacle}"
    if sent.outcome is None:
        return "sent", f"{sent.position}  sent"
    if sent.same_cause is None:
        return "in the table", f"{sent.position}  {result_text(sent.outcome)}"
    cause = "the same cause" if sent.same_cause else "another cause"
    return AGAIN, f"{sent.position}  refused again, for {cause}: {result_text(sent.outcome)}"


def _list(dead_letters: Iterable[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        for letter in dead_letters:
            print_json(plain_letter(letter))
        return
    empty = True
    for page in pages(dead_letters):
        empty = False
        print_columns(HEADER, [_cells(letter) for letter in page])
    if empty:
        click.echo("no dead letters")


def _cells(letter: DeadLetter) -> tuple[object, ...]:
    from lakefold_reader.versions.times import nearest_time

    when = nearest_time(letter.time_us).replace(tzinfo=None).isoformat(" ", "seconds")
    return (str(letter.position), when, letter.table, _operation(letter), _key(letter), letter.reason)


def _print_dry(letter: DeadLetter, *, as_json: bool) -> None:
    if as_json:
        print_json({**plain_letter(letter), "would_send": not letter.obstacle})
        return
    result = f"can't be sent: {letter.obstacle}" if letter.obstacle else "would be sent"
    print_line(f"{letter.position}  {_key(letter)}  {result}")


def _operation(letter: DeadLetter) -> str | None:
    if not isinstance(letter.proposal, Entry):
        return None
    proposal = letter.proposal.proposal
    return "claim" if proposal is None else proposal.operation or None


def _key(letter: DeadLetter) -> str:
    if not isinstance(letter.proposal, Entry):
        return "-"
    entry = letter.proposal
    return f"{entry.app_id}:{entry.batch_id}" if entry.app_id else entry.uuid or "-"


def plain_letter(letter: DeadLetter) -> dict[str, Any]:
    """Returns a dead letter as plain values, as `--json` prints it."""
    from lakefold_reader.as_json import plain_position
    from lakefold_reader.versions.times import nearest_time

    entry = letter.proposal if isinstance(letter.proposal, Entry) else None
    return {
        "position": plain_position(letter.position),
        "letter": plain_position(letter.stored_at),
        "time": nearest_time(letter.time_us).isoformat(),
        "table": letter.table,
        "branch": "" if entry is None else entry.envelope.branch,
        "operation": _operation(letter),
        "app_id": "" if entry is None else entry.app_id,
        "batch_id": None if entry is None else entry.batch_id,
        "uuid": "" if entry is None else entry.uuid,
        "reason": letter.reason,
        "hint": letter.hint,
        "obstacle": letter.obstacle,
    }
