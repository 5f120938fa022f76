"""The committers of a partition, numbered in the order in which they took over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """The committer that folds a partition: number `generation` of a chain in which each followed the last.

    `chain` names the chain. Generations of different chains can't be compared.
    """

    chain: str
    generation: int

    def precedes(self, other: Owner | None) -> bool:
        """Returns whether the other committer has taken over since."""
        return other is not None and other.chain == self.chain and other.generation > self.generation

    def encode(self) -> str:
        """Returns the owner as a property of a version."""
        return f"{self.chain}/{self.generation}"

    @classmethod
    def decode(cls, text: str) -> Owner:
        """Returns the owner that `encode` was called on. Raises `ValueError`."""
        chain, _, generation = text.rpartition("/")
        return cls(chain, int(generation))
