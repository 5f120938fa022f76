"""The names of the three topics, which every client of the log gets."""

from __future__ import annotations

from dataclasses import dataclass

from lakefold_table.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the three topics. Raises `InvalidError` if two are the same or any is empty."""

    transactions: str = "lakefold.transactions"
    outcomes: str = "lakefold.outcomes"
    dead_letters: str = "lakefold.dead-letters"

    def __post_init__(self) -> None:
        names = (self.transactions, self.outcomes, self.dead_letters)
        if len(set(names)) != len(names) or not all(names):
            raise InvalidError(
                f"the three topics must have different names that are not empty, got {', '.join(names)}"
            )
