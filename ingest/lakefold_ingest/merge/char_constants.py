"""Which conditions of clauses would compare a value of `char(n)` with a constant that lacks its spaces.

Clauses are evaluated by pylance, which compares texts as they are. The values have their spaces, so such a
condition would never hold, or always.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_ingest.rows.text_lengths import length_of, limits_texts
from lakefold_table.delta.predicates.conditions import (
    COMPARISONS,
    CastTerm,
    ColumnTerm,
    ConditionError,
    LiteralTerm,
    OperatorTerm,
    Term,
    parse_condition,
)
from lakefold_table.delta.table_features.text_types import TextType, in_full
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TEXT: Final = re.compile(r"'(?:[^']|'')*'")
_COMPARES: Final = re.compile(r"[=<>]|\b(?:in|between)\b", re.IGNORECASE)
_NAME: Final = r"[`\"]?{}[`\"]?"
_TRIMMED: Final = re.compile(r"\brtrim\s*\([^()]*\)", re.IGNORECASE)


def check_char_constants(expression: str, sides: Mapping[str, pa.Schema]) -> None:
    """Raises `InvalidError` naming a column of `char(n)` that is compared with a constant without its spaces.

    `expression`: of a clause, on columns of these sides. Also raises it if the expression has such a column,
    a constant text and a comparison, and more than is understood here.
    """
    if not any(limits_texts(field) for schema in sides.values() for field in schema):
        return
    try:
        term = parse_condition(expression)
    except ConditionError:
        _check_text(expression, sides)
        return
    for column, constant in _compared(term):
        length = _length_in(sides, column.path)
        if length is not None and constant != in_full(constant, length.most):
            raise _unequal(expression, ".".join(column.path), length)


def _compared(term: Term) -> Iterator[tuple[ColumnTerm, str]]:
    """Yields the columns that are compared with constant texts, and these."""
    match term:
        case OperatorTerm(name, parts) if name in COMPARISONS or name == "in":
            constants = [part for part in parts if isinstance(part, LiteralTerm) and not part.kind]
            texts = [part.value for part in constants if isinstance(part.value, str)]
            columns = [part for part in parts if isinstance(part, ColumnTerm)]
            yield from product(columns, texts)
    if isinstance(term, CastTerm):
        yield from _compared(term.part)
    elif not isinstance(term, ColumnTerm | LiteralTerm):
        for part in term.parts:
            yield from _compared(part)


def _length_in(sides: Mapping[str, pa.Schema], path: Sequence[str]) -> TextType | None:
    """Returns the type of a column if it is `char(n)`. Names are compared in any case."""
    side, *names = path
    schema = sides.get(side.lower())
    fields, field = list(schema or ()), None
    for name in names:
        field = next((each for each in fields if each.name.lower() == name.lower()), None)
        if field is None:
            return None
        fields = list(field.type) if pa.types.is_struct(field.type) else []
    length = None if field is None else length_of(field)
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
        length, inner = length_of(field), (*path, field.name)
        if length is not None and length.is_padded:
            yield inner, length
        elif pa.types.is_struct(field.type):
            yield from _chars(field.type, inner)


def _unequal(expression: str, column: str, length: TextType) -> InvalidError:
    message = f"{expression!r} compares {column}, which is {length.name}, with a text without its spaces"
    hint = f"compare rtrim({column}) with the text without spaces at its end"
    return InvalidError(message, where=OptionName("clauses"), hint=hint)
