"""Predicates as text of Delta's SQL: comparisons of columns with constants, AND, OR and NOT.

What is not understood is a condition that any row may meet (`Anything`). So a predicate that has a function,
or that compares two columns, is not an error: less is decided by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from lakefold_table.columns.conditions import (
    TIMES,
    ColumnTerm,
    ConditionError,
    LiteralTerm,
    OperatorTerm,
    parse_condition,
)

if TYPE_CHECKING:
    from lakefold_table.columns.conditions import Term


@dataclass(frozen=True, slots=True)
class Time:
    """A constant that begins with the name of a type, as DATE '2026-11-23'."""

    text: str


Constant = str | bytes | int | Decimal | bool | Time | None
"""None: NULL. A comparison with it is never true, and neither is its opposite."""
MOST_TEXT: Final = 64 << 10
"""The longest predicate that is read. Any row may meet a longer one."""


@dataclass(frozen=True, slots=True)
class Anything:
    """A condition of which it is not known which rows meet it."""


@dataclass(frozen=True, slots=True)
class Always:
    """A condition that each row meets, or none."""

    met: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a constant. `operator`: `=`, `!=`, `<`, `<=`, `>` or `>=`."""

    column: tuple[str, ...]
    operator: str
    constant: Constant


@dataclass(frozen=True, slots=True)
class NullCheck:
    """Whether a column is null, or is not."""

    column: tuple[str, ...]
    is_null: bool


@dataclass(frozen=True, slots=True)
class Both:
    """A condition that holds if all of these conditions hold (AND)."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """A condition that holds if any of these conditions holds (OR)."""

    parts: tuple[Predicate, ...]


Predicate = Anything | Always | Comparison | NullCheck | Both | Either
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "<=>": "<=>"}


def parse_predicate(text: str) -> Predicate:
    """Returns the predicate that a text says, `Anything` if it is not understood."""
    # Spark reads a backslash in a text as the beginning of an escape.
    if len(text) > MOST_TEXT or "\\" in text:
        return Anything()
    try:
        return predicate_of(parse_condition(text))
    except ConditionError:
        return Anything()


def predicate_of(term: Term) -> Predicate:
    """Returns the predicate that a term says: it is true, false or null for the same rows, or `Anything`."""
    match term:
        case LiteralTerm(bool() as met):
            return Always(met)
        case OperatorTerm("and", parts):
            return Both(tuple(map(predicate_of, parts)))
        case OperatorTerm("or", parts):
            return Either(tuple(map(predicate_of, parts)))
        case OperatorTerm("not", (part,)):
            return opposite(predicate_of(part))
        case OperatorTerm("is null" | "is not null" as name, (ColumnTerm(path),)):
            return NullCheck(path, is_null=name == "is null")
        case OperatorTerm("in", (ColumnTerm() as column, *items)):
            return Either(tuple(_compared(column, "=", item) for item in items))
        case OperatorTerm(operator, (ColumnTerm() as column, other)):
            return _compared(column, operator, other)
        case OperatorTerm(operator, (other, ColumnTerm() as column)):
            return _compared(column, _TURNED.get(operator, ""), other)
    return Anything()


def _compared(column: ColumnTerm, operator: str, other: Term) -> Predicate:
    if operator == "<=>" and isinstance(other, LiteralTerm):
        if other == LiteralTerm(None):
            return NullCheck(column.path, is_null=True)
        return Both((_compared(column, "=", other), NullCheck(column.path, is_null=False)))
    if operator not in _OPPOSITE:
        return Anything()
    match other:
        case LiteralTerm(str() as text, kind) if kind in TIMES:
            return Comparison(column.path, operator, Time(text))
        case LiteralTerm(str() | bytes() | int() | Decimal() | None as constant, ""):
            return Comparison(column.path, operator, constant)
        case _:
            return Anything()


def opposite(predicate: Predicate) -> Predicate:
    """Returns the condition that is met by the rows for which NOT of this one is true."""
    match predicate:
        case Always():
            return Always(not predicate.met)
        case Comparison():
            return Comparison(predicate.column, _OPPOSITE[predicate.operator], predicate.constant)
        case NullCheck():
            return NullCheck(predicate.column, not predicate.is_null)
        case Both():
            return Either(tuple(map(opposite, predicate.parts)))
        case Either():
            return Both(tuple(map(opposite, predicate.parts)))
        case _:
            return predicate
