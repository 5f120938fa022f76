"""The feature flags of a version for people: a number tells nobody whether a client can open it."""

from __future__ import annotations

from dataclasses import dataclass

from lakefold_table.lance.manifests.features import bits_of, meaning


@dataclass(frozen=True, slots=True)
class Feature:
    """One flag: its bit value, what it means, and who must know it."""

    flag: int
    meaning: str
    readers: bool
    writers: bool


def features_of(reader_flags: int, writer_flags: int) -> tuple[Feature, ...]:
    """The flags that are set, ascending."""
    return tuple(
        Feature(flag, meaning(flag), bool(reader_flags & flag), bool(writer_flags & flag))
        for flag in bits_of(reader_flags | writer_flags)
    )
