"""Four times as many columns take four times as long: no column is looked for among all others.

Such a search takes no step of the interpreter (`name in names`), so seconds of CPU are compared here.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.rows.row_source import RowSource
from tests.delta_merging import DeltaFolding
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FEW, MANY = 400, 1_600
MOST = 9
"""How many times as long it may take: four times by the columns. If each is looked for among all, 16."""
TIMES = 2
"""So often each is measured, and the quickest counts."""


def rows(columns: int, *ids: int, text: str = "x") -> pa.Table:
    named = {f"column_{number}": pa.array([number] * len(ids), pa.int64()) for number in range(columns - 2)}
    return pa.table(
        {"id": pa.array(ids, pa.int64()), **named, "text": pa.array([text] * len(ids), pa.string())}
    )


class Wide:
    """A table of so many columns, and what is done with it."""

    def __init__(self, kind: type[Folding | DeltaFolding], path: Path, columns: int) -> None:
        self.columns, self.path = columns, path
        self._folding = kind(path)
        if isinstance(self._folding, DeltaFolding):
            self._folding.create(rows(columns).schema, {"delta.enableDeletionVectors": "true"})
        else:
            lance.write_dataset(rows(columns, 0), path)
        self._ids = iter(range(1, 100))
        self.append()

    def append(self) -> None:
        number = next(self._ids)
        assert self._folding.put(append_source(RowSource(rows(self.columns, number, number + 1000))))

    def upsert(self) -> None:
        changed = rows(self.columns, 1, 2000, text=f"after {next(self._ids)}")
        assert self._folding.put(UpsertRows(changed, Merge(("id",))))

    def read(self) -> None:
        assert lakefold.open(self.path).to_arrow().num_columns == self.columns

    def changes(self) -> None:
        version = lakefold.open(self.path).version
        assert lakefold.changes(self.path, version - 1).read_all().num_rows


def seconds(act: Callable[[], None]) -> float:
    """How long the quickest time takes, in seconds of CPU."""
    taken = []
    act()
    for _ in range(TIMES):
        started = time.process_time()
        act()
        taken.append(time.process_time() - started)
    return min(taken)


@pytest.mark.parametrize("kind", [DeltaFolding, Folding], ids=["delta", "lance"])
def test_four_times_as_many_columns_take_four_times_as_long(
    kind: type[Folding | DeltaFolding], tmp_path: Path
) -> None:
    few, many = Wide(kind, tmp_path / "few", FEW), Wide(kind, tmp_path / "many", MANY)
    times = {
        door.__name__: seconds(partial(door, many)) / seconds(partial(door, few))
        for door in (Wide.append, Wide.upsert, Wide.read, Wide.changes)
    }
    assert max(times.values()) < MOST, times
