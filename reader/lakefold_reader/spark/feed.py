"""Parts of a change feed as the tasks of Spark read them, and how the first of them is found.

A table's whole content at a version goes the same way: as inserts of all its rows. So a query that begins
with the content and goes on with the changes has one form of rows, and one way to read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.feed.parts import ChangePart, Misfits
from lakefold_reader.feed.plan import plan_version
from lakefold_reader.snapshot.snapshot import version_as_of
from lakefold_reader.spark.options import EARLIEST, LATEST
from lakefold_reader.spark.partitions import ROW_BYTES, grouped, size_of
from lakefold_reader.spark.types import fitted
from lakefold_reader.versions.source import numbers_of, open_source, time_of
from lakefold_reader.versions.stray_files import missing, oldest_of
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.scan.columns import TableSchema
    from lakefold_reader.spark.options import Given
    from lakefold_reader.spark.partitions import Cut
    from lakefold_reader.versions.source import Source

Task = tuple[ChangePart, ...]
"""What one task reads."""


@dataclass(frozen=True)
class FeedRows:
    """How every task reads its parts: the table, and the columns that the query was planned with."""

    uri: str
    columns: TableSchema
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    misfits: Misfits = Misfits.FAIL

    def read(self, parts: Sequence[ChangePart], target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of some parts in the form of `target`. Raises as `PartReader.read`."""
        from lakefold_reader.feed.rows import PartReader

        reader = PartReader(open_source(self.uri, self.options), self.columns, self.misfits)
        for part in parts:
            for batch in reader.read(part):
                yield fitted(batch, target)


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a read of changes begins: behind `after`; `whole`: with its whole content."""

    after: int
    whole: bool = False


def begin(source: Source, given: Given) -> Begin | None:
    """The start that the user asked for, None where none is. Raises `InvalidError`, `VersionExpiredError`."""
    version, moment = given.value("startingVersion"), given.value("startingTimestamp")
    if moment is not None:
        return Begin(_before(source, moment))
    if version is None:
        return None
    numbers = numbers_of(source)
    if version == EARLIEST:
        return Begin(oldest_of(source), whole=True)
    if version == LATEST:
        return Begin(numbers[-1])
    if version > numbers[-1] + 1:
        raise missing(source, version)
    return Begin(max(0, version - 1))


def _before(source: Source, moment: int) -> int:
    """The version before the first one of this time or later."""
    newest = numbers_of(source)[-1]
    try:
        seen = version_as_of(source, moment - 1)
    except VersionExpiredError:
        raise
    except InvalidError:
        return 0
    if seen == newest:
        hint = 'give an earlier time; startingVersion "latest" reads what comes after the start'
        message = f"the newest version, {newest}, is older than {time_of(moment)}"
        raise InvalidError(message, where="startingTimestamp", hint=hint)
    return seen


def content(source: Source, version: int, to: int) -> list[ChangePart]:
    """A version's whole content as inserts in the shape of version `to`. Raises `VersionExpiredError`."""
    return list(plan_version(source, version, whole=True, to=to))


def weight(part: ChangePart) -> tuple[int, int]:
    """The rows of a part, and the bytes of data files that they are."""
    fragment = DataFragment.FromString(part.fragment)
    rows = fragment.physical_rows if part.rows is None else part.rows
    held = fragment.physical_rows
    return rows, size_of(fragment) * rows // held if held else rows * ROW_BYTES


def tasks(parts: Sequence[ChangePart], cut: Cut) -> list[Task]:
    """The parts in their order, neighbours together."""
    return grouped(parts, lambda part: weight(part)[1], cut)
