"""Judges a proposal against an operation that was committed before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts.rule import Evidence, Rule, RuleEffect
from lakefold_table.lance.conflicts.rules import RULES
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.verdicts import COMPATIBLE, Compatible, Rebase, Verdict

if TYPE_CHECKING:
    from lakefold_table.lance.conflicts.footprint import Footprint

MAX_EVIDENCE = 1000
"""How many ids or keys of each sort an outcome lists at most."""
MAX_FIELD_ID = 2**31 - 1
"""The highest id that a field can have. Some operations name fields by wider numbers, which an outcome can't
hold."""


def judge(ours: Footprint, theirs: Footprint, version: int) -> Verdict:
    """Returns the verdict on `ours` after `theirs`, which became `version` (Lance facts 5.1 to 5.7).

    If several rules apply, an incompatible conflict is returned rather than a retryable conflict.
    """
    verdict: Verdict = COMPATIBLE
    for rule in RULES[ours.kind].get(theirs.kind, ()):
        met = rule.condition(ours, theirs, version)
        if met is not None:
            verdict = worse(verdict, _verdict(rule, met, ours.kind, theirs.kind, version))
    return verdict


def worse(first: Verdict, second: Verdict) -> Verdict:
    """Returns the worse of two verdicts: of equal conflicts the newer, of two rebases both joined."""
    if isinstance(first, Rebase) and isinstance(second, Rebase):
        return first.joined(second)
    return max(first, second, key=_weight)


def effect_of(verdict: Verdict) -> int:
    """Returns the verdict's effect, 0 if both are compatible."""
    if isinstance(verdict, Conflict):
        return RuleEffect.RETRYABLE if verdict.retryable else RuleEffect.INCOMPATIBLE
    return 0 if isinstance(verdict, Compatible) else RuleEffect.REBASE


def _weight(verdict: Verdict) -> tuple[int, int]:
    return effect_of(verdict), verdict.other_version if isinstance(verdict, Conflict) else 0


def _verdict(rule: Rule, met: Evidence, ours: Kind, theirs: Kind, version: int) -> Verdict:
    if rule.effect <= RuleEffect.CARRIED:
        return met.rebase
    other = f"version {version}" if theirs is Kind.UNKNOWN else f"the {theirs} of version {version}"
    return Conflict(
        retryable=rule.effect is RuleEffect.RETRYABLE,
        message=f"the {ours} conflicts with {other}: {rule.when}{_shown(met)}; {rule.to_do}",
        other_version=version,
        other_operation=theirs.value,
        fragment_ids=tuple(sorted(met.fragment_ids)[:MAX_EVIDENCE]),
        field_ids=tuple(sorted(number for number in met.field_ids if number <= MAX_FIELD_ID)[:MAX_EVIDENCE]),
        keys=tuple(sorted(met.keys)[:MAX_EVIDENCE]),
    )


def _shown(met: Evidence) -> str:
    ids = {"fragments": met.fragment_ids, "fields": met.field_ids}
    parts = [f"{name} {some(values)}" for name, values in ids.items() if values]
    parts += [f"keys {some(met.keys)}"] if met.keys else []
    return f" ({', '.join(parts)})" if parts else ""
