"""`lakefold redrive`: lists the refused proposals, and sends chosen proposals again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Unpack

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.outcomes import REFUSED, result_text
from lakefold.console.output import pages, print_columns, print_json, print_line
from lakefold.console.settings import BrokerOptions
from lakefold_table.entry import Entry
from lakefold_table.errors import InvalidError
from lakefold_table.packages import explained_imports
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from lakefold.console.settings import Settings
    from lakefold.proposals.resend import SentAgain
    from lakefold_log.read.dead_letters import DeadLetter

HEADER = ("position", "time", "table", "operation", "app/batch", "reason")
AGAIN = "refused again"
WAIT_S = 30.0
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
    default=WAIT_S,
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
    if not (chosen or every):
        _list(_letters(settings, table), as_json=as_json)
        return
    picked = _picked(settings, table, chosen)
    if dry_run:
        for letter in picked:
            _print_dry(letter, as_json=as_json)
        return
    results = _Results(as_json=as_json)
    for sent in _sent_again(settings, picked, wait):
        results.add(sent)
    if not as_json:
        click.echo(results.summary())
    if results.refused:
        context.exit(REFUSED)


class RedriveOptions(BrokerOptions, total=False):
    """Options of `redrive`: `BrokerOptions`, of which a `timeout` of 0 doesn't wait, and settings."""

    dead_letters_topic: str
    group: str


@explained_imports()
def redrive(
    table: str | os.PathLike[str] | None = None,
    *,
    offsets: Iterable[int | str] | None = None,
    every: bool = False,
    dry_run: bool = False,
    **options: Unpack[RedriveOptions],
) -> list[dict[str, Any]]:
    """Returns the dead letters, or sends chosen ones again: each as `lakefold redrive --json` prints it.

        refused = lakefold.redrive("s3://lake/flights.lance")
        sent = lakefold.redrive("s3://lake/flights.lance", every=True)

    `table`: only its dead letters. `offsets`: those of the proposals that are sent again, each as a number or
    as "PARTITION/OFFSET"; `every`: all of them. They keep their keys, so what was committed meanwhile is a
    Duplicate. `sent_to` is the new position, `outcome` the new outcome, and `obstacle` says why one was not
    sent. `dry_run`: nothing is sent, and `would_send` says what would be.

    Raises `InvalidError` if not exactly one dead letter has an offset, or an option is wrong, `RetryError` if
    the brokers don't answer or an outcome is late: another call is safe.
    """
    from lakefold.writing.options import function_settings

    settings = function_settings(options, RedriveOptions.__annotations__)
    where = None if table is None else str(table)
    chosen = [str(each) for each in offsets or ()]
    if offsets is None and not every:
        return [plain_letter(letter) for letter in _letters(settings, where)]
    if offsets is not None and every:
        raise InvalidError("offsets and every both choose dead letters", hint="give one of them")
    picked = _picked(settings, where, chosen) if chosen or every else []
    if dry_run:
        return [_plain_dry(letter) for letter in picked]
    return [_plain_sent(sent) for sent in _sent_again(settings, picked, options.get("timeout", WAIT_S))]


def _letters(settings: Settings, table: str | None) -> Iterator[DeadLetter]:
    """Yields the dead letters, of one table if it is named."""
    from lakefold_log.read.dead_letters import read_dead_letters

    uri = None if table is None else canonical(table)
    config, topics = settings.kafka_config(), settings.topics()
    for letter in read_dead_letters(config, topics.dead_letters, timeout_s=PATIENCE_S):
        if uri in (None, letter.table):
            yield letter


def _picked(settings: Settings, table: str | None, chosen: Sequence[str]) -> list[DeadLetter]:
    """Returns the dead letters that are chosen, or all if none is; some have an obstacle."""
    from lakefold.proposals.resend import checked, pick

    picked, options = pick(_letters(settings, table), chosen), settings.storage_options
    config, topics, group = settings.kafka_config(), settings.topics(), settings.group
    return checked(picked, config, topics, options, group=group, timeout_s=PATIENCE_S)


def _sent_again(settings: Settings, picked: Sequence[DeadLetter], wait_s: float) -> Iterator[SentAgain]:
    from lakefold.proposals.resend import send_again

    config, topics = settings.kafka_config(), settings.topics()
    return send_again(picked, config, topics, settings.storage_options, wait_s=wait_s)


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
        kind, text = _result(sent)
        self._counts[kind] += 1
        if self._as_json:
            print_json(_plain_sent(sent))
        else:
            print_line(f"{sent.letter.position}  {_key(sent.letter)}  {text}")


def _plain_sent(sent: SentAgain) -> dict[str, Any]:
    from lakefold_reader.as_json import plain_position
    from lakefold_table.marks.outcome_messages import json_form, outcome_message

    position, outcome = sent.position, sent.outcome
    return {
        **plain_letter(sent.letter),
        "obstacle": sent.obstacle,
        "sent_to": None if position is None else plain_position(position),
        "outcome": None if outcome is None else json_form(outcome_message(outcome)),
        "same_cause": sent.same_cause,
    }


def _plain_dry(letter: DeadLetter) -> dict[str, Any]:
    return {**plain_letter(letter), "would_send": not letter.obstacle}


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
        print_json(_plain_dry(letter))
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
