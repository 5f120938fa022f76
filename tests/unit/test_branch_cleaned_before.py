"""What a killed clean-up of a branch has announced ends with the branch, whose name may be taken again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Committed
from lakefold_table.versions.version_removals import VersionRemovals
from tests.unit.test_deleted_branches import deletion, dev, remove, result, store

if TYPE_CHECKING:
    from tests.memory_storage import MemoryStorage

__all__ = ["store"]


def test_nothing_of_a_killed_clean_up_counts_for_a_branch_of_the_same_name(store: MemoryStorage) -> None:
    """It had removed these versions, and died before it withdrew its announcement."""
    removals, gone = VersionRemovals(store), [50, 51]
    for branch in ("dev", ""):
        assert removals.begin(removals.announce(branch, gone), branch, gone)
    assert isinstance(result(dev(), deletion(), 4), Committed)
    remove()
    assert not removals.begun("dev")
    assert sorted(removals.begun("")) == gone
