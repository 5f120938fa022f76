"""The rows that one version of a table has more often than another: what differs, without equal rows.

Files that only one version has may have equal rows: a compaction, a rewritten file, a row that came and went.
Such rows are set against each other, however often each side has them, and the others remain.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_reader.format.changes import ChangeType, MisfitError, Misfits, Rewritten
from lakefold_reader.format.feed_rows import CHANGE_FIELDS
from lakefold_reader.format.value_numbers import joined, paired, value_numbers
from lakefold_reader.row_stream import row_stream
from lakefold_table.errors import InvalidError, OptionName, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_reader.format.source import BranchVersion, ChangePart, PartReader, VersionDifference

DIFFERENCE: Final = pa.field("_difference", pa.string(), nullable=False)
"""The column that says on which side a row is: `added` or `removed`."""
ADDED, REMOVED = "added", "removed"
BYTES_OF_VERSION: Final = 1 << 20
"""About how many bytes of data files are read in the time in which one version's changes are planned."""
BYTES_AT_ONCE: Final = 1 << 26
"""The bytes of data files whose rows are compared with all columns at once, else column by column."""
_REMOVALS: Final = frozenset({ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE})


class DifferingRows:
    """The rows that differ between two versions. Nothing is read before it is requested.

    `is_swapped`: what the later version has more is shown as removed.
    """

    def __init__(
        self,
        before: BranchVersion,
        after: BranchVersion,
        difference: VersionDifference,
        *,
        is_swapped: bool,
    ) -> None:
        self._before, self._after = before, after
        self._difference = difference
        self._texts = (ADDED, REMOVED) if is_swapped else (REMOVED, ADDED)
        self._feed = after.source.format.feed
        self._columns = difference.end.schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the later version, each of which may be null, and `_difference`.

        Raises `InvalidError` if the table has a column of this name or one of the change feed's.
        """
        fields = [*self._feed.schema(self._columns)][: -len(CHANGE_FIELDS)]
        if DIFFERENCE.name in {field.name for field in fields}:
            message = f"the table's own column {DIFFERENCE.name} has the name of a diff's column"
            raise InvalidError(message, where=OptionName("rows"), hint="ask for the rest with rows=False")
        return pa.schema([*fields, DIFFERENCE])

    @cached_property
    def counts(self) -> tuple[int, int]:
        """How many rows were removed and added. Files are read only if both sides have some of their own."""
        removed, added = self._difference.removed, self._difference.added
        known = [part.row_count for part in (*removed, *added)]
        if not (removed and added) and None not in known:
            counts = [sum(part.row_count or 0 for part in side) for side in (removed, added)]
        else:
            counts = [sum(int(mask.sum()) for _, mask in side) for side in self._remaining]
        then, now = counts
        return (now, then) if self._texts[0] == ADDED else (then, now)

    def stream(self) -> pa.RecordBatchReader:
        """Returns the rows, batch by batch: those of the earlier version first."""
        return row_stream(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        readers = [self._reader(stored, None) for stored in (self._before, self._after)]
        for side, reader, text in zip(self._remaining, readers, self._texts, strict=True):
            for part, mask in side:
                start = 0
                for batch in reader.read(part) if mask.any() else ():
                    chosen = mask[start : start + batch.num_rows]
                    start += batch.num_rows
                    if chosen.any():
                        yield self._shown(batch.filter(pa.array(chosen)), text)

    def _shown(self, batch: pa.RecordBatch, text: str) -> pa.RecordBatch:
        values = batch.columns[: len(self.schema) - 1]
        said = pa.repeat(pa.scalar(text, DIFFERENCE.type), batch.num_rows)
        return pa.RecordBatch.from_arrays([*values, said], schema=self.schema)

    @cached_property
    def _parts(self) -> tuple[Sequence[ChangePart], Sequence[ChangePart]]:
        """The removed and the added rows, equal ones among them, from files of both versions or the feed.

        A compaction replaces many files and changes nothing. So if it is less to read, these are the rows
        that the versions in between changed.
        """
        direct = self._difference.removed, self._difference.added
        most = sum(part.cost.bytes for part in chain(*direct))
        (source, first), (_, last) = self._before, self._after
        if not all(direct) or not self._difference.same_columns or most <= (last - first) * BYTES_OF_VERSION:
            return direct
        changes: list[ChangePart] = []
        try:
            for part in self._feed.plan(source, first, self._difference.end, Rewritten.ROWS):
                changes.append(part)
                most -= part.cost.bytes
                if most <= 0:
                    return direct
        except VersionExpiredError:
            return direct
        removed = [part for part in changes if part.change_type in _REMOVALS]
        return removed, [part for part in changes if part.change_type not in _REMOVALS]

    @cached_property
    def _remaining(self) -> tuple[list[tuple[ChangePart, NDArray[np.bool_]]], ...]:
        """For each part, of the removed and of the added, which of its rows have no equal on the other side.

        Raises `VersionExpiredError`, `DamagedError`, `MisfitError`.
        """
        try:
            return self._unequal(*self._parts)
        except MisfitError:
            # A version in between may have had other types.
            return self._unequal(self._difference.removed, self._difference.added)

    def _unequal(
        self, removed: Sequence[ChangePart], added: Sequence[ChangePart]
    ) -> tuple[list[tuple[ChangePart, NDArray[np.bool_]]], ...]:
        both = [*removed, *added]
        sizes, numbers = self._numbers(len(removed), both)
        split = sum(sizes[: len(removed)])
        remain = ~paired(numbers, split) if removed and added else np.ones(numbers.size, np.bool_)
        masks = [*zip(both, np.split(remain, np.cumsum(sizes)[:-1]) if both else [], strict=True)]
        return masks[: len(removed)], masks[len(removed) :]

    def _numbers(self, removed: int, parts: Sequence[ChangePart]) -> tuple[list[int], NDArray[np.int64]]:
        """Returns the rows of each part, and a number for each row, the same for equal rows.

        The first `removed` parts are of the earlier version. Columns are read no further than until no row of
        one side can have an equal on the other.
        """
        names: Sequence[str] = self._columns.names if 0 < removed < len(parts) else []
        at_once = sum(part.cost.bytes for part in parts) <= BYTES_AT_ONCE
        groups = [names] if at_once or not names else [[name] for name in names]
        sizes: list[int] = []
        numbers = np.zeros(0, np.int64)
        for group in groups:
            readers = [self._reader(stored, group) for stored in (self._before, self._after)]
            arrays: list[list[pa.Array]] = [[] for _ in group]
            counted = []
            for index, part in enumerate(parts):
                rows = 0
                for batch in readers[index >= removed].read(part):
                    rows += batch.num_rows
                    for column, values in zip(arrays, batch.columns, strict=False):
                        column.append(values)
                counted.append(rows)
            if not sizes:
                sizes, numbers = counted, np.zeros(sum(counted), np.int64)
            for column in arrays:
                numbers = joined(numbers, value_numbers(column)) if column else numbers
            split = sum(sizes[:removed])
            if not np.intersect1d(numbers[:split], numbers[split:]).size:
                break
        return sizes, numbers

    def _reader(self, stored: BranchVersion, names: Sequence[str] | None) -> PartReader:
        columns = self._feed.columns(self._columns, names)
        return self._feed.reader(stored.source, columns, Misfits.FAIL)
