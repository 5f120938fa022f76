"""A foreign client's clock is not the log's: it must not make the table forget what was folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance

from lakefold_table.entry import Duplicate
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from tests.proposals import append, rows
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path


def test_a_foreign_commit_years_after_the_log_leaves_the_batches_known(tmp_path: Path) -> None:
    table = Folded(open_storage(canonical(tmp_path / "table")))
    batch = append(table.uri, rows([1]), 1, "app", 0)
    table.fold(batch)
    lance.write_dataset(rows([2]), str(tmp_path / "table"), mode="append")
    table.fold(append(table.uri, rows([3]), 3, "other", 0))

    again = table.owned.fold([table.entry(batch)]).outcomes[0]

    assert again.result == Duplicate(2)
