"""How much a step of a reader may take, decided before any data is read.

A reader that takes steps (a micro-batch, a job every minute) limits what a step may cost. What a version
costs is known from its transaction: the rows and bytes of the fragments that it adds, and the rows that it
deleted if a committer recorded them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError
from lakefold_table.whole import integer

if TYPE_CHECKING:
    from lakefold_reader.format.changes import Weight

LONGEST: Final = 10_000
"""No step takes more versions, so that its memory is bounded even if no limit was set."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The most that a step takes: versions, rows, bytes of data files; None: no limit of that kind.

    A step takes at least one version, however large, so that a reader always makes progress.
    """

    max_versions: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_versions", "max_rows", "max_bytes"):
            value = getattr(self, name)
            number = integer(value)
            if value is not None and (number is None or number < 1):
                hint = "it is a whole number from 1 on; leave it out for no limit"
                raise InvalidError(f"{name} is {value!r}", hint=hint)
            object.__setattr__(self, name, number)

    @property
    def weighs(self) -> bool:
        """Whether rows or bytes are limited, so that the weight of each version is needed."""
        return self.max_rows is not None or self.max_bytes is not None

    def admit(self, versions: int, weight: Weight) -> bool:
        """Returns whether this many versions with this weight in all are within the limits."""
        return (
            versions <= min(LONGEST, self.max_versions or LONGEST)
            and (self.max_rows is None or weight.rows <= self.max_rows)
            and (self.max_bytes is None or weight.bytes <= self.max_bytes)
        )
