"""Rows of a batch that can't be written, with the reason for each.

A batch is checked column by column, and a column that has a fault is halved until the rows are found that
have it. So a batch without faults costs one check of each column.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.rows.fitting import Fitting
from lakefold_ingest.rows.json_values import check_json, is_json, surely_refused
from lakefold_ingest.rows.source_columns import own_rows
from lakefold_table.errors import InvalidError, OptionName, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

BAD_ROWS: Final = pa.schema(
    {"column": pa.string(), "reason": pa.string(), "row": pa.string(), "source": pa.string()}
)
"""Rows that can't be written: the column that is at fault, the reason, the row as a JSON object, and where it
comes from, null or an object as well."""
EXAMPLES = 3
"""How many rows an error shows."""
MOST_SHOWN = 300
"""How many characters of a row an error shows."""


class BadRowsError(InvalidError):
    """Rows of a batch can't be written. `columns` names the columns that are at fault.

    `rows` says how many rows there are, and `examples` has some of them as dictionaries.
    """

    def __init__(
        self,
        message: Text,
        *,
        columns: Sequence[str],
        rows: int,
        examples: Sequence[dict[str, object]],
        where: Text = "",
        hint: Text = "",
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.columns = tuple(columns)
        self.rows = rows
        self.examples = tuple(examples)


class RowFaults:
    """The rows of a batch of `count` rows that can't be written. Of each row the first fault is kept."""

    def __init__(self, count: int) -> None:
        self._fault_of = np.zeros(count, np.int64)
        self._numbers: dict[tuple[str, str], int] = {}

    def add(self, rows: Indices, column: str, reason: str) -> None:
        """Notes that these rows, by their indices, have a fault in a column."""
        new = rows[self._fault_of[rows] == 0]
        if new.size:
            self._fault_of[new] = self._numbers.setdefault((column, reason), len(self._numbers) + 1)

    def clear(self, rows: Indices) -> None:
        """Forgets the faults of these rows."""
        self._fault_of[rows] = 0

    @property
    def rows(self) -> Indices:
        """The indices of the rows that have a fault, ascending."""
        return np.flatnonzero(self._fault_of)

    def described(self, rows: pa.Table, *, source: Sequence[str] = (), whole: bool = True) -> pa.Table:
        """Returns `BAD_ROWS` of the rows that have a fault. `rows` is the batch.

        `source`: the columns that say where a row comes from. Not `whole`: only as many have their JSON as an
        error shows.
        """
        bad = self.rows
        if not bad.size:
            return BAD_ROWS.empty_table()
        numbers = self._fault_of[bad]
        shown = np.arange(bad.size)
        if not whole:
            shown = np.union1d(shown[:EXAMPLES], np.unique(numbers, return_index=True)[1])
        texts, origins = np.full((2, bad.size), None, object)
        described = rows.take(pa.array(bad[shown]))
        texts[shown] = row_texts(own_rows(described, source))
        if source:
            origins[shown] = row_texts(described.select(list(source)))
        faults = [pa.array(part, pa.string()) for part in zip(*self._numbers, strict=True)]
        columns = [part.take(pa.array(numbers - 1)) for part in faults]
        return pa.table(
            [*columns, *(pa.array(each, pa.string()) for each in (texts, origins))], schema=BAD_ROWS
        )

    def error(self, rows: pa.Table, where: str) -> BadRowsError:
        """Returns the error that describes the faults. `rows` is the batch, `where` names the table."""
        return bad_rows_error(self.described(rows, whole=False), where)


def bad_rows_error(bad: pa.Table, where: str) -> BadRowsError:
    """Returns the error that describes rows as `RowFaults.described` has them. `where` names the table."""
    counts: dict[str, int] = {
        each["values"]: each["counts"] for each in pc.value_counts(bad.column("column")).to_pylist()
    }
    parts = []
    for column, count in counts.items():
        first = bad.slice(pc.index(bad.column("column"), column).as_py(), 1).to_pylist()[0]
        parts.append(f"{column} in {count}: {first['reason']}, such as {(first['row'] or '')[:MOST_SHOWN]}")
    return BadRowsError(
        f"{bad.num_rows} rows of the batch can't be written: {'; '.join(parts)}",
        columns=list(counts),
        rows=bad.num_rows,
        examples=[json.loads(text) for text in bad.column("row").slice(0, EXAMPLES).to_pylist()],
        where=where,
        hint=(
            "correct or leave out such rows, or have them written to another table by ",
            OptionName("bad_records"),
        ),
    )


def faults_of(batch: pa.RecordBatch, fitting: Fitting) -> RowFaults:
    """Returns the rows of a batch that don't fit the table."""
    faults = RowFaults(batch.num_rows)
    rows = np.arange(batch.num_rows)
    for index, field in zip(fitting.indices, fitting.schema, strict=True):
        check_values(batch.column(index), rows, field, faults)
    return faults


def row_texts(rows: pa.Table) -> list[str]:
    """Returns each row as a JSON object. Values that JSON doesn't have are texts; bytes are read as UTF-8."""
    return [json.dumps(_plain(row), default=str, ensure_ascii=False) for row in python_rows(rows)]


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, object]]:
    """Returns rows as dictionaries of Python's values, as `python_values` has those of each column."""
    columns = [python_values(column) for column in rows.columns]
    if not columns:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Returns the values of a column as Python's.

    If Python lacks one (a time after the year 9999, a zone, a text that is not UTF-8), the times of the
    column are numbers in its unit, and the texts are bytes.
    """
    values: list[object]
    try:
        values = column.to_pylist()
    except (KeyError, OverflowError, ValueError):
        values = column.cast(_as_numbers(column.type)).to_pylist()
    return values


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """Returns the type with bytes instead of texts, which need not be UTF-8, and numbers instead of times."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(_as_numbers(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_as_numbers(kind.key_type), _as_numbers(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_as_numbers(kind.value_type))
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    if types.is_dictionary(kind):
        return _as_numbers(kind.value_type)
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
    return pa.binary() if types.is_string(kind) or types.is_large_string(kind) else kind


def _plain(value: object) -> object:
    match value:
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes():
            return value.decode(errors="backslashreplace")
        case float() if not math.isfinite(value):
            return str(value)
    return value


def check_values(column: pa.Array, rows: Indices, field: pa.Field, faults: RowFaults) -> None:
    """Notes the rows whose value doesn't fit a column of the table: a wrong value, or a null that it forbids.

    `rows` has the index in the batch of each value. `field` is the table's, in storage types.
    """
    if not field.nullable and column.null_count:
        missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        faults.add(rows[missing], field.name, "it is null, and the column is not nullable")
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        column, rows = column.take(pa.array(present)), rows[present]
    schema = pa.schema([field])
    fitting = Fitting(schema, (0,))

    def fault(start: int, stop: int) -> str | None:
        try:
            part = pa.RecordBatch.from_arrays([column.slice(start, stop - start)], [field.name])
            check_json(fitting.apply(part))
        except InvalidError as error:
            return error.message
        return None

    suspects = _changed(column, field.type)
    if suspects.size and fault(int(suspects[0]), int(suspects[0]) + 1) is not None:
        keep = np.setdiff1d(np.arange(len(column)), suspects)
        faults.add(rows[suspects], field.name, f"a value doesn't fit the table's {field.type}")
        column, rows = column.take(pa.array(keep)), rows[keep]
    if is_json(field) and fault(0, len(column)) is not None:
        refused = surely_refused(column)
        for index, reason in refused.items():
            faults.add(rows[index : index + 1], field.name, reason)
        keep = np.setdiff1d(np.arange(len(column)), list(refused))
        column, rows = column.take(pa.array(keep)), rows[keep]
    for row, reason in find_faults(len(column), fault):
        faults.add(rows[row : row + 1], field.name, reason)


def _changed(column: pa.Array, kind: pa.DataType) -> Indices:
    """Returns which values a cast changes, if that can be found for the whole column at once."""
    if column.type == kind or isinstance(column, pa.ExtensionArray):
        return np.empty(0, np.int64)
    try:
        equal = pc.equal(column.cast(kind, safe=False).cast(column.type, safe=False), column)
    except pa.ArrowException:
        return np.empty(0, np.int64)
    return np.flatnonzero(pc.invert(equal).fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003 - the value of nulls


def find_faults(count: int, fault: Callable[[int, int], str | None]) -> list[tuple[int, str]]:
    """Returns the index and the reason of each of `count` things that has a fault, ascending.

    `fault(start, stop)` says what is wrong with some of them, or returns None.
    """
    faults, parts = [], [(0, count)]
    while parts:
        start, stop = parts.pop()
        reason = fault(start, stop) if stop > start else None
        if reason is None:
            continue
        if stop - start == 1:
            faults.append((start, reason))
        else:
            half = (start + stop) // 2
            parts += [(half, stop), (start, half)]
    return faults
