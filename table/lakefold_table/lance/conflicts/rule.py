"""What a conflict rule is: when it applies, how severe that is, and what the writer should do about it.

The sentences of a rule are part of it: outcomes and docs/conflicts.md are written from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from lakefold_table.entry import BUILD_AGAIN, LOOK_FIRST
from lakefold_table.lance.verdicts import Rebase

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.lance.conflicts.footprint import Footprint


class RuleEffect(IntEnum):
    """What a rule does to a proposal. If several rules apply, the highest counts."""

    REBASE = 1
    CARRIED = 2
    RETRYABLE = 3
    INCOMPATIBLE = 4


ADVICE = {
    RuleEffect.REBASE: "nothing",
    RuleEffect.CARRIED: "nothing",
    RuleEffect.RETRYABLE: BUILD_AGAIN,
    RuleEffect.INCOMPATIBLE: LOOK_FIRST,
}
"""The advice for the writer of a proposal, if the rule itself has none."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that a rule applies. `rebase`: what the operation has to do, if the rule asks for it."""

    fragment_ids: frozenset[int] = frozenset()
    field_ids: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()
    rebase: Rebase = Rebase()  # noqa: RUF009 - a value that never changes


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason why an operation can't be committed unchanged after another.

    `when` is that reason in a few words, in which "it" is the operation that came before. `advice` is what
    the writer should do, if that is more than the effect says. `carries`: what becomes of the rows, if the
    proposal is carried over the other operation. `reads_theirs`: the condition reads more of the other
    operation than its kind.
    """

    effect: RuleEffect
    when: str
    condition: Callable[[Footprint, Footprint, int], Evidence | None]
    reads_theirs: bool = True
    advice: str = ""
    carries: str = ""

    @property
    def to_do(self) -> str:
        """The advice for the writer of a refused proposal."""
        return self.advice or ADVICE[self.effect]

    @property
    def always(self) -> bool:
        """Whether the rule applies to any two operations of the two kinds."""
        return self.condition is always


def always(_ours: Footprint, _theirs: Footprint, _version: int) -> Evidence:
    """The condition of rules that apply to any two operations of their kinds. Returns empty evidence."""
    return Evidence()


def met_fragments(ids: frozenset[int]) -> Evidence | None:
    """Returns these fragments as evidence, or None if there are none."""
    return Evidence(ids) if ids else None


def met_fields(ids: frozenset[int]) -> Evidence | None:
    """Returns these fields as evidence, or None if there are none."""
    return Evidence(field_ids=ids) if ids else None


def met_keys(keys: frozenset[str]) -> Evidence | None:
    """Returns these keys as evidence, or None if there are none."""
    return Evidence(keys=keys) if keys else None
