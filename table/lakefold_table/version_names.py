"""How a format names the files of versions: values that stores and `versions` get from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Naming(Protocol):
    """How a table names the files of its versions."""

    def path(self, version: int) -> str:
        """Returns the path of a version's file."""

    def parse(self, name: str) -> int | None:
        """Returns the version that a file name denotes, None for other files."""


@dataclass(frozen=True, slots=True)
class ManifestNaming:
    """The names of versions in a format whose versions an external manifest store can commit.

    `folder`, `suffix`: of their files. `version_of`: the version that a file name denotes, None for other
    files. `first_detached`: versions from this number on are not part of a table's sequence of versions.
    """

    folder: str
    suffix: str
    version_of: Callable[[str], int | None]
    first_detached: int
