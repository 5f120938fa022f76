"""The seam between the rows of a batch and the data files of a table format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    import pyarrow as pa

    from lakefold_ingest.rows.fitting import Fitting

WrittenFile = Any
"""What a format says of rows that it wrote: a `DataFragment` of Lance, an `AddFile` of Delta."""


class Target(Protocol):
    """Where and how rows become data files; the driver sends it to the executors.

    `uri` is the table's canonical URI. `keeps_bad_rows`: rows that don't fit are left out and reported.
    """

    @property
    def uri(self) -> str:
        """The table's canonical URI."""
        ...

    @property
    def fitting(self) -> Fitting:
        """How batches become rows of the table."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options of the table's store."""
        ...

    @property
    def keeps_bad_rows(self) -> bool:
        """Whether rows that don't fit are left out and reported."""
        ...

    def fitted(self) -> Self:
        """Returns the target for batches that have the table's types already."""
        ...

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
        """Writes rows. Yields what each file holds when the file is durable; no file if there are no rows.

        Raises `InvalidError` if rows don't fit the table, `RetryError` if a file can't be written. Files that
        were written before that remain, but no version names them.
        """
        ...

    def encoded(self, file: WrittenFile) -> bytes:
        """Returns a written file as bytes, which tasks send to the driver."""
        ...

    def decoded(self, data: bytes) -> WrittenFile:
        """Returns the written file that `encoded` made these bytes of."""
        ...

    def paths(self, file: WrittenFile) -> Iterable[str]:
        """Returns the paths of the data files below the table's root."""
        ...
