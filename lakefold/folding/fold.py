"""`lakefold fold`: the committer's fold over a file of envelopes, without Kafka."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefold.console.options import STORE, json_option, settings_options, verb
from lakefold.console.outcomes import REFUSED, outcome_line, print_outcome
from lakefold.console.output import print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings


@verb(
    "lakefold fold /data/flights proposals.bin --dry-run",
    "lakefold fold /data/flights proposals.bin --json",
    "cat proposals.bin | lakefold fold /data/flights -",
    "lakefold propose /data/flights --transaction 7-0f3c….txn --into proposals.bin",
)
@click.argument("table")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@settings_options(*STORE, "group_max_entries", "group_max_bytes", "claim_memory", "transaction_files")
@click.option("--dry-run", is_flag=True, help="Write nothing; print the outcomes that folding would have.")
@click.option("--log-id", help="The file log's id, a UUID.  [default: derived from the content]")
@json_option
@click.pass_context
def command(
    context: click.Context,
    settings: Settings,
    table: str,
    file: Path,
    *,
    dry_run: bool,
    log_id: str | None,
    as_json: bool,
) -> None:
    """Fold FILE into TABLE and print the outcomes in order, one per line.

    FILE contains lakefold.log.v1.Envelope messages, each after its length as a varint; - is standard input.
    `lakefold propose --into` writes such a file. The file is partition 0 of its own log, so folding it twice
    changes nothing. If its framing is broken, nothing is folded. The exit code is 3 if an entry was rejected
    or invalid.

    Consecutive entries may share a version. Use --group-max-entries 1 if an entry was built on the version of
    the entry before it, as with transactions from the history of another table.
    """
    from lakefold_committer.claims.claim_check import Claims
    from lakefold_committer.fold.grouping import Limits
    from lakefold_committer.replay.file_fold import fold_file
    from lakefold_committer.tables.branches import open_branch
    from lakefold_log.read.file_log import read_file_log
    from lakefold_table.formats import built_in

    log = read_file_log(file, log_id)
    address, formats = settings.address_of(table), built_in(transaction_files=settings.transaction_files)
    limits = Limits(settings.group_max_entries, settings.group_max_bytes)
    kinds: Counter[str] = Counter()
    claims = Claims(settings.storage_options, most_bytes=settings.claim_memory)
    branches = partial(open_branch, address, formats=formats)
    for outcome in fold_file(branches, address.uri, formats, log, limits, dry_run=dry_run, claims=claims):
        kinds[outcome.kind] += 1
        print_outcome(outcome, as_json=as_json)
    if not as_json:
        print_line(outcome_line(kinds, dry_run=dry_run), err=True)
    if kinds["rejected"] or kinds["invalid"]:
        context.exit(REFUSED)
