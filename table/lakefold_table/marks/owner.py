"""Who folds a partition, in the row of all who did: so that nobody takes a predecessor for the owner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """Who folds a partition: the `generation`-th committer in a row, of which each took over from the last.

    `chain` names the row; generations of two rows say nothing about each other.
    """

    chain: str
    generation: int

    def precedes(self, other: Owner | None) -> bool:
        """Whether the other one has taken over since."""
        return other is not None and other.chain == self.chain and other.generation > self.generation

    def encode(self) -> str:
        """As a property of a version."""
        return f"{self.chain}/{self.generation}"

    @classmethod
    def decode(cls, text: str) -> Owner:
        """What `encode` gave. Raises `ValueError`."""
        chain, _, generation = text.rpartition("/")
        return cls(chain, int(generation))
