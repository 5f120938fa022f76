"""The keys of a batch: which row counts for each key, and which rows of the table have the same key.

Everything is computed on whole columns. A key of several columns is made into one number: each column's
values are numbered, and the numbers of a row are joined column by column, so that the joined number is never
larger than the square of the number of rows.

Keys must be comparable: a null is equal to nothing, and neither is NaN. Both are errors in a batch. A row of
the table that has one of them in its key is matched by no row. -0.0 and 0.0 are one key. Keys are compared as
the table keeps them (`as_stored`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.rows.fitting import Fitting, plain_field
from lakefold_ingest.rows.log_values import is_in_log
from lakefold_ingest.rows.row_faults import BadRowsError, python_rows, python_values
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.rows.row_faults import RowFaults

    Indices = NDArray[np.int64]

ABSENT = -1
EXAMPLES = 3
"""How many keys or rows an error shows."""
EMPTY = "an empty value (Delta stores it as null in a partition column)"
"""What a key is that the table keeps as null."""
KEY, ORDER = "key", OptionName("order_by")
"""What a column without nulls is for."""
_KEY_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    types.is_boolean,
    types.is_integer,
    types.is_float32,
    types.is_float64,
    types.is_decimal,
    types.is_temporal,
    types.is_string,
    types.is_large_string,
    types.is_binary,
    types.is_large_binary,
    types.is_fixed_size_binary,
)


class BadKeysError(BadRowsError):
    """Rows of a batch can't be matched by their keys. `examples` has the keys of some of the rows."""


@dataclass(frozen=True, slots=True)
class _Column:
    """The distinct values of one key column of a batch, and the number of each row's value."""

    values: pa.Array
    numbers: Indices


class BatchKeys:
    """The keys of a batch, to be looked for in the table.

    `keys` has the key columns in the types of the table, without nulls and NaN (`check_present`). Raises
    `InvalidError` if a column can't be a key.
    """

    def __init__(self, keys: pa.Table, where: str = "") -> None:
        self.names: list[str] = keys.column_names
        self._where = where
        for field in keys.schema:
            _check_type(field, where)
        self.arrays = [comparable(column) for column in keys.columns]
        self._columns = [
            _Column(values := pc.unique(array), _numbers(array, values)) for array in self.arrays
        ]
        self._joined, self.numbers = self._join()
        self._rows = np.full(int(self.numbers.max(initial=ABSENT)) + 1, ABSENT, np.int64)
        self._rows[self.numbers] = np.arange(self.numbers.size)

    @property
    def count(self) -> int:
        """The number of different keys in the batch."""
        return self._rows.size

    def find(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Indices:
        """Returns for each row of these key columns the row of the batch with the same key, or `ABSENT`.

        If several rows of the batch have the key, it is the last of them.
        """
        joined: Indices | None = None
        for index, (column, own) in enumerate(zip(columns, self._columns, strict=True)):
            numbers = _numbers(comparable(column), own.values)
            if joined is None:
                joined = numbers
                continue
            both = joined * len(own.values) + numbers
            joined = np.where((joined < 0) | (numbers < 0), ABSENT, _positions(self._joined[index], both))
        if joined is None or not self._rows.size:
            return np.full(0 if joined is None else joined.size, ABSENT, np.int64)
        return np.where(joined < 0, ABSENT, self._rows[joined])

    def check_unique(self) -> None:
        """Raises `BadKeysError` if a key is in several rows."""
        if self.numbers.size == self.count:
            return
        counts = np.bincount(self.numbers)
        repeated = np.flatnonzero(counts > 1)
        examples = self.examples(self._rows[repeated])
        shown = "; ".join(map(_shown, examples))
        raise BadKeysError(
            f"keys that are in several rows of the batch: {repeated.size}, such as {shown}",
            columns=self.names,
            rows=int(counts[repeated].sum()),
            examples=examples,
            where=self._where,
            hint=(
                "name the column that orders the rows of a key in ",
                ORDER,
                ": the last row counts",
            ),
        )

    def last_rows(self, order: pa.Table) -> Indices:
        """Returns the row that counts for each key, ascending: the last in the order of these columns.

        Of rows that are equal in all of them, and if there are no columns, the later one in the batch counts.
        Nulls are before all values.
        """
        if not order.num_columns:
            return np.sort(self._rows)
        by = [(name, "ascending", "at_start") for name in order.column_names]
        sortable = pa.table([_sortable(column) for column in order.columns], order.column_names)
        ascending = cast("Indices", pc.sort_indices(sortable, sort_keys=by).to_numpy().astype(np.int64))
        last = np.full(self._rows.size, ABSENT, np.int64)
        # If a number occurs several times, numpy keeps what is assigned last.
        last[self.numbers[ascending]] = ascending
        return np.sort(last)

    def examples(self, rows: Indices) -> list[dict[str, object]]:
        """Returns the keys of the first few of these rows."""
        chosen = pa.array(rows[:EXAMPLES])
        columns = [python_values(array.take(chosen)) for array in self.arrays]
        return [dict(zip(self.names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _join(self) -> tuple[list[Indices], Indices]:
        """Returns the distinct joined numbers after each column, and the number of each row's key."""
        joined = self._columns[0].numbers
        distinct: list[Indices] = [np.empty(0, np.int64)]
        for column in self._columns[1:]:
            both = joined * len(column.values) + column.numbers
            values, joined = np.unique(both, return_inverse=True)
            distinct.append(values)
        return distinct, joined.astype(np.int64)


def as_stored(rows: pa.Table, names: Sequence[str], table: pa.Schema) -> pa.Table:
    """Returns columns of rows as a table with the schema `table` keeps them; there may be nulls.

    So they have its types, texts have the spaces of `char(n)`, and empty values are null that a partition
    column has as null. Raises `InvalidError` if a value doesn't fit.
    """
    kinds = pa.schema([plain_field(table.field(name)).with_nullable(True) for name in names])  # noqa: FBT003 - pyarrow takes it by position
    fitting = Fitting(kinds, tuple(range(len(kinds))))
    return pa.Table.from_batches([fitting.apply(part) for part in rows.select(names).to_batches()], kinds)


def note_empty_keys(
    rows: pa.Table, keys: Sequence[str], table: pa.Schema, batch_rows: Indices, faults: RowFaults
) -> None:
    """Notes those rows whose keys the table keeps as null. `batch_rows`: their indices in the batch."""
    for name in keys:
        if is_in_log(table.field(name)):
            left = np.flatnonzero(~np.isin(batch_rows, faults.rows))
            stored = as_stored(rows.select([name]).take(pa.array(left)), [name], table)
            empty = left[missing_values(stored.column(name))]
            faults.add(batch_rows[empty], name, f"the key has {EMPTY}")


def check_present(
    rows: pa.Table,
    columns: Sequence[str],
    role: str,
    keys: Sequence[str],
    where: str,
    value: str = "no value (null or NaN)",
) -> None:
    """Raises `BadKeysError` if one of these columns has nulls or NaN. `role` says what they are.

    `rows` is the batch; the error shows the `keys` of some of its rows. `value`: what the rows have there.
    """
    if role == ORDER:
        check_orders(rows.select(columns).schema)
    for name in columns:
        column = rows.column(name)
        missing = np.flatnonzero(missing_values(column))
        if not missing.size:
            continue
        shown = list(dict.fromkeys([*keys, name]))
        examples = python_rows(rows.select(shown).take(pa.array(missing[:EXAMPLES])))
        raise BadKeysError(
            (
                "the ",
                role,
                f" column {name} has {value} in {missing.size} rows of the batch, ",
                f"such as row {missing[0]} ({_shown(examples[0])})",
            ),
            columns=[name],
            rows=missing.size,
            examples=examples,
            where=where,
            hint="give each row a value, or leave such rows out",
        )


def check_orders(columns: pa.Schema) -> None:
    """Raises `InvalidError` if rows can't be ordered by one of these columns."""
    for field in columns:
        try:
            if types.is_null(field.type) or types.is_nested(field.type):
                raise pa.ArrowTypeError(f"{field.type} has no order")
            pc.array_sort_indices(_sortable(pa.chunked_array([], field.type)))
        except pa.ArrowException as error:
            message = f"rows can't be ordered by {field.name}, which is {field.type}"
            hint = "order them by numbers, booleans, texts, bytes, dates or times"
            raise InvalidError(message, where=ORDER, hint=hint) from error


def comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a key column in one piece, so that equal keys are equal values: -0.0 becomes 0.0.

    Values of an extension type, such as a UUID, are compared by what is stored.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_floating(array.type):
        array = pc.add(array, pa.scalar(0.0, array.type))
    return array


def _sortable(column: pa.ChunkedArray) -> pa.Array:
    """Returns an ordering column as Arrow can sort it: extension types as they are stored, views as texts."""
    array = comparable(column)
    if types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if types.is_binary_view(array.type) else array


def _check_type(field: pa.Field, where: str) -> None:
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if not any(is_kind(kind) for is_kind in _KEY_TYPES):
        raise InvalidError(
            f"{field.name} can't be a key, because it is {field.type}",
            where=where,
            hint="keys are numbers, booleans, texts, bytes, dates or times",
        )


def missing_values(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns which values are null or NaN."""
    missing = pc.is_null(column, nan_is_null=types.is_floating(column.type))
    if isinstance(missing, pa.ChunkedArray):
        missing = missing.combine_chunks()
    return cast("NDArray[np.bool_]", missing.to_numpy(zero_copy_only=False))


def _numbers(array: pa.Array, values: pa.Array) -> Indices:
    """Returns the index of each value in `values`, `ABSENT` for others, for null and for NaN."""
    numbers = pc.index_in(array, value_set=values, skip_nulls=True).fill_null(ABSENT)
    indices = cast("Indices", numbers.to_numpy(zero_copy_only=False).astype(np.int64))
    if types.is_floating(array.type):
        indices[missing_values(array)] = ABSENT
    return indices


def _positions(ascending: Indices, numbers: Indices) -> Indices:
    """Returns the index of each number in `ascending`, which ascends; `ABSENT` for others."""
    if not ascending.size:
        return np.full(numbers.size, ABSENT, np.int64)
    at = np.minimum(np.searchsorted(ascending, numbers), ascending.size - 1)
    return np.where(ascending[at] == numbers, at, ABSENT)


def _shown(example: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in example.items())
