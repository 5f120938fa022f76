"""Filters on the columns of a table: what they name and compare, in the types of the table.

Filters are in the dialect of Lance tables as far as it goes. A constant is converted to the type of the
column that it is compared with.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_reader.delta.filters.nodes import (
    FUNCTIONS,
    CallNode,
    CastNode,
    ColumnNode,
    InNode,
    LiteralNode,
    fitted,
    time_literal,
)
from lakefold_reader.delta.schema import DeltaColumn, column_named, field_at, is_numeric
from lakefold_table.columns.conditions import (
    COMPARISONS,
    CastTerm,
    ColumnTerm,
    ConditionError,
    FunctionTerm,
    LiteralTerm,
    OperatorTerm,
    parse_condition,
)
from lakefold_table.columns.text_types import in_full
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.delta.filters.nodes import Node
    from lakefold_table.columns.conditions import Term

MOST_TEXT: Final = 1 << 20
_TYPES: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_HINT: Final = (
    "write comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, + - * /, CAST(… AS …) and the functions "
    f"{', '.join(FUNCTIONS)}"
)


def typed(text: object, columns: Sequence[DeltaColumn]) -> tuple[Node, list[DeltaColumn]]:
    """Returns a filter, and the columns that it needs. Raises `InvalidError`."""
    if not isinstance(text, str):
        message = f"{text!r} is not a filter of a Delta table"
        raise InvalidError(message, where="filter", hint="give SQL, as 'id > 7'")
    if len(text) > MOST_TEXT:
        raise InvalidError(f"the filter has more than {MOST_TEXT} characters", where="filter")
    typing = _Typing(columns)
    try:
        node = typing.node(parse_condition(text))
    except ConditionError as error:
        message = f"the filter can't be read: {error}"
        raise InvalidError(message, where=text[:200], hint=_HINT) from error
    return node, list(typing.used.values())


class _Typing:
    """Gives terms the columns and types of a table. `used`: the columns that were named, by their names."""

    def __init__(self, columns: Sequence[DeltaColumn]) -> None:
        self._columns = columns
        self.used: dict[str, DeltaColumn] = {}

    def node(self, term: Term) -> Node:
        match term:
            case ColumnTerm(path):
                return self._column(path)
            case LiteralTerm():
                return _literal(term)
            case CastTerm(part, kind):
                if kind not in _TYPES:
                    _fail(f"{kind!r} is not a type: {', '.join(_TYPES)}")
                return CastNode(self.node(part), _TYPES[kind])
            case FunctionTerm(name) if name not in FUNCTIONS:
                _fail(f"the function {name!r} is not known")
            case OperatorTerm("in", (left, *items)):
                return _among(self.node(left), [self.node(item) for item in items])
            case OperatorTerm(name, (left, right)) if name in COMPARISONS:
                return _compared(name, self.node(left), self.node(right))
        return CallNode(term.name, tuple(map(self.node, term.parts)))

    def _column(self, path: tuple[str, ...]) -> Node:
        name = ".".join(path)
        column = column_named(self._columns, name) or self._any_case(name)
        if column is None:
            _fail(f"there is no column {name!r}")
        if len(path) > 1 and column in self._columns and field_at(self._columns, path) is not None:
            _fail(f"{name} is a field of {path[0]}, and {name!r} is a column: rename one of them")
        self.used[column.field.name] = column
        return ColumnNode(column)

    def _any_case(self, name: str) -> DeltaColumn | None:
        same = [column for column in self._columns if column.field.name.lower() == name.lower()]
        return same[0] if len(same) == 1 else None


def _fail(what: str) -> NoReturn:
    raise ConditionError(what)


def _among(left: Node, items: Sequence[Node]) -> Node:
    literals = tuple(item for item in items if isinstance(item, LiteralNode))
    if len(literals) < len(items):
        _fail("IN needs a list of constants")
    constants = [literal.scalar for literal in literals if literal.scalar.is_valid]
    has_null = len(constants) < len(literals)
    if isinstance(left, ColumnNode):
        literals = tuple(_in_column(literal, left.column) for literal in literals)
        kind = left.column.field.type
        held = [_of_type(literal.scalar, kind) for literal in literals if literal.scalar.is_valid]
        constants = [scalar for scalar in held if scalar is not None]
    by_type: dict[pa.DataType, list[pa.Scalar]] = {}
    for scalar in constants:
        by_type.setdefault(scalar.type, []).append(scalar)
    sets = tuple(pa.array(scalars, of_type) for of_type, scalars in by_type.items())
    return InNode(left, literals, sets, has_null)


def _compared(operator: str, left: Node, right: Node) -> Node:
    if isinstance(right, LiteralNode) and isinstance(left, ColumnNode):
        right = _in_column(right, left.column)
    elif isinstance(left, LiteralNode) and isinstance(right, ColumnNode):
        left = _in_column(left, right.column)
    return CallNode(operator, (left, right))


def _in_column(literal: LiteralNode, column: DeltaColumn) -> LiteralNode:
    """Returns a constant as a column that it is compared with has values: of `char(n)` with their spaces."""
    node = fitted(literal, column.field.type)
    if column.char_length is None or not pa.types.is_string(node.scalar.type) or not node.scalar.is_valid:
        return node
    return LiteralNode(pa.scalar(in_full(node.scalar.as_py(), column.char_length)))


def _literal(literal: LiteralTerm) -> LiteralNode:
    value, kind = literal.value, literal.kind
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return _number(Decimal(value))
    if not kind:
        return LiteralNode(pa.scalar(value))
    text = str(value)
    try:
        if kind == "date":
            return LiteralNode(pa.scalar(dt.date.fromisoformat(text.strip())))
        if kind == "timestamp":
            return LiteralNode(time_literal(text))
        if kind.startswith("decimal("):
            number = Decimal(text)
            precision, scale = map(int, kind[len("decimal(") : -1].split(","))
            return LiteralNode(pa.scalar(number, pa.decimal128(precision, scale)), number)
    except (ArithmeticError, pa.ArrowException, TypeError, ValueError) as error:
        raise ConditionError(f"{text!r} is no {kind}") from error
    _fail(f"there are no constants of the type {kind}")


def _number(number: Decimal) -> LiteralNode:
    """Returns a number: an integer of 64 bits if it is one, else a decimal or a floating-point number."""
    is_whole = number.as_tuple().exponent == 0
    if is_whole and -(2**63) <= number < 2**63:
        return LiteralNode(pa.scalar(int(number), pa.int64()), number)
    return LiteralNode(pa.scalar(float(number)), number)


def _of_type(scalar: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """Returns a number in the exact type of a column, None if the type has no such number.

    Returns other constants as they are.
    """
    is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if scalar.type == kind or not is_exact or not is_numeric(scalar.type):
        return scalar
    try:
        return pc.cast(scalar, kind)
    except pa.ArrowInvalid:
        return None
