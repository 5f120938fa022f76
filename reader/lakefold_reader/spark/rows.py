"""Reads the rows of a partition on an executor, and nothing else.

A partition of a version carries the fragments as the manifest has them, so an executor requests only data
files from the store: it lists nothing, does not look for the newest version, and opens the version's manifest
only if a filter or deleted rows need it. A partition of changes carries planned parts of the change feed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_reader.format.changes import Misfits
from lakefold_reader.formats import open_source
from lakefold_reader.spark.types import fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.source import ChangePart, ScanUnit, Schema


@dataclass(frozen=True)
class VersionRows:
    """A version of a table, as a task reads it. Goes from the driver to the executors.

    `schema`: its columns, chosen and in order. `where`: a filter.
    """

    uri: str
    version: int
    schema: Schema
    where: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    format: str = ""

    def read(self, units: Sequence[ScanUnit], target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yields the rows of some pieces of the version in the form of `target`.

        Raises `VersionExpiredError` if the version was cleaned up meanwhile, `DamagedError` if a file of it
        is missing or can't be read, `InvalidError` for values that Spark has no type for.
        """
        source = open_source(self.uri, self.options, self.format)
        for batch in source.format.scan(source, self.version, units, self.schema, self.where):
            yield fitted(batch, target)


@dataclass(frozen=True)
class FeedRows:
    """How every task reads its parts: the table, and the columns that the query was planned with."""

    uri: str
    columns: Schema
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    misfits: Misfits = Misfits.FAIL
    format: str = ""

    def read(self, parts: Sequence[ChangePart], target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yields the rows of some parts in the form of `target`. Raises as `PartReader.read`."""
        source = open_source(self.uri, self.options, self.format)
        reader = source.format.feed.reader(source, self.columns, self.misfits)
        for part in parts:
            for batch in reader.read(part):
                yield fitted(batch, target)
