"""Indices find all rows while others compact and optimise a table between ours (decisions 0113 and 0114)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.process import Client
from tests.oracle.index_kinds import indexed_table, wrong
from tests.oracle.test_true_indices import History

if TYPE_CHECKING:
    from pathlib import Path


STEPS = 8


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["lancedb-0.40.0", "pylance-14.0.2"])
def test_an_index_of_each_kind_finds_all_rows_beside_compactions_of_another_client(
    name: str, tmp_path: Path
) -> None:
    history = History(indexed_table(tmp_path / "t.lance"), seed=3)
    done: list[str] = []
    with Client(name, str(history.table)) as client:
        for _ in range(STEPS):
            done.append(history.act())
            client.do("optimize")
            assert wrong(history.table) == {}, done
    assert "compact" in done
