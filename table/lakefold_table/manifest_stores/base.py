"""The operations of an external manifest store, and the record of a version in it.

It is small, so that each implementation can be verified: `dynamodb` is the store that Lance clients know;
tests have a store in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.storage.base import Put

MANIFESTS: Final = BUILT_IN.manifests
"""How the versions are named: only Lance clients know such stores (decision 0028)."""


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """The record of a version in a manifest store.

    `path`: the path of its manifest, from the bucket's root on. `size`: of the manifest in bytes, None if it
    isn't recorded, as by old clients.
    """

    version: int
    path: str
    size: int | None

    @property
    def is_final(self) -> bool:
        """Whether the manifest has its final name; otherwise the version is still to be finalized."""
        return self.path.endswith(MANIFESTS.suffix)


class ManifestStore(Protocol):
    """Records which manifest is the file of a version. A read sees every write that ended before it.

    `base`: the path of a table, or of a branch of it, from the bucket's root on. Every call raises
    `RetryError` if the store can't be reached or reports a fault that may pass, `InvalidError` if it refuses
    for good, `DamagedError` if what it holds is not such a record.
    """

    def put_if_absent(self, base: str, recorded: ManifestRecord) -> Put:
        """Records a version that isn't recorded. Raises `DoubtfulPutError` if the answer was lost."""

    def put_if_present(self, base: str, recorded: ManifestRecord) -> bool:
        """Replaces the record of a version. Does nothing and returns False if the version isn't recorded."""

    def get(self, base: str, version: int) -> ManifestRecord | None:
        """Returns the record of a version, or None."""

    def newest(self, base: str) -> Iterator[ManifestRecord]:
        """Yields the records of the table's versions, the newest first, without detached versions."""

    def forget(self, base: str) -> None:
        """Removes all records of the table, those of detached versions too.

        The newest other version is last.
        """
