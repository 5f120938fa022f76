"""Which operations can't simply stand beside which: the conflict rules as data (format facts, 5.2 to 5.5).

For each operation that is proposed a row: the operations that may have come in between, with the rules that
then apply. What isn't named is compatible. `docs/conflicts.md` is written from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lakefold_table.lance.conflicts.rule import Rule, Severity, always
from lakefold_table.lance.operations import Kind

Row = Mapping[Kind, tuple[Rule, ...]]

UNTOLD = Rule(Severity.RETRYABLE, "nobody can tell what that version did", always, reads_theirs=False)
REPLACED = Rule(Severity.INCOMPATIBLE, "it replaced what the table holds", always, reads_theirs=False)
MERGED_LOG = Rule(
    Severity.INCOMPATIBLE, "it moved rows of the write-ahead log into the table", always, reads_theirs=False
)
NULLABILITY = Rule(
    Severity.RETRYABLE, "it may have forbidden nulls that the values hold", always, reads_theirs=False
)

RULES: Mapping[Kind, Row] = MappingProxyType(
    {
        Kind.APPEND: {
            Kind.OVERWRITE: (REPLACED,),
            Kind.RESTORE: (REPLACED,),
            Kind.UPDATE_MEM_WAL_STATE: (MERGED_LOG,),
            Kind.MERGE: (NULLABILITY,),
            Kind.PROJECT: (NULLABILITY,),
            Kind.UNKNOWN: (UNTOLD,),
        },
        Kind.RESERVE_FRAGMENTS: {
            Kind.OVERWRITE: (REPLACED,),
            Kind.RESTORE: (REPLACED,),
            Kind.UNKNOWN: (UNTOLD,),
        },
    }
)
"""For each kind that is proposed, and each that came in between, the rules that apply."""

DETAILED = frozenset(
    other
    for row in RULES.values()
    for other, rules in row.items()
    if any(rule.reads_theirs for rule in rules)
)
"""The kinds of which some rule asks more than that there was one."""
