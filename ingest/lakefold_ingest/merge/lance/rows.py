"""The version of a table that an upsert or a delete is built on: its fragments and its rows.

Rows are read by the reader's scanner, so deleted rows are left out and a scalar index answers a filter if
there is one. Memory is bounded by the size of a batch of rows, not by the table.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lakefold_reader.format.snapshots import RowRange
from lakefold_reader.lance.read_errors import explained, guarded
from lakefold_reader.lance.scan.scan import ADDRESS, ROW_ID, Dataset
from lakefold_reader.lance.snapshot.indices import indices_of
from lakefold_table.bitmaps import Bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.features import Flag
from lakefold_table.lance.rows.deleted_rows import deletion_location
from lakefold_table.lance.rows.deletions import decode_deletions
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.lance.state import LanceState

    Numbers = NDArray[np.uint64]

BATCH_BYTES = 16 * 2**20
"""About how many bytes a batch of scanned rows has."""
MOST_ROWS, FEWEST_ROWS = 2**19, 2**10
"""How many rows are scanned at once, whatever their size."""


class LanceRows:
    """A version of a Lance table, open for finding rows.

    Every call raises `VersionExpiredError` if the version was cleaned up, `DamagedError` if one of its files
    can't be read, `RetryError` if the store can't be reached.
    """

    def __init__(self, source: Source, state: LanceState) -> None:
        self.source = source
        self.state = state
        self._dataset = Dataset(source, state.version, state)

    @property
    def version(self) -> int:
        """The version's number."""
        return self.state.version

    @property
    def stable_row_ids(self) -> bool:
        """Whether a row keeps its id when it is moved to another fragment."""
        return bool(self.state.head.reader_feature_flags & Flag.STABLE_ROW_IDS)

    @property
    def columns(self) -> list[str]:
        """The names of its columns at the top level."""
        return [field.name for field in self.state.head.fields if field.parent_id == TOP]

    @cached_property
    def indexed(self) -> frozenset[str]:
        """The columns with an index that finds rows by their values."""
        infos = indices_of(self.state, self.source.content)
        return frozenset(
            info.columns[0] for info in infos if info.type in {"BTree", "Bitmap"} and len(info.columns) == 1
        )

    def scan(
        self,
        columns: Sequence[str],
        where: str | None = None,
        row_bytes: float = 8.0,
        fragments: Mapping[int, DataFragment] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields these columns, `_rowaddr` and `_rowid` of the rows for which the filter `where` holds.

        `row_bytes`: about how large these columns are in a row; batches are sized by it. `fragments`: those
        that are read, None for all. Raises `InvalidError` if the filter can't be evaluated.
        """
        size = int(min(max(BATCH_BYTES / max(row_bytes, 1.0), FEWEST_ROWS), MOST_ROWS))
        with explained(self.source, self.version):
            reader = self._dataset.reader(
                [*columns, ADDRESS, ROW_ID], where, fragments, RowRange(batch_size=size)
            )
        return guarded(self.source, self.version, reader)

    def rows_at(self, addresses: Numbers, columns: Sequence[str]) -> pa.Table:
        """Returns these columns of the rows at these addresses, which ascend and are not deleted."""
        with explained(self.source, self.version):
            rows = self._dataset.at_addresses(addresses, [*columns, ADDRESS])
        if not np.array_equal(rows.column(ADDRESS).to_numpy(), addresses):
            raise DamagedError(
                f"{addresses.size} rows of version {self.version} were found, but only {rows.num_rows} of "
                "them could be read again",
                where=self.source.uri,
            )
        return rows.drop_columns([ADDRESS])

    def fragments(self, ids: Collection[int]) -> Mapping[int, DataFragment]:
        """Returns the fragments with these ids."""
        return self.state.fragments.get(ids)

    def deleted_rows(self, fragment: DataFragment) -> Bitmap:
        """Returns the offsets of the rows of a fragment that are deleted."""
        location = deletion_location(self.state.head, fragment.id, fragment.deletion_file)
        if not location:
            return Bitmap()
        with explained(self.source, self.version):
            data = self.source.content(location)
            return decode_deletions(fragment.deletion_file, data, fragment.physical_rows, location)
