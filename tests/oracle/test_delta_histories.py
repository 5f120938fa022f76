"""Random histories of a Delta table, by committers and by delta-rs (`tests/delta_logs/histories.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.delta_logs.histories import History, check_checkpoints, check_replay
from tests.oracle.test_delta_rs import check_same

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

SEEDS = range(6)
STEPS = 18
INDEXED = "delta.dataSkippingNumIndexedCols"


class HistoryWithDeltaRs(History):
    """The other client is delta-rs."""

    @property
    def theirs(self) -> DeltaTable:
        return DeltaTable(self.path)

    def their_steps(self) -> list[Callable[[], object]]:
        return [
            self.append_theirs,
            self.append_theirs,
            self.delete_theirs,
            self.overwrite_theirs,
            self.compact_theirs,
            self.checkpoint_theirs,
            lambda: self.theirs.alter.set_table_properties({INDEXED: str(self.random.randint(1, 9))}),
        ]

    def append_theirs(self) -> None:
        write_deltalake(self.path, pa.table({"x": pa.array(self.new_rows(), pa.int64())}), mode="append")

    def delete_theirs(self) -> None:
        value = self.random.randint(0, 9)
        self.theirs.delete(f"x = {value}")
        self.rows[value] = 0

    def overwrite_theirs(self) -> None:
        self.rows.clear()
        write_deltalake(self.path, pa.table({"x": pa.array(self.new_rows(), pa.int64())}), mode="overwrite")

    def compact_theirs(self) -> None:
        self.theirs.optimize.compact()

    def checkpoint_theirs(self) -> None:
        self.theirs.create_checkpoint()

    def their_rows(self) -> list[int]:
        rows = QueryBuilder().register("t", self.theirs).execute("select x from t").read_all()
        return sorted(pa.table(rows)["x"].to_pylist())

    def check_state(self, ours: DeltaSnapshot) -> None:
        check_same(ours, self.theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_of_committers_and_delta_rs_is_what_the_model_says(tmp_path: Path, seed: int) -> None:
    history = HistoryWithDeltaRs(tmp_path / "t", seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    check_replay(history)
    check_checkpoints(history)
