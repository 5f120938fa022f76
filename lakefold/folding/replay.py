"""`lakefold replay`: folds the log again, in memory, and compares every version with what is stored."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakefold.branching.revert_verb import later_options
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line
from lakefold.writing.verb_options import FILE, wait_option

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_committer.replay.log_reader import Entries, Reader
    from lakefold_committer.replay.version_replay import Replayed
    from lakefold_table.position import LogId

DAMAGED = 4
PROGRESS_SECONDS = 5.0
QUIET = frozenset({"same", "foreign", "moved"})
"""Verdicts that --check doesn't print, unless they have notes."""


@verb(
    "lakefold replay /data/flights",
    "lakefold replay /data/flights --check",
    "lakefold replay /data/flights --from 1000 --to 2000 --json",
    "lakefold replay /data/flights --branch audit --check",
    "lakefold replay /data/flights --file proposals.bin",
    "lakefold replay /data/flights --onto-branch without-tuesday --without loader:7 --keep-later",
    "lakefold replay /data/flights --onto-branch corrected --without loader:7 --with tuesday.parquet",
)
@click.argument("table")
@settings_options(*KAFKA, *TOPICS, *STORE)
@click.option("--branch", default="", metavar="NAME", help="The branch to replay.  [default: main]")
@click.option("--from", "first", type=click.IntRange(min=0), help="The first version.  [default: the oldest]")
@click.option("--to", "last", type=click.IntRange(min=0), help="The last version.  [default: the newest]")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="A file of envelopes that was folded into the table; repeatable.",
)
@click.option("--log-id", help="The log id that --file was folded with.  [default: from its content]")
@click.option(
    "--onto-branch",
    "onto",
    metavar="NAME",
    help="Begin this branch, which shows the table without some batches.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="APP_ID:BATCH_ID",
    help="With --onto-branch: leave this batch out; repeatable.",
)
@click.option(
    "--with", "added", type=FILE, multiple=True, help="With --onto-branch: append its rows; repeatable."
)
@click.option(
    "--until",
    metavar="VERSION|TIME|POSITION",
    help="With --onto-branch: what came later is left out.  [default: the newest version]",
)
@later_options
@wait_option(or_log=False)
@click.option("--check", is_flag=True, help="Print only the versions that differ or could not be compared.")
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - its options
    context: click.Context,
    /,
    settings: Settings,
    table: str,
    *,
    branch: str,
    check: bool,
    onto: str | None,
    without: tuple[str, ...],
    added: tuple[Path, ...],
    until: str | None,
    wait: float,
    as_json: bool,
    later: dict[str, Any],
    **given: Any,  # noqa: ANN401 - which versions and files, each option by its name
) -> None:
    """Fold the log of TABLE again, in memory, and compare each version with what is stored, byte for byte.

    Nothing is written. A line is printed for each version, oldest first, with one of these verdicts: same;
    different (with the fields); foreign (made by another client); moved (made by adopt, rebind or detach);
    not compared (with what is missing: the version it was built on, its entries in the log, or a file that
    decided an outcome); gone (removed). The exit code is 4 if a version is different.

    Data files are not read, so it does not matter if they have been cleaned up. Refused entries that no
    version records are not folded again; the outcomes topic has their outcomes.

    With --onto-branch a branch is begun that has the table as it would be without some batches, and what
    differs is printed: rows, files and columns. The table itself stays as it is. The batches are taken out as
    `lakefold revert` does, with its conflicts and its options for them, by one proposal on the branch. Then
    the rows of --with are appended there as one batch, read as by `lakefold append`. Read the branch with
    --branch NAME, add other batches to it at TABLE/tree/NAME, and delete it with `lakefold branch TABLE NAME
    --delete`.
    """
    if onto is not None:
        if check or branch or given["files"] or given["first"] is not None or given["last"] is not None:
            raise click.UsageError(
                "--onto-branch takes --without, --with and --until, and no range to compare"
            )
        from lakefold.folding.replay_onto_branch import replay_onto_branch

        undone = {"batches": without, **later}
        replay_onto_branch(context, settings, table, onto, undone, added, until, wait=wait, as_json=as_json)
        return
    if without or added or until is not None or any(later.values()):
        message = (
            "--without, --with, --until, --keys, --keep-later and --with-dependents need --onto-branch NAME"
        )
        raise click.UsageError(message)
    if given["log_id"] is not None and len(given["files"]) != 1:
        raise click.UsageError("--log-id is the id of one file; give one --file with it")
    from lakefold_committer.replay.replay import replay
    from lakefold_committer.tables.branches import located

    stored = located(settings.address_of(table), branch)
    entries = _entries(context, settings, given["files"], given["log_id"])
    kinds: Counter[str] = Counter()
    progress_at = time.monotonic()
    for replayed in replay(stored, entries, given["first"], given["last"]):
        kinds[replayed.verdict] += max(1, replayed.last - replayed.version + 1)
        if not check or replayed.verdict not in QUIET or replayed.notes:
            _print(replayed, stored.format.name, as_json=as_json)
        if time.monotonic() - progress_at > PROGRESS_SECONDS:
            progress_at = time.monotonic()
            print_line(f"at version {replayed.version:,}: {_counts(kinds)}", err=True)
    if not as_json:
        print_line(f"{_counts(kinds)} ({stored.format.name} table)", err=True)
    if kinds["different"]:
        context.exit(DAMAGED)


def _entries(
    context: click.Context, settings: Settings, files: tuple[Path, ...], log_id: str | None
) -> Entries:
    from lakefold_committer.replay.log_reader import AnyEntries, FileEntries, KafkaEntries
    from lakefold_log.read.file_log import read_file_log

    def opened(topic: str, log: LogId, offset: int) -> Reader:
        from lakefold_log.client.admin import Admin
        from lakefold_log.read.consumer import HURRIED, PartitionReader

        reader = PartitionReader(Admin(settings.kafka_config()), topic, log, offset, tuned=HURRIED)
        context.call_on_close(reader.close)
        return reader

    return AnyEntries(FileEntries(read_file_log(file, log_id) for file in files), KafkaEntries(opened))


def _counts(kinds: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))


def _print(replayed: Replayed, format_name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(replayed) | {"last": replayed.last or replayed.version, "format": format_name})
        return
    first, last = replayed.version, replayed.last or replayed.version
    number = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    more = [replayed.operation, replayed.positions]
    if replayed.positions:
        more.append(f"{replayed.committed:,} committed, {replayed.refused:,} answered otherwise")
    print_line("  ".join(filter(None, (f"version {number}", str(replayed.verdict), *more))))
    for text in (*map(str, replayed.differences), *replayed.notes):
        print_line(f"  {text}")
