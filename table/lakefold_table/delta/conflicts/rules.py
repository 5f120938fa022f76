"""The rules by which a proposal conflicts with a commit that was made after its read version.

They are the steps of Delta's own check that turn back, in its order; docs/reference/delta-conflicts.md is
written from them and from `resolutions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.predicates.matching import FileFilter
from lakefold_table.entry import BUILD_AGAIN, Conflict
from lakefold_table.values import value

if TYPE_CHECKING:
    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
    from lakefold_table.delta.actions.table_actions import TableMetadata
    from lakefold_table.delta.conflicts.footprint import CommitFootprint
    from lakefold_table.delta.proposal import DeltaTableProposal

SERIALIZABLE: Final = "serializable"
WRITE_SERIALIZABLE: Final = "write-serializable"
ISOLATION: Final = "delta.isolationLevel"
"""The property with the table's isolation level."""
SHOWN: Final = 5
"""How many paths or names an outcome contains as evidence."""
Condition = Callable[["JudgedProposal", "CommitFootprint"], "frozenset[str] | None"]
"""Returns the evidence (paths or names, may be empty) if the rule applies, else None."""


@value()
class JudgedProposal:
    """A proposal with what the rules need of it. `isolation`: its isolation level.

    `filter`: which files its predicates can select; None without any predicate. `checks_rows`: it adds a
    constraint, so its writer has checked all rows that the table had.
    """

    proposal: DeltaTableProposal
    isolation: str
    filter: FileFilter | None = None
    checks_rows: bool = False

    def selects(self, file: AddFile | RemoveFile) -> bool:
        """Returns whether the proposal has read the rows of a file, or would have."""
        if self.proposal.reads_all:
            return True
        return self.filter is not None and self.filter.may_match(file)


@value()
class DeltaRule:
    """A reason why a proposal can't be committed after another commit.

    `name`: of the step in Delta's check. `when`: the reason in a few words, in which "it" is the commit that
    came before. `evidence`: what the outcome names. Built again on the newest version, the proposal may
    pass.
    """

    name: str
    when: str
    evidence: str
    condition: Condition


def _flag(*, met: bool) -> frozenset[str] | None:
    return frozenset() if met else None


def _some(evidence: frozenset[str]) -> frozenset[str] | None:
    return evidence or None


def _metadata_changed(ours: JudgedProposal, theirs: CommitFootprint) -> frozenset[str] | None:
    if not theirs.metadata:
        return None
    proposal, change = ours.proposal, theirs.change
    if change is None or proposal.restores:
        return frozenset()
    if proposal.metadata is not None and not proposal.is_merged:
        return proposal.unmerged
    # Rows that are written again keep their ids from the version on that enables row tracking.
    return _flag(met=not change.fits_files and proposal.rewrites_rows)


def _appended(ours: JudgedProposal, theirs: CommitFootprint) -> frozenset[str] | None:
    proposal = ours.proposal
    if ours.checks_rows:
        return _some(frozenset(file.path for file in theirs.added))
    if not proposal.reads_all and ours.filter is None:
        return None
    # A proposal that changes no rows is right on any rows that were added meanwhile.
    if not proposal.changes_data and (proposal.adds or proposal.removes):
        return None
    if ours.isolation == WRITE_SERIALIZABLE and theirs.is_blind and proposal.metadata is None:
        return None
    return _some(frozenset(file.path for file in theirs.added if ours.selects(file)))


def _carried(proposal: DeltaTableProposal, theirs: CommitFootprint) -> frozenset[str]:
    """Returns the files that both changed in ways that can be fitted to each other: see `rebasing`."""
    sources = frozenset(move.source for move in proposal.moves)
    return (theirs.keeps_rows & proposal.affected_rows.keys()) | (sources & theirs.rows_deleted)


def _read_and_removed(ours: JudgedProposal, theirs: CommitFootprint) -> frozenset[str] | None:
    if not theirs.removed:
        return None
    proposal = ours.proposal
    if proposal.reads_all:
        return theirs.removed
    # Of a proposal that names the rows that it changes, nothing else depends on what it has read. No row that
    # others deleted or moved is one that it would have changed, or else the row itself is in conflict.
    names_rows = proposal.affected_rows or proposal.read_rows
    kept = theirs.keeps_rows if names_rows else _carried(proposal, theirs)
    named = proposal.read_files | proposal.read_rows.keys()
    removals = (file for file in theirs.removals if file.path not in kept)
    return _some(
        frozenset(
            each.path
            for each in removals
            if each.path in named or (not proposal.names_reads and ours.selects(each))
        )
    )


def _both_removed(ours: JudgedProposal, theirs: CommitFootprint) -> frozenset[str] | None:
    if not ours.proposal.removes:
        return None
    both = frozenset(file.path for file in ours.proposal.removes) & theirs.removed
    return _some(both - _carried(ours.proposal, theirs)) if both else None


RULES: Final = (
    DeltaRule(
        "protocol changed",
        "it changed the table's protocol",
        "the version alone",
        lambda _ours, theirs: _flag(met=theirs.protocol),
    ),
    DeltaRule(
        "metadata changed",
        "it changed the table's metadata: the schema, the partitioning or a property; compatible changes "
        "don't count, unless the proposal changes the same property or column in another way",
        "the properties and columns that both changed, else the version alone",
        _metadata_changed,
    ),
    DeltaRule(
        "domain metadata",
        "it set the metadata of a domain that the proposal sets as well",
        "the domains",
        lambda ours, theirs: _some(frozenset(each.domain for each in ours.proposal.domains) & theirs.domains),
    ),
    DeltaRule(
        "concurrent transaction",
        "it recorded a batch of an application whose last batch the proposal has read",
        "the applications",
        lambda ours, theirs: _some(ours.proposal.read_apps & theirs.apps),
    ),
    DeltaRule(
        "concurrent append",
        "it added rows that the proposal would have read: it has read the whole table, or one of its "
        "predicates can match rows of the new files; with the isolation level write-serializable commits "
        "that only add rows don't count, unless the proposal changes the metadata, and for a proposal that "
        "stores rows in another way none does; if the proposal adds a CHECK constraint or an invariant, any "
        "new rows count",
        "the new files",
        _appended,
    ),
    DeltaRule(
        "concurrent delete, read",
        "it removed files that the proposal has read: by name, by a predicate that can match their rows, or "
        "as part of the whole table; files of which it only deleted or moved rows don't count for a proposal "
        "that names its rows",
        "the removed files",
        _read_and_removed,
    ),
    DeltaRule(
        "concurrent delete, delete",
        "it removed files that the proposal removes as well, and what both did to them can't be merged",
        "the removed files",
        _both_removed,
    ),
)


def is_serializable(level: str | None) -> bool:
    """Returns whether an isolation level, of a proposal or a table, is named and is the strictest one."""
    return (level or "").lower() == SERIALIZABLE


def isolation_level(proposed: str, configuration: str | None) -> str:
    """Returns the isolation level of a proposal: its own, else that of the table, else the strictest."""
    if proposed:
        return proposed
    return WRITE_SERIALIZABLE if (configuration or "").lower() == "writeserializable" else SERIALIZABLE


def conflict_of(
    proposal: DeltaTableProposal,
    commits: Iterable[CommitFootprint],
    isolation: str,
    metadata: TableMetadata | None = None,
    *,
    checks_rows: bool = False,
) -> Conflict | None:
    """Returns the conflict with the first of these commits that a rule names, None if there is none.

    `metadata`: of the table. Without it predicates decide nothing. `checks_rows`: see `JudgedProposal`.
    """
    predicates = proposal.read_predicates
    file_filter = FileFilter(predicates, metadata) if predicates else None
    ours = JudgedProposal(proposal, isolation, file_filter, checks_rows)
    for theirs in commits:
        for rule in RULES:
            evidence = rule.condition(ours, theirs)
            if evidence is not None:
                operation = theirs.operation or "a commit"
                named = f": {', '.join(sorted(evidence)[:SHOWN])}" if evidence else ""
                message = (
                    f"version {theirs.version} ({operation}) conflicts: {rule.when}{named}; {BUILD_AGAIN}"
                )
                return Conflict(
                    retryable=True,
                    message=message,
                    other_version=theirs.version,
                    other_operation=theirs.operation,
                    keys=tuple(sorted(evidence)[:SHOWN]),
                )
    return None
