"""Values that are made for each entry of the log: cheap to make, and never changed.

A frozen dataclass sets each of its fields by a call of its own, which takes five times as long as a plain
one's; where a committer makes six such values for an entry that was a tenth of all its work. That nobody
changes them is for the type checker to hold: to it they are frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, order: bool = False) -> Callable[[type[T]], type[T]]:
    """Makes a class a dataclass with slots that compares and hashes by what it holds."""
    return dataclass(slots=True, order=order, unsafe_hash=True)


def uuid_form(digest: str) -> str:
    """The first 128 bits of a hexadecimal digest, written as a UUID is."""
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
