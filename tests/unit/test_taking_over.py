"""The tables show who took a partition over: its predecessor continues with none of them."""

from __future__ import annotations

import pytest

from lakefold_committer.recovery.recovery_context import RecoveryContext
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed
from lakefold_table.errors import FencedError
from lakefold_table.marks.owner import Owner
from lakefold_table.versions.stored_table import StoredTable
from tests.folding import FORMAT, LOG, creation, versions_at
from tests.unit.test_table_writer import HERE, begun, fold_one, here, named, rows, store

__all__ = ["store"]


def owned_by(generation: int, chain: str = "row") -> TableWriter:
    """The table as the `generation`-th committer of a row opens it."""
    recovery = RecoveryContext(LOG, lambda: 1000, owner=Owner(chain, generation))
    return TableWriter(StoredTable(FORMAT, versions_at(HERE)), check_sizes=False, recovery=recovery)


@pytest.mark.usefixtures("store")
def test_a_committer_that_was_replaced_opens_no_table_of_its_successor() -> None:
    """Though it opens the table last: what the other committer refused meanwhile stays refused."""
    first = owned_by(1)
    fold_one(first, here(creation()), 0)
    assert isinstance(fold_one(owned_by(2), named("f"), 1), Committed)
    with pytest.raises(FencedError, match="committer number 2 of the partition, and this one has number 1"):
        owned_by(1)
    with pytest.raises(FencedError, match="committer number 2"):
        fold_one(first, named("g"), 2)
    assert isinstance(fold_one(owned_by(1, "another row"), named("g"), 2), Committed)
    assert rows() == ["f", "g"]


@pytest.mark.usefixtures("store")
def test_two_that_open_a_table_at_once_never_take_each_others_version_for_their_own() -> None:
    begun()
    older, newer = owned_by(1), owned_by(2)
    assert isinstance(fold_one(older, named("f"), 1), Committed)
    assert isinstance(fold_one(newer, named("f"), 1), Committed)
    assert newer.table.marks.owner == Owner("row", 2)
    assert (newer.table.version, rows()) == (3, ["f"])
    with pytest.raises(FencedError):
        fold_one(older, named("g"), 2)
