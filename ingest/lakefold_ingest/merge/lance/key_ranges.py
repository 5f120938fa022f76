"""The lowest and the highest key of fragments, by which an upsert leaves out those without any of its keys.

Lance's data files have no statistics, so a process learns the ranges when it reads all keys of a fragment,
and keeps them. They hold as long as the fragment has the same data files, because rows in them never change.
Rows may be deleted, which leaves a range too wide. But a Restore brings deleted rows back, so a range that
was learned without some rows only holds while the same rows are deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.merge.batch_keys import BatchKeys, comparable, missing_values
from lakefold_ingest.merge.read_version import column_of
from lakefold_reader.lance.scan.scan import ADDRESS, OFFSET_WIDTH
from lakefold_table.lance.schemas.schema import TOP
from lakefold_table.own_process import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_ingest.merge.lance.rows import LanceRows
    from lakefold_protos.lance.table_pb2 import DataFragment

    Range = tuple[Any, Any]
    """The lowest and the highest value of a column, as numbers, texts or bytes."""
    Name = tuple[str, tuple[int, ...], tuple[str, ...]]

MOST_KEPT: Final = 100_000
"""Of how many fragments the ranges are kept: some hundred bytes each."""
_ORDERED: Final = (
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_date,
    types.is_time,
    types.is_timestamp,
    types.is_duration,
    types.is_string,
    types.is_large_string,
    types.is_binary,
    types.is_large_binary,
)


@dataclass(frozen=True, slots=True)
class _Known:
    """The range of each key column of a fragment, and its deletion file as bytes, empty without one."""

    ranges: tuple[Range, ...]
    deletions: bytes


_lock: Final = ProcessLock()
_known: Final[OrderedDict[Name, _Known]] = OrderedDict()


@dataclass(slots=True)
class FragmentRanges:
    """The key ranges of a version's fragments: those that are known, and those that a scan shows."""

    table: LanceRows
    names: Sequence[str]
    _ids: tuple[int, ...] = field(default=(), init=False)
    _seen: dict[int, list[Range] | None] = field(default_factory=dict, init=False)
    _fragments: Mapping[int, DataFragment] = field(default_factory=dict, init=False)

    def holding(self, keys: BatchKeys) -> Mapping[int, DataFragment]:
        """Returns the fragments that may have one of these keys; all of them if no range is known."""
        ids = {each.name: each.id for each in self.table.state.head.fields if each.parent_id == TOP}
        self._ids = tuple(ids[name] for name in self.names)
        values = [_ordinals(column) for column in keys.arrays]
        ascending = [None if column is None else column.take(pc.sort_indices(column)) for column in values]
        self._fragments = {
            fragment.id: fragment
            for fragment in self.table.state.fragments
            if _may_have(self._of(fragment), ascending)
        }
        return self._fragments

    def add(self, batch: pa.RecordBatch) -> None:
        """Notes the keys of a scanned batch."""
        numbers = column_of(batch, ADDRESS) >> np.uint64(OFFSET_WIDTH)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [numbers.size]]).tolist()
        for start, stop in pairwise(starts):
            if stop > start:
                rows = batch.slice(start, stop - start)
                self._widen(int(numbers[start]), [_range_of(rows.column(name)) for name in self.names])

    def keep(self) -> None:
        """Keeps the ranges of the fragments `holding` returned. All their rows were added."""
        with _lock.current:
            for number, ranges in self._seen.items():
                fragment = self._fragments[number]
                name, deletions = self._name(fragment), fragment.deletion_file.SerializeToString()
                kept = _known.get(name)
                if ranges is not None and (kept is None or kept.deletions):
                    _known[name] = _Known(tuple(ranges), deletions)
            while len(_known) > MOST_KEPT:
                _known.popitem(last=False)

    def _widen(self, number: int, ranges: Sequence[Range | None]) -> None:
        """Adds the ranges of some rows of a fragment. If one of them is None, the fragment gets no ranges."""
        present = [each for each in ranges if each is not None]
        widest = self._seen.setdefault(number, present)
        if widest is None or len(present) < len(ranges):
            self._seen[number] = None
        else:
            pairs = zip(widest, present, strict=True)
            self._seen[number] = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs]

    def _of(self, fragment: DataFragment) -> Sequence[Range] | None:
        name = self._name(fragment)
        with _lock.current:
            kept = _known.get(name)
            if kept is None:
                return None
            _known.move_to_end(name)
        is_same = kept.deletions == fragment.deletion_file.SerializeToString()
        return kept.ranges if is_same or not kept.deletions else None

    def _name(self, fragment: DataFragment) -> Name:
        return self.table.source.uri, self._ids, tuple(file.path for file in fragment.files)


def _ordinals(column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Returns the values that a key can be, as numbers, texts or bytes. None: the type has no order here."""
    array = comparable(column)
    if not any(is_kind(array.type) for is_kind in _ORDERED):
        return None
    if array.null_count or types.is_floating(array.type):
        array = array.filter(pa.array(~missing_values(array)))
    if types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == pa.int32().bit_width else pa.int64())
    return array


def _range_of(column: pa.Array) -> Range | None:
    values = _ordinals(column)
    if values is None or not len(values):
        return None
    extremes = pc.min_max(values)
    return extremes["min"].as_py(), extremes["max"].as_py()


def _may_have(ranges: Sequence[Range] | None, columns: Iterable[pa.Array | None]) -> bool:
    """Returns whether each of these columns, which ascend, has a value in its range."""
    return ranges is None or all(
        column is None or _has_between(column, *each) for each, column in zip(ranges, columns, strict=True)
    )


def _has_between(ascending: pa.Array, low: Any, high: Any) -> bool:  # noqa: ANN401 - the values of a key
    first = bisect_left(range(len(ascending)), low, key=lambda index: ascending[index].as_py())
    return first < len(ascending) and bool(ascending[first].as_py() <= high)
