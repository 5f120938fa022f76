"""Streaming queries without Spark: calls the methods of a source in Spark's order, in one process."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from lakefold_reader.spark.data_source import LakefoldSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_reader.spark.data_source import TableStreamReader


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
        source = pickle.loads(pickle.dumps(source))  # noqa: S301 - as Spark hands it on
        self.reader: TableStreamReader = source.streamReader(schema)
        self.task = pickle.dumps(source.streamReader(schema))

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
        tasks = [pickle.loads(pickle.dumps(partition)) for partition in planned]  # noqa: S301 - as Spark hands them on
        reader = pickle.loads(self.task)  # noqa: S301 - as above
        return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """All batches that there are now."""
        while (rows := self.batch()) is not None:
            yield rows

    def ids(self) -> list[list[int]]:
        """The ids in each batch."""
        return [sorted(row["id"] for row in rows) for rows in self.batches()]
