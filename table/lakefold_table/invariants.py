"""Named invariants of a format's versions, which are checked before a version is published.

A proposal is judged when it is folded. An invariant judges the version that came out of it, so that an error
in this program, or in a rule that it follows, publishes nothing. Each format has its own, as data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from lakefold_table.errors import DamagedError, StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Invariant(Generic[S]):
    """An invariant of a step `S`: a version, and the one before it.

    `holds` returns what breaks it, or an empty string; it may also raise `DamagedError`. `reason`: what goes
    wrong if it is broken. Its cost depends on the change of the step.
    """

    name: str
    reason: str
    holds: Callable[[S], str]

    def broken(self, step: S) -> str:
        """Returns what breaks the invariant, or an empty string if it holds."""
        try:
            return self.holds(step)
        except DamagedError as error:
            return str(error)


def faults(invariants: Iterable[Invariant[S]], step: S) -> Iterator[tuple[Invariant[S], str]]:
    """Yields the invariants that the step breaks, each with what breaks it."""
    for invariant in invariants:
        fault = invariant.broken(step)
        if fault:
            yield invariant, fault


def unpublished(invariant: Invariant[S], fault: str, version: int) -> StopError:
    """Returns the error for a version that this program must not publish."""
    return StopError(
        f"it would break {invariant.name}: {fault}",
        where=f"version {version}",
        hint=f"nothing was published ({invariant.reason}); report this, with the entries that led to it",
    )
