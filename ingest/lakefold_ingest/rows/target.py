"""The seam between the rows of a batch and the data files of a table format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakefold_ingest.rows.fitting import Fitting

WrittenFile = Any
"""The description of rows that a format wrote: a `DataFragment` of Lance, an `AddFile` of Delta."""


MAX_ROWS_PER_FILE = 1024 * 1024
MAX_BYTES_PER_FILE = 1024**3


@dataclass(frozen=True, slots=True)
class Target(ABC):
    """Where and how rows become data files; the driver sends it to the executors.

    `uri` is the table's canonical URI. `fitting` makes rows of the table from batches. `storage_options` are
    those of the table's store. A file ends after `max_rows_per_file` rows, or after the batch with which it
    has `max_bytes_per_file` bytes of rows in memory (the file itself is mostly smaller). `file_bytes`: a file
    has about this number of bytes in the store; None: no limit. `keeps_bad_rows`:
    rows that don't fit are left out and reported, with the columns `source_columns`, which no other row
    keeps. `sort_by`: the columns by which the rows of a file are ordered; none: they stay in the order of the
    batch.
    """

    uri: str
    fitting: Fitting
    _: KW_ONLY
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_bytes_per_file: int = MAX_BYTES_PER_FILE
    file_bytes: int | None = None
    keeps_bad_rows: bool = False
    source_columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()

    def with_file_bytes(self, size: int | None) -> Self:
        """Returns the target with files of this size in the store; None: of the size that they have here."""
        return self if size is None else replace(self, file_bytes=size)

    @abstractmethod
    def fitted(self) -> Self:
        """Returns the target for batches that have the table's types already."""

    @abstractmethod
    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
        """Writes rows. Yields what each file holds when the file is durable; no file if there are no rows.

        Raises `InvalidError` if rows don't fit the table, `RetryError` if a file can't be written. Files that
        were written before that remain, but no version names them.
        """

    @abstractmethod
    def writes_like(self, other: Target) -> bool:
        """Returns whether files that were written for the other target are as if written for this one.

        Both are for batches with the same columns, of the same table at two versions.
        """

    @abstractmethod
    def encoded(self, file: WrittenFile) -> bytes:
        """Returns a written file as bytes, which tasks send to the driver."""

    @abstractmethod
    def decoded(self, data: bytes) -> WrittenFile:
        """Returns the written file that `encoded` made these bytes of."""

    @abstractmethod
    def paths(self, file: WrittenFile) -> Iterable[str]:
        """Returns the paths of the data files below the table's root."""
