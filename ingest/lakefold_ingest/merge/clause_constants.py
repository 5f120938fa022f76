"""Which conditions of clauses have a constant that pylance, which evaluates them, compares in another form.

It compares texts as they are. Values of `char(n)` have their spaces, so a condition with a constant that
lacks them would never hold, or always. It compares fields of structs, as the columns of both sides are, with
the constants of a list in double precision: no float is equal to 0.1 there, though `source.p = 0.1` can hold.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.rows.text_lengths import length_of, limits_texts
from lakefold_table.columns.conditions import (
    COMPARISONS,
    DOUBLE,
    CastTerm,
    ColumnTerm,
    ConditionError,
    LiteralTerm,
    OperatorTerm,
    Term,
    parse_condition,
)
from lakefold_table.columns.text_types import TextType, in_full
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TEXT: Final = re.compile(r"'(?:[^']|'')*'")
_COMPARES: Final = re.compile(r"[=<>]|\b(?:in|between)\b", re.IGNORECASE)
_NAME: Final = r"[`\"]?{}[`\"]?"
_TRIMMED: Final = re.compile(r"\brtrim\s*\([^()]*\)", re.IGNORECASE)


def check_constants(expression: str, sides: Mapping[str, pa.Schema]) -> None:
    """Raises `InvalidError` naming a column that the expression compares with a constant of another form.

    `expression`: of a clause, on columns of these sides. It is refused if it compares a column of `char(n)`
    with a text without its spaces, or looks for a column of floats in a list with a number that no float is.
    Also raises it if the expression has a column of `char(n)`, a constant text and a comparison, and more
    than is understood here.
    """
    fields = [field for schema in sides.values() for field in schema]
    if not any(limits_texts(field) or not _is_exact(field.type) for field in fields):
        return
    try:
        term = parse_condition(expression)
    except ConditionError:
        _check_text(expression, sides)
        return
    for operator, column, constant in _compared(term):
        field = _field_in(sides, column.path)
        length = None if field is None else _padded_length(field)
        if length is not None and isinstance(constant, str) and constant != in_full(constant, length.most):
            raise _unequal(expression, ".".join(column.path), length)
        if field is not None and operator == "in" and not isinstance(constant, str):
            _check_listed(expression, ".".join(column.path), field.type, constant)


def _is_exact(kind: pa.DataType) -> bool:
    """Returns whether no value of the type is a number with less than double precision."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return not (pa.types.is_float16(kind) or pa.types.is_float32(kind)) and all(map(_is_exact, inner))


def _check_listed(expression: str, column: str, kind: pa.DataType, constant: int | Decimal) -> None:
    number = float(constant)
    if not _is_exact(kind) and pa.scalar(number).cast(kind).cast(pa.float64()).as_py() != number:
        message = f"{expression!r} looks for {column}, a {kind}, in a list with {constant}, no {kind}"
        raise InvalidError(message, where=OptionName("clauses"), hint=f"write {column} = {constant} OR …")


def _compared(term: Term) -> Iterator[tuple[str, ColumnTerm, str | int | Decimal]]:
    """Yields the columns that are compared with texts or numbers, by which operator, and these constants."""
    match term:
        case OperatorTerm(name, parts) if name in COMPARISONS or name == "in":
            literals = [part for part in parts if isinstance(part, LiteralTerm) and part.kind in {"", DOUBLE}]
            values = [part.value for part in literals if not isinstance(part.value, bool)]
            constants = [value for value in values if isinstance(value, str | int | Decimal)]
            columns = [part for part in parts if isinstance(part, ColumnTerm)]
            yield from product((name,), columns, constants)
    if isinstance(term, CastTerm):
        yield from _compared(term.part)
    elif not isinstance(term, ColumnTerm | LiteralTerm):
        for part in term.parts:
            yield from _compared(part)


def _field_in(sides: Mapping[str, pa.Schema], path: Sequence[str]) -> pa.Field | None:
    """Returns a column, or a field inside of one. Names are compared in any case."""
    side, *names = path
    schema = sides.get(side.lower())
    fields, field = list(schema or ()), None
    for name in names:
        field = next((each for each in fields if each.name.lower() == name.lower()), None)
        if field is None:
            return None
        fields = list(field.type) if pa.types.is_struct(field.type) else []
    return field


def _padded_length(field: pa.Field) -> TextType | None:
    """Returns the type of a column if it is `char(n)`."""
    length = length_of(field)
    return length if length is not None and length.is_padded else None


def _check_text(expression: str, sides: Mapping[str, pa.Schema]) -> None:
    without = _TEXT.sub("", expression)
    if without == expression or not _COMPARES.search(without):
        return
    without = _TRIMMED.sub("", without)
    for side, schema in sides.items():
        for path, length in _chars(schema, (side,)):
            names = r"\s*\.\s*".join(_NAME.format(re.escape(name)) for name in path)
            if re.search(rf"(?<!\w){names}(?!\w)", without, re.IGNORECASE):
                raise _unequal(expression, ".".join(path), length)


def _chars(
    fields: pa.Schema | pa.StructType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TextType]]:
    for field in fields:
        length, inner = _padded_length(field), (*path, field.name)
        if length is not None:
            yield inner, length
        elif pa.types.is_struct(field.type):
            yield from _chars(field.type, inner)


def _unequal(expression: str, column: str, length: TextType) -> InvalidError:
    message = f"{expression!r} compares {column}, which is {length.name}, with a text without its spaces"
    hint = f"compare rtrim({column}) with the text without spaces at its end"
    return InvalidError(message, where=OptionName("clauses"), hint=hint)
