"""The rules by which a proposal conflicts with a commit that was made after its read version.

They are the steps of Delta's own check, in its order; docs/reference/delta-conflicts.md is written from them.
What a partition predicate selects is not evaluated: a proposal with any predicate counts as one that read the
whole table. So a proposal may be refused that Delta would accept, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lakefold_table.entry import BUILD_AGAIN, Conflict
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.delta.conflicts.footprint import CommitFootprint
    from lakefold_table.delta.proposal import DeltaTableProposal

SERIALIZABLE: Final = "serializable"
WRITE_SERIALIZABLE: Final = "write-serializable"
SHOWN: Final = 5
"""How many paths or names an outcome contains as evidence."""
Condition = Callable[["DeltaTableProposal", "CommitFootprint", str], "frozenset[str] | None"]
"""Returns the evidence (paths or names, may be empty) if the rule applies, else None. The text is the
isolation level."""


@value()
class DeltaRule:
    """A reason why a proposal can't be committed after another commit.

    `name`: of the step in Delta's check. `when`: the reason in a few words, in which "it" is the commit that
    came before. Built again on the newest version, the proposal may pass.
    """

    name: str
    when: str
    condition: Condition


def _flag(*, met: bool) -> frozenset[str] | None:
    return frozenset() if met else None


def _some(evidence: frozenset[str]) -> frozenset[str] | None:
    return evidence or None


def _appended(ours: DeltaTableProposal, theirs: CommitFootprint, isolation: str) -> frozenset[str] | None:
    reads = ours.reads_all or bool(ours.read_predicates)
    # A proposal that changes no rows is right on any rows that were added meanwhile.
    if not reads or (not ours.changes_data and (ours.adds or ours.removes)):
        return None
    if isolation == WRITE_SERIALIZABLE and theirs.is_blind:
        return None
    return _some(theirs.adds_rows)


def _carried(ours: DeltaTableProposal, theirs: CommitFootprint) -> frozenset[str]:
    """Returns the files that both changed in ways that can be fitted to each other: see `row_changes`."""
    sources = frozenset(move.source for move in ours.moves)
    return (ours.affected_rows.keys() & theirs.keeps_rows) | (sources & theirs.rows_deleted)


def _read_and_removed(
    ours: DeltaTableProposal, theirs: CommitFootprint, isolation: str
) -> frozenset[str] | None:
    del isolation
    if ours.reads_all:
        return _some(theirs.removed)
    # Of a proposal that names the rows that it changes, nothing else depends on what it has read. No row that
    # others deleted or moved is one that it would have changed, or else the row itself is in conflict.
    kept = theirs.keeps_rows if ours.affected_rows else _carried(ours, theirs)
    removed = theirs.removed - kept
    return _some(removed if ours.read_predicates else ours.read_files & removed)


def _both_removed(ours: DeltaTableProposal, theirs: CommitFootprint, isolation: str) -> frozenset[str] | None:
    del isolation
    if not ours.removes:
        return None
    both = frozenset(file.path for file in ours.removes) & theirs.removed
    return _some(both - _carried(ours, theirs)) if both else None


RULES: Final = (
    DeltaRule(
        "protocol changed",
        "it changed the table's protocol",
        lambda _ours, theirs, _level: _flag(met=theirs.protocol),
    ),
    DeltaRule(
        "metadata changed",
        "it changed the table's metadata: the schema, the partitioning or a property",
        lambda _ours, theirs, _level: _flag(met=theirs.metadata),
    ),
    DeltaRule(
        "concurrent append",
        "it added rows, and the proposal has read the table or partitions of it; with the isolation level "
        "write-serializable commits that only add rows don't count",
        _appended,
    ),
    DeltaRule(
        "concurrent delete, read",
        "it removed files that the proposal has read; files of which it only deleted or moved rows don't "
        "count for a proposal that names its rows (below)",
        _read_and_removed,
    ),
    DeltaRule(
        "concurrent delete, delete",
        "it removed files that the proposal removes as well, and what both did to them can't be merged "
        "(below)",
        _both_removed,
    ),
    DeltaRule(
        "domain metadata",
        "it set the metadata of a domain that the proposal sets as well",
        lambda ours, theirs, _level: _some(frozenset(each.domain for each in ours.domains) & theirs.domains),
    ),
    DeltaRule(
        "concurrent transaction",
        "it recorded a batch of an application whose last batch the proposal has read",
        lambda ours, theirs, _level: _some(ours.read_apps & theirs.apps),
    ),
)


def isolation_level(proposed: str, configuration: str | None) -> str:
    """Returns the isolation level of a proposal: its own, else that of the table, else the strictest."""
    if proposed:
        return proposed
    return WRITE_SERIALIZABLE if (configuration or "").lower() == "writeserializable" else SERIALIZABLE


def conflict_of(
    ours: DeltaTableProposal, commits: Iterable[CommitFootprint], isolation: str
) -> Conflict | None:
    """Returns the conflict with the first of these commits that a rule names, None if there is none."""
    for theirs in commits:
        for rule in RULES:
            evidence = rule.condition(ours, theirs, isolation)
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


ABOUT: Final = """\
A proposal for a Delta table is compared with each version after its read version, and with the proposals
that share its version before it. The rules are the steps of Delta's own check. If one applies, the proposal
is Rejected, and the outcome names the version and the paths or names that both touched. Every conflict is
retryable: built again on the newest version, the proposal may pass.

A proposal without a read version is compared with nothing: it only adds files, or creates the table.
Partition predicates are not evaluated: a proposal with any counts as one that read the whole table.

Proposals that only add and remove files share a version. One that changes the protocol, the metadata or a
domain is alone in its version. One with `cdc` actions shares its version only with others that have some.
One that removes a file which another adds is in the next version.

## Rows of one file

A proposal that deletes rows of a file by a deletion vector names these rows in `affected_rows`, by the path
of the file. Deleting other rows of the file meanwhile is no conflict then: the committer merges the
deletion vectors. The merged vector is in its action if it has at most 1,024 bytes, else in a file of the
table. Nothing else that the proposal has read counts, unless it sets `read_whole_table`. A row that both
delete is a conflict, and so are rows that came back by a RESTORE.

A compaction (`dataChange` false) that keeps the order of the rows says so in a tag of each file that it
adds, `lakefold.rowsOf`. It is a JSON array with an array for each part of the file, in the order of the
rows: the path of a removed file, how many rows are stored in that file, the index of the first row that the
part has, and the number of its rows. Index and number are among the rows that were not deleted when the
compaction read the file. A proposal with `affected_rows` that was built before the compaction is committed
on the new files. Rows that others delete while the compaction runs are deleted from its new files; the
committer then adds a fifth member to the part: the deletion vector that the file had before, or null.
Without the tag both are conflicts."""
"""The text of the page that shows this table."""
