"""Streaming queries without Spark: calls the methods of a source in Spark's order, in one process."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from lakefold_reader.spark.data_source import LakefoldSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_reader.spark.data_source import TableStreamReader


def pickled(content: object) -> bytes:
    """What Spark sends to its other processes."""
    sent: bytes = cloudpickle.dumps(content)  # type: ignore[no-untyped-call] # pyspark gives it no types
    return sent


def copied(content: object) -> Any:  # noqa: ANN401 - of the same type
    """What another process of Spark gets."""
    return pickle.loads(pickled(content))  # noqa: S301 - as Spark hands it on


class Query:
    """A streaming query with its checkpoint, as Spark runs it."""

    def __init__(self, path: str | Path, **options: str | int) -> None:
        self.options = {"path": str(path), **{name: str(value) for name, value in options.items()}}
        self.offsets: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        """Begins, or continues from the checkpoint, in a new process."""
        source = LakefoldSource(self.options)
        schema = source.schema()
        source = copied(source)
        self.reader: TableStreamReader = source.streamReader(schema)
        self.task = pickled(source.streamReader(schema))

    def batch(self) -> list[dict[str, Any]] | None:
        """The rows of the next batch. Returns None if there is no next batch."""
        if not self.offsets:
            self.offsets.append(json.loads(json.dumps(self.reader.initialOffset())))
        end = self.reader.latestOffset(self.offsets[-1], self.reader.getDefaultReadLimit())
        if end == self.offsets[-1]:
            return None
        self.offsets.append(json.loads(json.dumps(end)))
        return self.last()

    def last(self) -> list[dict[str, Any]]:
        """The rows of the last batch, planned and read again."""
        planned = self.reader.partitions(*self.offsets[-2:])
        tasks = [copied(partition) for partition in planned]
        reader = pickle.loads(self.task)  # noqa: S301 - as executors do
        return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """All batches that there are now."""
        while (rows := self.batch()) is not None:
            yield rows

    def ids(self) -> list[list[int]]:
        """The ids in each batch."""
        return [sorted(row["id"] for row in rows) for rows in self.batches()]
