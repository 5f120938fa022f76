"""Events that Spark's tasks apply leave the rows of their history, however Spark mixes their rows."""

from __future__ import annotations

import random
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

from lakefold_ingest.merge.lance import key_ranges
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.keyed_parts import KeyedParts, MergedPart
from lakefold_ingest.spark.keyed_tasks import KEY_NUMBER, _merge_rows, _number_rows
from tests.change_events import FORMATS, TABLE, debezium_history
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakefold_ingest.operations.keyed_parts import MergeTask

PARTITIONS, WORKERS = 4, 2
MESSAGES = pa.schema({"key": pa.binary(), "value": pa.binary()})


def cut(rows: pa.Table, chosen: random.Random) -> Iterator[pa.RecordBatch]:
    """The rows in batches of some size."""
    size = chosen.choice([1, 7, 10_000])
    return iter(rows.combine_chunks().to_batches(max_chunksize=size))


class Tasks:
    """What Spark does with the rows of a batch: it mixes them, and gives the tasks to two processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chosen: random.Random) -> None:
        self._monkeypatch = monkeypatch
        self._chosen = chosen
        # The key ranges of fragments that each process remembers.
        self._memories: list[OrderedDict[Any, Any]] = [OrderedDict() for _ in range(WORKERS)]

    def operation(self, partitions: Sequence[pa.Table]) -> KeyedParts:
        def run(task: MergeTask) -> Iterator[MergedPart]:
            numbered = []
            for number, rows in enumerate(partitions):
                context = Mock(partitionId=Mock(return_value=number))
                self._monkeypatch.setattr(TaskContext, "get", Mock(return_value=context))
                numbered += list(_number_rows(task, MESSAGES, cut(rows, self._chosen)))
            rows = pa.Table.from_batches(numbered)
            mixed = rows.take(pa.array(self._chosen.sample(range(rows.num_rows), rows.num_rows)))
            tasks = self._chosen.choice([2, 3, 5])
            shares = np.asarray(mixed[KEY_NUMBER]) % tasks
            for number in range(tasks):
                self._monkeypatch.setattr(key_ranges, "_known", self._chosen.choice(self._memories))
                share = mixed.filter(pa.array(shares == number))
                for merged in _merge_rows(task, MESSAGES, cut(share, self._chosen)):
                    (row,) = merged.to_pylist()
                    assert row["fault"] is None
                    yield MergedPart(row["part"], row["bad_rows"])

        return KeyedParts(ApplyChanges(MESSAGES.empty_table(), FORMATS["debezium json"]), run)


@pytest.mark.parametrize("seed", range(3))
def test_events_in_tasks_leave_the_rows_of_their_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    tasks = Tasks(monkeypatch, chosen)
    messages, rows = debezium_history(seed)
    lance.write_dataset(TABLE.empty_table(), str(tmp_path / "t"), enable_stable_row_ids=bool(seed % 2))
    folding = Folding(tmp_path / "t")
    waiting = [
        [message for message in messages if zlib.crc32(message[0].encode()) % PARTITIONS == number]
        for number in range(PARTITIONS)
    ]
    while any(waiting):
        partitions = []
        for number, messages in enumerate(waiting):
            size = chosen.randrange(60)
            taken, waiting[number] = messages[:size], messages[size:]
            columns = [pa.array([message[index] for message in taken], pa.binary()) for index in range(2)]
            partitions.append(pa.table(columns, schema=MESSAGES))
        if any(part.num_rows for part in partitions):
            folding.put(tasks.operation(partitions))
    assert {row["id"]: (row["at"], row["name"]) for row in folding.rows()} == rows
