"""Folds a file of envelopes into a table without Kafka: the same fold, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from lakefold_committer.claims.claim_check import Claims
from lakefold_committer.fold.fold import outcome_of
from lakefold_committer.fold.grouping import Limits, first_group
from lakefold_committer.tables.branches import branch_location
from lakefold_committer.tables.previews import Previews
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_log.codec.envelope import Decoded, UnknownKind
from lakefold_table.entry import Entry, Invalid, Outcome, Undecodable
from lakefold_table.errors import InvalidError, StopError

if TYPE_CHECKING:
    from lakefold_table.formats import Formats

BranchOpener = Callable[[str], TableWriter]


def fold_file(
    open_branch: BranchOpener,
    uri: str,
    formats: Formats,
    log: Iterable[Decoded],
    limits: Limits,
    *,
    dry_run: bool,
    claims: Claims | None = None,
) -> Iterator[Outcome]:
    """Folds a file log into the table at `uri` and yields the outcome of each position in order.

    `open_branch` opens a branch of the table by its name, which is empty for the main branch. `claims`
    fetches the envelopes of large entries. Their files are not deleted, and neither is the file log.

    Refusals are recorded in the table too, so that folding the file again returns the same refusals.
    `dry_run` writes nothing and yields the same outcomes. Raises `InvalidError` if the table is bound to a
    Kafka log (except for a dry run). Raises `StopError` before anything is folded if a proposal is of an
    unknown kind.
    """
    opened = {"": _unbound(open_branch(""), dry_run=dry_run)}
    refused, entries = _outcomes_and_entries(log, uri)
    claims, previews = claims or Claims(formats=formats), Previews()
    done = 0
    while done < len(entries):
        branch = entries[done].envelope.branch
        if branch not in opened:
            opened[branch] = _unbound(open_branch(branch), dry_run=dry_run)
        table = opened[branch]
        # Entries of different branches share no version. Only one claimed envelope is held in memory.
        waiting = entries[done : done + limits.max_entries]
        run = list(takewhile(partial(_is_on, branch), waiting))
        group = claims.fetch(first_group(run, formats, limits, table.table.state))
        step = table.preview(group, previews) if dry_run else table.fold(group)
        done += len(step.outcomes)
        last = step.outcomes[-1].position.offset
        before = [outcome for outcome in refused if outcome.position.offset < last]
        refused = refused[len(before) :]
        yield from sorted([*before, *step.outcomes], key=lambda outcome: outcome.position.offset)
    yield from refused


def _is_on(branch: str, entry: Entry) -> bool:
    return entry.envelope.branch == branch


def _unbound(table: TableWriter, *, dry_run: bool) -> TableWriter:
    """Returns the table. Raises `InvalidError` if it is bound to a Kafka log and this is not a dry run."""
    bound = table.table.marks.position
    if bound is not None and not dry_run:
        raise InvalidError(
            f"the table is bound to the log {bound}: a file can't be folded into it",
            where=table.table.uri,
            hint="send the proposals to that log, or use --dry-run to see their outcomes",
        )
    return table


def _outcomes_and_entries(log: Iterable[Decoded], uri: str) -> tuple[list[Outcome], list[Entry]]:
    """Returns the outcomes of what can be refused without the table, and the remaining entries."""
    refused: list[Outcome] = []
    entries: list[Entry] = []
    for read in log:
        if isinstance(read, UnknownKind):
            raise StopError(read.message, where=str(read.position), hint=read.hint)
        if isinstance(read, Undecodable):
            refused.append(Outcome(read.position, read.table, Invalid(read.message, read.hint)))
        elif read.envelope.table != uri:
            other = Invalid(
                f"the envelope is for {read.envelope.table}, not for {uri}", "fold each table's file alone"
            )
            refused.append(outcome_of(read, other))
        elif isinstance(location := branch_location(uri, read.envelope.branch), Invalid):
            refused.append(outcome_of(read, location))
        else:
            entries.append(read)
    return refused, entries
