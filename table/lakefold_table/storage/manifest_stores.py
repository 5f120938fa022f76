"""What an external manifest store must be able to do, and what it says of a version.

Small, so that each can be proven: `dynamodb` is the one that Lance clients know; tests have one in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakefold_table.lance.manifests.naming import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.storage.base import Put


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a manifest store says of one version.

    `path`: where its manifest lies, from the bucket's root on. `size`: of the manifest in bytes, None where
    it isn't told, as by old clients.
    """

    version: int
    path: str
    size: int | None

    @property
    def is_final(self) -> bool:
        """Whether the manifest is where it stays; else the version is to be finished."""
        return self.path.endswith(SUFFIX)


class ManifestStore(Protocol):
    """Which manifest is which version of which table; a read sees every write that ended before it.

    `base`: the path of a table, or of a branch of it, from the bucket's root on. Every call raises
    `RetryError` where the store can't be reached or answers with a passing fault, `InvalidError` where it
    refuses for good, `DamagedError` where what it holds can't be such a record.
    """

    def put_if_absent(self, base: str, recorded: Recorded) -> Put:
        """Record a version that isn't recorded. Raises `DoubtfulPutError` where the answer was lost."""
        ...

    def put_if_there(self, base: str, recorded: Recorded) -> bool:
        """Record a version anew; False, and nothing is done, where it isn't recorded."""
        ...

    def get(self, base: str, version: int) -> Recorded | None:
        """What is recorded of a version."""
        ...

    def newest(self, base: str) -> Iterator[Recorded]:
        """What is recorded of the table's versions, the newest first; without detached ones."""
        ...

    def forget(self, base: str) -> None:
        """Remove all that is recorded of the table, detached versions too; the others' newest last."""
        ...
