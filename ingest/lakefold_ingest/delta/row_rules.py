"""What a Delta table requires of the rows of a batch: CHECK constraints and column invariants.

They are SQL. Comparisons of a column with a constant, IS NULL, AND, OR and NOT are evaluated; a table that
requires more is not written, and the error names what it requires. Nor are tables whose values this release
can't make: generated columns, and columns with a default that the batch lacks.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.delta.schemas import expressions
from lakefold_ingest.delta.table_schema import check_text_types
from lakefold_ingest.rows.fitting import Fitting
from lakefold_ingest.rows.row_faults import python_rows
from lakefold_ingest.rows.text_lengths import length_of
from lakefold_reader.delta.filters.nodes import OPERATORS
from lakefold_reader.delta.new_files.stored_columns import check_levels, fields_in
from lakefold_table.columns.text_types import in_full
from lakefold_table.delta.predicates.syntax import (
    Always,
    Both,
    Comparison,
    Either,
    NullCheck,
    Time,
    parse_predicate,
)
from lakefold_table.delta.table_features.metadata_rules import CONSTRAINTS, DEFAULT, GENERATED
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakefold_table.delta.actions.table_actions import TableMetadata
    from lakefold_table.delta.predicates.syntax import Constant, Predicate

_OTHER_CLIENT: Final = "write such rows by another client, such as Spark with Delta"
MOST_SHOWN: Final = 300


class UnknownPredicateError(Exception):
    """A predicate can't be evaluated on rows. Its text says why."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """A condition that each row must meet. `name`: as an error names it. `text`: the condition."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RuledFitting(Fitting):
    """How batches become rows of a table that requires something of them (`rules`).

    `columns`: all of the table's, since those that the batch lacks are null in its rows. `where`: the table.
    """

    rules: tuple[RowRule, ...]
    columns: pa.Schema
    where: str

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch as rows of the table. Raises `InvalidError` as `Fitting.apply`.

        Also raises it, with an example, if a row doesn't meet a rule.
        """
        # `super()` finds no class here: `slots` makes another one.
        rows = Fitting.apply(self, batch)
        for rule in self.rules:
            met = holds(parse_predicate(rule.text), rows, self.columns)
            wrong = pc.index(met, value=False).as_py()
            if wrong >= 0:
                count = len(met) - (pc.sum(met).as_py() or 0)
                example = str(python_rows(rows.slice(wrong, 1))[0])[:MOST_SHOWN]
                raise InvalidError(
                    f"{count} rows don't meet {rule.name}, which is {rule.text!r}, for example {example}",
                    where=self.where,
                    hint="correct or leave out such rows",
                )
        return rows


def rules_of(
    metadata: TableMetadata, features: Collection[str], batch: Collection[str], table: pa.Schema, where: str
) -> tuple[RowRule, ...]:
    """Returns what each row of a batch must meet. `batch`: its columns; `table`: those of the table.

    Raises `InvalidError`, which names what the table requires, if that can't be evaluated or made here.
    """
    check_levels(table, where)
    check_text_types(metadata, where)
    fields = fields_in(metadata)
    for field in fields:
        of_column = field.get("metadata") or {}
        if GENERATED in of_column and "generatedColumns" in features:
            message = f"the column {field['name']} is generated as {of_column[GENERATED]}"
            raise InvalidError(f"{message}, which this release can't do", where=where, hint=_OTHER_CLIENT)
        if DEFAULT in of_column and "allowColumnDefaults" in features and field["name"] not in batch:
            message = f"the batch lacks the column {field['name']}, whose default is {of_column[DEFAULT]}"
            raise InvalidError(message, where=where, hint="give each row its value")
    rules = tuple(_rules(metadata, features))
    for rule in rules:
        try:
            predicate = parse_predicate(rule.text)
            check_predicate(predicate, table.names)
            # It is also checked that its constants can be compared with these columns.
            _met(predicate, table.empty_table(), table)
        except (UnknownPredicateError, pa.ArrowException) as error:
            message = f"the table has {rule.name}, which is {rule.text!r}: {error}"
            raise InvalidError(message, where=where, hint=_OTHER_CLIENT) from error
    return rules


def _rules(metadata: TableMetadata, features: Collection[str]) -> Iterator[RowRule]:
    if "checkConstraints" in features:
        for name, text in sorted(metadata.configuration.items()):
            if name.startswith(CONSTRAINTS) and text is not None:
                yield RowRule(f"the constraint {name.removeprefix(CONSTRAINTS)}", text)
    if "invariants" in features:
        for field in fields_in(metadata):
            for _, text in expressions(field):
                yield RowRule(f"the invariant of the column {field['name']}", text)


def check_predicate(predicate: Predicate, columns: Collection[str]) -> None:
    """Raises `UnknownPredicateError` if a predicate can't be evaluated for a table with these columns."""
    match predicate:
        case Always():
            return
        case Both() | Either():
            for part in predicate.parts:
                check_predicate(part, columns)
        case Comparison(constant=None):
            raise UnknownPredicateError("a part of it is compared with NULL")
        case NullCheck() | Comparison():
            named(predicate.column, columns)
        case _:
            raise UnknownPredicateError("a part of it is not understood by this release")


def named(column: tuple[str, ...], columns: Collection[str]) -> str:
    """Returns the name of a column of the table. Raises `UnknownPredicateError`."""
    if len(column) == 1:
        if column[0] in columns:
            return column[0]
        same = [name for name in columns if name.lower() == column[0].lower()]
        if len(same) == 1:
            return same[0]
    raise UnknownPredicateError(f"there is no column {'.'.join(column)} at the top level")


def holds(predicate: Predicate, rows: pa.RecordBatch | pa.Table, columns: pa.Schema) -> pa.Array:
    """Returns for each row whether a predicate is true for it; false if it is null.

    Columns of the table (`columns`) that the rows lack are null. Raises `InvalidError` if the predicate can't
    be evaluated.
    """
    try:
        met = _met(predicate, rows, columns)
    except (UnknownPredicateError, pa.ArrowException) as error:
        message = f"a condition can't be evaluated: {error}"
        raise InvalidError(message, hint=_OTHER_CLIENT) from error
    combined = met.combine_chunks() if isinstance(met, pa.ChunkedArray) else met
    return pc.fill_null(combined, fill_value=False)


def _met(predicate: Predicate, rows: Any, columns: pa.Schema) -> Any:  # noqa: ANN401 - Arrow's arrays
    match predicate:
        case Always():
            return pa.repeat(pa.scalar(predicate.met), rows.num_rows)
        case Both():
            return reduce(pc.and_kleene, [_met(part, rows, columns) for part in predicate.parts])
        case Either():
            return reduce(pc.or_kleene, [_met(part, rows, columns) for part in predicate.parts])
        case NullCheck():
            column = _column(predicate.column, rows, columns)
            return pc.is_null(column) if predicate.is_null else pc.is_valid(column)
        case Comparison():
            column = _column(predicate.column, rows, columns)
            field = columns.field(named(predicate.column, columns.names))
            constant = _scalar(_in_full(predicate.constant, field), column.type)
            return OPERATORS[predicate.operator](column, constant)
        case _:
            raise UnknownPredicateError("a part of it is not understood by this release")


def _column(column: tuple[str, ...], rows: Any, columns: pa.Schema) -> Any:  # noqa: ANN401 - Arrow's arrays
    name = named(column, columns.names)
    if name in rows.schema.names:
        return rows.column(name)
    return pa.nulls(rows.num_rows, columns.field(name).type)


def _in_full(constant: Constant, field: pa.Field) -> Constant:
    """Returns a constant with the spaces that a value of the column has."""
    length = length_of(field)
    is_padded = isinstance(constant, str) and length is not None and length.is_padded
    return in_full(str(constant), length.most) if length is not None and is_padded else constant


def _scalar(constant: Constant, kind: pa.DataType) -> pa.Scalar:
    """Returns a constant as it is compared with a column. Raises `UnknownPredicateError`."""
    text = constant.text if isinstance(constant, Time) else constant
    is_number = isinstance(constant, int | Decimal) and not isinstance(constant, bool)
    try:
        if types.is_boolean(kind) and isinstance(constant, bool):
            return pa.scalar(constant)
        if types.is_floating(kind) and is_number:
            return pa.scalar(float(str(constant)), pa.float64())
        if (types.is_integer(kind) or types.is_decimal(kind)) and is_number:
            return pa.scalar(constant)
        if types.is_string(kind) and isinstance(constant, str):
            return pa.scalar(constant)
        if types.is_binary(kind) and isinstance(constant, bytes):
            return pa.scalar(constant)
        if types.is_date(kind) and isinstance(text, str):
            return pa.scalar(dt.date.fromisoformat(text), pa.date32())
        if types.is_timestamp(kind) and isinstance(text, str):
            at = dt.datetime.fromisoformat(text)
            if (at.tzinfo is None) is (kind.tz is None):
                return pa.scalar(at, kind)
    except (ArithmeticError, ValueError, pa.ArrowException) as error:
        raise UnknownPredicateError(f"{constant!r} can't be compared with {kind}") from error
    raise UnknownPredicateError(f"{constant!r} can't be compared with {kind}")
