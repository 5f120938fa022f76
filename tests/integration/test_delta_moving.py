"""adopt, rebind, detach and drop of Delta tables on a real log.

Promises: positions-never-go-back, dropped-by-a-version (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefold_protos.lakefold.log_pb2 import Envelope
from tests.delta_logs.actions import PROTOCOL, data_file, metadata, text
from tests.integration.own_log import OwnLog
from tests.integration.stage import Stage
from tests.integration.test_moving_verbs import Verbs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


class DeltaStage(Stage):
    """A stage whose table is one of Delta: a batch is a file with one row."""

    def created(self) -> Envelope:
        """Creates the table."""
        envelope = Envelope(table=self.uri)
        envelope.delta.actions = text([PROTOCOL, metadata()])
        return envelope

    def batch(self, number: int, read: int = 1) -> Envelope:
        """A row, whose value is the batch's number. It depends on no version."""
        del read
        envelope = Envelope(table=self.uri, app_id="app", batch_id=number)
        envelope.delta.actions = text([data_file(self.path, f"{number}.parquet", number)])
        return envelope

    def begin(self, *batches: int) -> None:
        """The table, with these batches folded into it singly."""
        self.send(self.created())
        self.fold()
        for number in batches:
            self.send(self.batch(number))
            self.fold()

    def rows(self) -> list[int]:
        """The rows as delta-rs reads them."""
        return sorted(pa.table(DeltaTable(str(self.path)).to_pyarrow_table())["x"].to_pylist())


@pytest.fixture
def stage(bootstrap: str, topic_names: TopicNames, tmp_path: Path) -> DeltaStage:
    return DeltaStage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names, partitions=2), tmp_path)


@pytest.fixture
def verbs(stage: DeltaStage) -> Verbs:
    return Verbs(stage)


def test_a_delta_table_goes_on_in_another_partition(stage: DeltaStage, verbs: Verbs) -> None:
    stage.begin(1)
    stage.send(stage.batch(2))
    assert "0@2 waits for this table" in verbs.refused("rebind", "--partition", "1")
    stage.fold()
    (document,) = verbs("rebind", "--partition", "1")
    assert (document["why"], document["before"]["partition"], document["after"]["partition"]) == (
        "rebound",
        0,
        1,
    )
    stage.send(stage.batch(3))
    stage.send(stage.batch(2), stage.batch(4), partition=1)
    assert stage.fold() == {"invalid": 1, "duplicate": 1, "committed": 1, "versions": 1}
    assert stage.rows() == [1, 2, 4]
    verdicts = stage.replay()
    assert [verdicts[version] for version in (1, 2, 3, 4)] == ["same", "same", "moved", "same"]


def test_a_delta_table_is_detached_adopted_and_dropped(stage: DeltaStage, verbs: Verbs) -> None:
    stage.begin(1)
    assert "bound to" in verbs.refused("adopt")
    assert "`lakefold detach` first" in verbs.refused("drop", "--yes")
    stage.send(stage.batch(2))
    assert "waits for this table" in verbs.refused("detach")
    (document,) = verbs("detach", "--unanswered")
    assert (document["why"], document["after"]) == ("detached", None)
    assert stage.fold() == {"invalid": 1}
    # Another client writes while the table is bound to no log.
    write_deltalake(str(stage.path), pa.table({"x": pa.array([50], pa.int64())}), mode="append")
    (document,) = verbs("adopt", "--partition", "0")
    assert (document["why"], document["after"]["offset"]) == ("adopted", 2)
    stage.send(stage.batch(2), stage.batch(1))
    assert stage.fold() == {"duplicate": 1, "committed": 1, "versions": 1}
    assert stage.rows() == [1, 2, 50]
    late = stage.batch(3)
    verbs("detach")
    assert "the table is bound to no log" in verbs.refused("detach")
    verbs("drop", "--yes")
    assert not stage.path.exists()
    assert not list(stage.root.glob("*.dropped"))
    stage.send(late, stage.created())
    assert stage.fold() == {"invalid": 1, "committed": 1, "versions": 1}
    assert DeltaTable(str(stage.path)).version() == 0


def test_a_delta_table_of_another_client_is_bound_by_its_first_proposal(
    stage: DeltaStage, verbs: Verbs
) -> None:
    write_deltalake(str(stage.path), pa.table({"x": pa.array([7, 8], pa.int64())}))
    stage.send(stage.batch(1))
    assert stage.fold() == {"committed": 1, "versions": 1}
    assert "bound to" in verbs.refused("adopt")
    stage.send(stage.batch(1), stage.batch(2))
    assert stage.fold() == {"duplicate": 1, "committed": 1, "versions": 1}
    assert stage.rows() == [1, 2, 7, 8]
