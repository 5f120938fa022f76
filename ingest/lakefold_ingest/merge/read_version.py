"""The version of a table that an upsert or a delete is built on: how rows are found in it and changed.

A row of a version has an address: the upper 32 bits are the number of its fragment or file in this version,
the lower ones its position in there. What is written is a *part*: an envelope with nothing but the new files,
the rows that are deleted or moved, and what is said of inserted keys. Several parts, which several processes
may have written, become one proposal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import pyarrow as pa

from lakefold_ingest.rows.fitting import plain_field
from lakefold_table.bitmaps import Bitmap, bitmap_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.merge_batch import MergeBatch
    from lakefold_ingest.merge.row_changes import FoundRows, RowChanges
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_protos.lakefold.log_pb2 import Envelope

    Numbers = NDArray[np.uint64]

Name = TypeVar("Name", int, str)
ADDRESS, ROW_ID = "_rowaddr", "_rowid"
"""The columns of a scan with the addresses and the ids of its rows, called as pylance calls them."""
OFFSET_WIDTH, OFFSET_BITS = 32, 0xFFFFFFFF
"""The lower half of an address is the row's position."""


@dataclass(frozen=True, slots=True)
class Rematch:
    """The matched rows of a version. `is_same`: they are those of the older version, with the same values."""

    matched: FoundRows
    is_same: bool


class ReadVersion(ABC):
    """A version of a table, open for finding rows.

    Every call raises `VersionExpiredError` if the version was cleaned up, `DamagedError` if one of its files
    can't be read, `RetryError` if the store can't be reached.
    """

    @property
    @abstractmethod
    def version(self) -> int:
        """The version's number."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of its columns at the top level."""

    @abstractmethod
    def scan_all(self, columns: Sequence[str], row_bytes: float) -> Iterator[pa.RecordBatch]:
        """Yields these columns, `_rowaddr` and `_rowid` of all rows.

        `row_bytes`: about how large these columns are in a row; batches are sized by it.
        """

    @abstractmethod
    def candidates(self, keys: BatchKeys, row_bytes: float) -> Iterator[pa.RecordBatch]:
        """Yields batches with at least all rows whose key is in the batch; some may come twice."""

    @abstractmethod
    def rows_where(self, where: str) -> Numbers:
        """Returns the addresses of the rows for which `where` holds, ascending.

        Raises `InvalidError` if it can't be evaluated.
        """

    @abstractmethod
    def rows_at(self, addresses: Numbers, columns: Sequence[str]) -> pa.Table:
        """Returns these columns of the rows at these addresses, which ascend and are not deleted."""

    @abstractmethod
    def matched_again(self, before: ReadVersion, keys: BatchKeys, matched: FoundRows) -> Rematch | None:
        """Returns the rows whose key is in the batch by those of an older version, `before`.

        Only what changed in between is read. Returns None if the two have other columns.
        """

    @abstractmethod
    def write(self, target: Target, batch: MergeBatch, changes: RowChanges) -> Envelope:
        """Writes the new rows. Returns the part. If it fails, it removes the files that it wrote.

        Raises `InvalidError` if a value doesn't fit the table.
        """

    @abstractmethod
    def written(self, part: Envelope) -> Sequence[WrittenFile]:
        """Returns the files that a part has written."""

    @abstractmethod
    def proposal(
        self, target: Target, key: Key, parts: Sequence[Envelope], names: Sequence[str]
    ) -> Envelope | None:
        """Returns the proposal of all parts. Returns None if no row changes. `names`: the key columns.

        Writes the files that say which rows are deleted. Raises `InvalidError` if two parts change one row.
        """

    @abstractmethod
    def deletion(self, target: Target, key: Key, addresses: Numbers, predicate: str) -> Envelope:
        """Returns the proposal that deletes rows. `predicate` describes them."""


def column_of(batch: pa.RecordBatch, name: str) -> Numbers:
    """Returns `_rowaddr` or `_rowid` of a scanned batch."""
    return cast("Numbers", batch.column(name).to_numpy(zero_copy_only=False).astype(np.uint64))


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Returns a table's schema in storage types."""
    return pa.schema([plain_field(field) for field in schema], schema.metadata)


def offsets_by_number(addresses: Numbers) -> dict[int, Bitmap]:
    """Returns the positions of these addresses, which ascend, by the number of their fragment or file."""
    numbers, starts = np.unique(addresses >> np.uint64(OFFSET_WIDTH), return_index=True)
    parts = np.split((addresses & np.uint64(OFFSET_BITS)).astype(np.uint32), starts[1:])
    return {int(number): bitmap_of(part) for number, part in zip(numbers, parts, strict=False)}


def united_rows(parts: Iterable[Mapping[Name, Bitmap]], noun: str, where: str) -> dict[Name, Bitmap]:
    """Returns the rows that all parts delete or move, by fragment or file (`noun`).

    Raises `InvalidError` if two have the same.
    """
    rows: dict[Name, Bitmap] = {}
    for part in parts:
        for name, offsets in part.items():
            others = rows.get(name, Bitmap())
            if others & offsets:
                raise InvalidError(
                    f"rows of {noun} {name} have a key that two parts of the batch had",
                    where=where,
                    hint="run the batch again: the types of the key columns may have changed meanwhile",
                )
            rows[name] = others | offsets
    return rows
