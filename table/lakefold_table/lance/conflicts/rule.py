"""What a conflict rule is: when it applies, how bad that is, and what the writer should do about it.

The sentences of a rule are part of it: they make the evidence of an outcome and the page of the documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from lakefold_table.entry import BUILD_AGAIN, LOOK_FIRST
from lakefold_table.lance.conflicts.verdicts import Rebase

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.lance.conflicts.footprint import Footprint


class Severity(IntEnum):
    """How much trouble a rule means. The worse one counts where several apply."""

    REBASE = 1
    RETRYABLE = 2
    INCOMPATIBLE = 3


ADVICE = {
    Severity.REBASE: "nothing",
    Severity.RETRYABLE: BUILD_AGAIN,
    Severity.INCOMPATIBLE: LOOK_FIRST,
}
"""What the writer should do, unless a rule knows better."""


@dataclass(frozen=True, slots=True)
class Met:
    """A rule applies: the evidence. `rebase` is what a rule of that severity asks for."""

    fragment_ids: frozenset[int] = frozenset()
    field_ids: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()
    rebase: Rebase = Rebase()  # noqa: RUF009 - a value that never changes


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason why two operations can't simply stand side by side.

    `when` says it in a few words, "it" being the operation that came before. `advice` is what the writer
    should do, where that is more than the severity says. `reads_theirs`: the condition asks for more of
    theirs than its kind.
    """

    severity: Severity
    when: str
    condition: Callable[[Footprint, Footprint, int], Met | None]
    reads_theirs: bool = True
    advice: str = ""

    @property
    def to_do(self) -> str:
        """What the writer of a refused proposal should do."""
        return self.advice or ADVICE[self.severity]

    @property
    def always(self) -> bool:
        """Whether the two kinds alone decide."""
        return self.condition is always


def always(_ours: Footprint, _theirs: Footprint, _version: int) -> Met:
    """The condition of rules that apply to any two operations of their kinds."""
    return Met()


def met_fragments(ids: frozenset[int]) -> Met | None:
    """That the rule applies to these fragments, if there are any."""
    return Met(ids) if ids else None


def met_fields(ids: frozenset[int]) -> Met | None:
    """That the rule applies to these fields, if there are any."""
    return Met(field_ids=ids) if ids else None


def met_keys(keys: frozenset[str]) -> Met | None:
    """That the rule applies to these keys, if there are any."""
    return Met(keys=keys) if keys else None
