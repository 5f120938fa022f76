"""Evaluates the SQL of a merge's clauses on pairs of rows: `source` of the batch, `target` of the table.

The SQL is pylance's, as in every other filter of a table. The pairs are written as a small Lance table in
memory, with a struct column for each side, and scanned with the conditions as columns. So only columns that a
condition can mean are needed.

A `RowCondition` is about the rows of a batch alone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lakefold_ingest.rows.row_faults import python_rows
from lakefold_ingest.rows.task_files import MisfitRowsError
from lakefold_ingest.rows.text_lengths import parts_of
from lakefold_reader.pylance.errors import translated_errors
from lakefold_reader.pylance.process import check_process
from lakefold_reader.pylance.whole_condition import whole
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.rows.target import Target

SOURCE, TARGET = "source", "target"
_ROW = "lakefold_row_number"
"""The column that numbers the rows of a scan. It gets a longer name if another one has this, at any depth."""
MOST_EXAMPLE = 300
"""How many characters of an example an error shows."""


def columns_in(expressions: Collection[str], names: Collection[str]) -> list[str]:
    """Returns those of `names` that may occur in the expressions, and perhaps some more."""
    return [name for name in names if any(name in expression for expression in expressions)]


def holds(
    conditions: Sequence[str | None], sides: Mapping[str, pa.Table], rows: int
) -> list[NDArray[np.bool_] | None]:
    """Returns for each condition whether it holds for each of `rows` pairs. None: it holds for all of them.

    `sides` has the rows of `source` and `target`, as far as they exist. A condition that is null for a pair
    doesn't hold. Raises `InvalidError` naming a condition that is not a condition on these columns.
    """
    given = [condition for condition in conditions if condition is not None]
    values = evaluated(dict(zip(map(_name, range(len(given))), given, strict=True)), sides, rows)
    for index, condition in enumerate(given):
        kind = values.schema.field(_name(index)).type
        if not pa.types.is_boolean(kind):
            raise InvalidError(
                f"the condition {condition!r} is {kind}, not a boolean", where=OptionName("clauses")
            )
    masks = map(_mask, values.columns)
    return [None if condition is None else next(masks) for condition in conditions]


def satisfied(condition: str, rows: pa.Table, where: str) -> NDArray[np.bool_]:
    """Returns for each row whether the condition holds, which names the columns of `rows` themselves.

    A condition that is null for a row doesn't hold. Raises `InvalidError` about `where` if it is not a
    condition on these columns.
    """
    values = _scanned({_name(0): condition}, rows)
    if isinstance(values, Exception):
        reason = values.message if isinstance(values, InvalidError) else str(values)
        message = f"{condition!r} can't be evaluated: {reason}"
        raise InvalidError(message, where=where, hint="write a condition in SQL on the table's columns")
    column = values.column(0)
    if not pa.types.is_boolean(column.type):
        raise InvalidError(f"the condition {condition!r} is {column.type}, not a boolean", where=where)
    return _mask(column)


def _mask(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns boolean values, with false for nulls."""
    values = column.combine_chunks().fill_null(False)  # noqa: FBT003 - the value that nulls get
    return cast("NDArray[np.bool_]", values.to_numpy(zero_copy_only=False))


def evaluated(expressions: Mapping[str, str], sides: Mapping[str, pa.Table], rows: int) -> pa.Table:
    """Returns the values of these expressions, by name, for each of `rows` pairs of rows, in their order.

    Raises `InvalidError` naming an expression that can't be evaluated on these columns.
    """
    if not expressions:
        return pa.table({})
    pairs = _paired(sides, rows)
    values = _scanned(expressions, pairs)
    if isinstance(values, pa.Table):
        return values
    for expression in expressions.values():
        fault = _scanned({_name(0): expression}, pairs.slice(0, 0))
        if isinstance(fault, Exception):
            raise _unusable(expression, fault, sides) from fault
    raise values


def check(expressions: Collection[str], sides: Mapping[str, pa.Schema]) -> None:
    """Raises `InvalidError` naming the first expression that can't be evaluated on columns of these sides."""
    numbered = {_name(index): expression for index, expression in enumerate(expressions)}
    evaluated(numbered, {side: schema.empty_table() for side, schema in sides.items()}, 0)


def _name(index: int) -> str:
    return f"c{index}"


def _paired(sides: Mapping[str, pa.Table], rows: int) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for side, table in sides.items():
        if table.num_columns:
            arrays = [column.combine_chunks() for column in table.columns]
            columns[side] = pa.StructArray.from_arrays(arrays, fields=list(table.schema))
    # A table without columns has no rows.
    return pa.table(columns or {_ROW: pa.array(np.arange(rows))})


def _scanned(expressions: Mapping[str, str], pairs: pa.Table) -> pa.Table | Exception:
    """Returns the values of the expressions, or the reason why they have none."""
    try:
        import lance
    except ImportError as error:
        message = f"{sys.executable} can't load its pylance: {type(error).__name__}: {error}"
        raise InvalidError(message, hint="install lakefold[ingest] in this Python") from error

    check_process()
    try:
        with translated_errors(""):
            # A scan must have a column, and an expression such as `true` has none.
            row, names = _ROW, str(pairs.schema)
            while row in names:
                row += "_"
            numbered = pairs.append_column(row, pa.array(np.arange(pairs.num_rows)))
            dataset = lance.write_dataset(numbered, f"memory://{uuid4()}")
            columns = {name: whole(text) for name, text in expressions.items()} | {row: row}
            return dataset.scanner(columns=columns, scan_in_order=True).to_table().drop_columns([row])
    except InvalidError as error:
        return error


def _unusable(expression: str, fault: Exception, sides: Mapping[str, pa.Table]) -> InvalidError:
    known = "; ".join(f"{side}: {', '.join(table.column_names)}" for side, table in sides.items())
    reason = fault.message if isinstance(fault, InvalidError) else str(fault)
    return InvalidError(
        f"{expression!r} can't be evaluated: {reason}",
        where=OptionName("clauses"),
        hint=f"write SQL in which columns are named source.x or target.x; there are {known}",
    )


@dataclass(frozen=True, slots=True)
class RowCondition:
    """SQL as pylance reads it, on columns of the table. `columns`: those of the table, in storage types.

    `name` is the option that has the condition, for errors.
    """

    where: str
    columns: pa.Schema
    name: str

    def check(self) -> None:
        """Raises `InvalidError` if the condition can't be evaluated on the table's columns."""
        self.met(self.columns.empty_table())

    def met(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.bool_]:
        """Returns for each row, which is in the table's types, whether it satisfies the condition.

        Raises `InvalidError` if the condition can't be evaluated.
        """
        return satisfied(self.where, self._needed(rows), self.name)

    def fitted(self, target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches in the table's types, until one has a row that doesn't satisfy the condition.

        Then it counts the other such rows and raises `MisfitRowsError`. Write what it yields for
        `Target.fitted`.
        """
        misfits, example = 0, ""
        for part in chain.from_iterable(parts_of(batch, target.fitting.schema) for batch in batches):
            rows = target.fitting.apply(part)
            wrong = np.flatnonzero(~self.met(rows))
            if wrong.size and not misfits:
                example = json.dumps(python_rows(rows.slice(int(wrong[0]), 1))[0], default=str)
            misfits += wrong.size
            if not misfits:
                yield rows
        if misfits:
            reason = f"rows of the batch don't satisfy {self.where!r}, for example {example[:MOST_EXAMPLE]}"
            hint = "leave such rows out, or replace more rows by another condition"
            raise MisfitRowsError(reason, rows=misfits, where=self.name, hint=hint)

    def _needed(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """Returns the columns that the condition needs. A column that the batch lacks is null in its rows."""
        given = set(rows.schema.names)
        arrays = {
            name: rows.column(name)
            if name in given
            else pa.nulls(rows.num_rows, self.columns.field(name).type)
            for name in columns_in([self.where], self.columns.names) or self.columns.names[:1]
        }
        return pa.table(arrays)
