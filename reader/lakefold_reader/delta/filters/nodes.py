"""The parts of a filter, evaluated with Arrow on the columns of some rows."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_reader.delta.schema import is_numeric
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_reader.delta.schema import DeltaColumn

Values = Any
"""An array of Arrow with a value for each row, or a scalar: the same for all rows."""
_BEYOND: Final = Decimal(2**64)
"""A number that is further from 0 than each integer of a column."""


@dataclass(frozen=True)
class ColumnNode:
    """A column, or a field of one."""

    column: DeltaColumn

    def evaluate(self, rows: pa.RecordBatch) -> Values:
        """Returns the values of the column."""
        return rows.column(self.column.field.name)


@dataclass(frozen=True)
class LiteralNode:
    """A constant. `number`: the exact value of one that was written as a number."""

    scalar: pa.Scalar
    number: Decimal | None = None

    def evaluate(self, rows: pa.RecordBatch) -> Values:
        """Returns the constant."""
        del rows
        return self.scalar


@dataclass(frozen=True)
class CallNode:
    """An operator or a function. `name`: as in `OPERATORS`."""

    name: str
    parts: tuple[Node, ...]

    def evaluate(self, rows: pa.RecordBatch) -> Values:
        """Returns the result for each row."""
        return OPERATORS[self.name](*(part.evaluate(rows) for part in self.parts))


@dataclass(frozen=True)
class InNode:
    """A test whether a value is in a list of constants: whether it is equal to one of them.

    `literals`: the constants. `sets`: those that a value can be equal to, without nulls, a set for each type.
    """

    part: Node
    literals: tuple[LiteralNode, ...]
    sets: tuple[pa.Array, ...]
    has_null: bool

    def evaluate(self, rows: pa.RecordBatch) -> Values:
        """Returns whether each value is in the list: null for a null, and if the list has a null."""
        values = self.part.evaluate(rows)
        among = reduce(pc.or_, (_is_in(values, constants) for constants in self.sets), pa.scalar(value=False))
        unknown = pc.or_(pc.is_null(values), pc.and_(pc.invert(among), pa.scalar(self.has_null)))
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), among)


@dataclass(frozen=True)
class CastNode:
    """A value in another type."""

    part: Node
    kind: pa.DataType

    def evaluate(self, rows: pa.RecordBatch) -> Values:
        """Returns the values in the type."""
        return pc.cast(self.part.evaluate(rows), self.kind)


Node = ColumnNode | LiteralNode | CallNode | InNode | CastNode


def fitted(literal: LiteralNode, kind: pa.DataType) -> LiteralNode:
    """Returns a constant in the type that it is compared with.

    Raises `InvalidError` if the type has no such value.
    """
    scalar = literal.scalar
    if scalar.type == kind or pa.types.is_null(scalar.type):
        return literal
    try:
        if literal.number is not None and is_numeric(kind):
            return LiteralNode(_number(literal.number, kind), literal.number)
        if pa.types.is_timestamp(kind) and pa.types.is_string(scalar.type):
            return LiteralNode(_time(scalar.as_py(), kind))
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(scalar.type):
            return LiteralNode(_zoned(scalar, kind))
        if pa.types.is_timestamp(kind) and pa.types.is_date(scalar.type):
            return LiteralNode(_zoned(pc.cast(scalar, pa.timestamp("us")), kind))
        if pa.types.is_string(scalar.type) and not pa.types.is_binary(kind):
            return LiteralNode(pc.cast(scalar, kind))
        if pa.types.is_string(scalar.type):
            return LiteralNode(pa.scalar(scalar.as_py().encode(), kind))
    except (ArithmeticError, pa.ArrowException, ValueError) as error:
        message = f"{scalar.as_py()!r} is not a value of the type {kind}"
        raise InvalidError(message, where="filter") from error
    return literal


def _number(number: Decimal, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_floating(kind):
        return pa.scalar(float(number), kind)
    return pa.scalar(number) if pa.types.is_decimal(kind) else _beside_integers(number)


def _beside_integers(number: Decimal) -> pa.Scalar:
    """Returns a number that is equal to, below and above the same integers of 64 bits, and that Arrow has.

    A floating-point number would be compared with rounded integers.
    """
    if number.copy_abs() > _BEYOND:
        return pa.scalar(_BEYOND.copy_sign(number))
    below = number.to_integral_value(ROUND_FLOOR)
    if below != number:
        return pa.scalar(below + Decimal("0.5"))
    return pa.scalar(int(below)) if -(2**63) <= below < 2**63 else pa.scalar(below)


def _is_in(values: Values, constants: pa.Array) -> Values:
    """Returns whether each value is equal to one of some constants, as `=` compares them."""
    if constants.type != values.type and is_numeric(constants.type) and is_numeric(values.type):
        with suppress(pa.ArrowInvalid):
            constants = pc.cast(constants, values.type)
    if constants.type == values.type:
        return pc.is_in(_one_zero(values), value_set=_one_zero(constants))
    return reduce(pc.or_, (OPERATORS["="](values, constant) for constant in constants))


def _one_zero(values: Values) -> Values:
    """Returns the values with 0.0 for -0.0, which it is equal to."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def time_literal(text: str) -> pa.Scalar:
    """Returns a time of which the text says no zone, or says one; then the time is in UTC."""
    moment = dt.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        return pa.scalar(moment, pa.timestamp("us"))
    return pa.scalar(moment.astimezone(dt.UTC), pa.timestamp("us", "UTC"))


def _time(text: str, kind: pa.DataType) -> pa.Scalar:
    return _zoned(time_literal(text), kind)


def _zoned(scalar: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Returns a time with the zone of the type. A time without a zone is in UTC."""
    return pc.cast(scalar, pa.timestamp("us", kind.tz))


def _is(expected: object) -> Callable[[Values], Values]:
    def holds(values: Values) -> Values:
        return pc.fill_null(pc.equal(values, pa.scalar(expected)), fill_value=False)

    return holds


def _compared(compare: Callable[[Values, Values], Values]) -> Callable[[Values, Values], Values]:
    """Returns a comparison for which NaN is equal to itself and greater than any other number, as in Spark.

    The dialect of Lance tables, DataFusion, orders it so as well; Arrow finds each comparison with it false.
    """

    def met(left: Values, right: Values) -> Values:
        kinds = (left.type, right.type)
        if not any(map(pa.types.is_floating, kinds)) or any(map(pa.types.is_null, kinds)):
            return compare(left, right)
        # Null for a null, of any type.
        nan_left, nan_right = (pc.not_equal(values, values) for values in (left, right))
        return pc.if_else(pc.or_(nan_left, nan_right), compare(nan_left, nan_right), compare(left, right))

    return met


def _same(left: Values, right: Values) -> Values:
    """Returns whether both are equal or both are null."""
    equal = pc.fill_null(OPERATORS["="](left, right), fill_value=False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _text(scalar: Values) -> str:
    """Returns the pattern of a function. Raises `InvalidError` if it is not a constant text."""
    if not isinstance(scalar, pa.StringScalar) or not scalar.is_valid:
        raise InvalidError("a pattern must be a constant text", where="filter")
    return str(scalar.as_py())


def _matching(function: Any, **options: Any) -> Callable[[Values, Values], Values]:  # noqa: ANN401 - one of Arrow's functions
    return lambda values, pattern: function(values, _text(pattern), **options)


OPERATORS: Final[Mapping[str, Callable[..., Values]]] = {
    "and": lambda *parts: reduce(pc.and_kleene, parts),
    "or": lambda *parts: reduce(pc.or_kleene, parts),
    "not": pc.invert,
    "=": _compared(pc.equal),
    "!=": _compared(pc.not_equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "<=>": _same,
    "is null": pc.is_null,
    "is not null": pc.is_valid,
    "is true": _is(expected=True),
    "is false": _is(expected=False),
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "negative": pc.negate_checked,
    "like": _matching(pc.match_like),
    "ilike": _matching(pc.match_like, ignore_case=True),
    "starts_with": _matching(pc.starts_with),
    "ends_with": _matching(pc.ends_with),
    "contains": _matching(pc.match_substring),
    "isnan": pc.is_nan,
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "length": pc.utf8_length,
    "abs": pc.abs_checked,
    "coalesce": pc.coalesce,
}
"""The operators and functions of filters, each as a function of Arrow."""
FUNCTIONS: Final = (
    "isnan",
    "lower",
    "upper",
    "length",
    "abs",
    "coalesce",
    "starts_with",
    "ends_with",
    "contains",
)
"""Those that are written as functions."""
