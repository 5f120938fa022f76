"""Whether a file can have rows that match a predicate, by its partition values and its statistics.

Only a file of which no row can match is left out. If a column is not in the schema, or `file_values.py` does
not know its values, the file may match.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from lakefold_table.delta.json_text import parse_object
from lakefold_table.delta.predicates.file_values import INTEGERS, TIMES, FileValues, Value, parsed_value
from lakefold_table.delta.predicates.syntax import (
    Always,
    Both,
    Comparison,
    Either,
    NullCheck,
    Time,
    parse_predicate,
)
from lakefold_table.delta.table_features.text_types import above, char_kind, is_char, shortest
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
    from lakefold_table.delta.actions.table_actions import TableMetadata
    from lakefold_table.delta.predicates.syntax import Constant, Predicate


class FileFilter:
    """Says whether files can have rows that match any of some predicates."""

    def __init__(self, predicates: Iterable[str | Predicate], metadata: TableMetadata | None) -> None:
        """Takes predicates, also as text. Without metadata or with mapped names nothing is decided."""
        self._predicates = [
            parse_predicate(given) if isinstance(given, str) else given for given in predicates
        ]
        self._types = {} if metadata is None else _column_types(metadata)
        self._partitions = frozenset() if metadata is None else frozenset(metadata.partition_columns)
        self._decides = metadata is not None and not metadata.maps_columns

    def may_match(self, file: AddFile | RemoveFile) -> bool:
        """Returns whether rows of the file can match."""
        if not self._decides:
            return True
        values = FileValues(file, self._types, self._partitions)
        return any(self._matches(predicate, values) for predicate in self._predicates)

    def _matches(self, predicate: Predicate, values: FileValues) -> bool:
        match predicate:
            case Always():
                return predicate.met
            case Both():
                return all(self._matches(part, values) for part in predicate.parts)
            case Either():
                return any(self._matches(part, values) for part in predicate.parts)
            case NullCheck():
                name = self._known(predicate.column)
                return name is None or values.may_be_null(name, is_null=predicate.is_null)
            case Comparison(constant=None):
                return False
            case Comparison():
                return self._compares(predicate, values)
            case _:
                return True

    def _compares(self, comparison: Comparison, values: FileValues) -> bool:
        name = self._known(comparison.column)
        constant = None if name is None else _constant(comparison.constant, self._types[name])
        if name is None or constant is None:
            return True
        bounds = values.bounds(name)
        # A comparison with a null is never true.
        if bounds is None:
            return False
        if is_char(self._types[name]):
            return _between_padded(*bounds, comparison.operator, constant)
        return _between(*bounds, comparison.operator, constant)

    def _known(self, column: tuple[str, ...]) -> str | None:
        """Returns the name of a column of the table, None for nested and for unknown ones."""
        if len(column) != 1:
            return None
        if column[0] in self._types:
            return column[0]
        same_name = [name for name in self._types if name.lower() == column[0].lower()]
        return same_name[0] if len(same_name) == 1 else None


def _between(least: Value, most: Value, operator: str, constant: Value) -> bool:
    """Returns whether a value from `least` to `most` can compare so with a constant. None: no bound."""
    above = least is None or least <= constant
    below = most is None or most >= constant
    match operator:
        case "=":
            return above and below
        case "!=":
            return least is None or most is None or not least == most == constant
        case "<":
            return least is None or least < constant
        case "<=":
            return above
        case ">":
            return most is None or most > constant
        case _:
            return below


def _between_padded(least: Value, most: Value, operator: str, constant: Value) -> bool:
    """Returns the same for values and a constant that may have any spaces at their end."""
    low, high = shortest(constant), above(shortest(constant))
    match operator:
        case "=":
            return _between(least, most, "<=", high) and _between(least, most, ">=", low)
        case "!=":
            return True
        case "<" | "<=":
            return _between(least, most, operator, high)
        case _:
            return _between(least, most, operator, low)


def _constant(constant: Constant, kind: str) -> Value:
    """Returns a constant of a predicate as values of a column are compared, None if that is not known."""
    if kind == "boolean":
        return constant if isinstance(constant, bool) else None
    if isinstance(constant, bytes):
        return constant if kind == "binary" else None
    if isinstance(constant, bool):
        return None
    if kind in INTEGERS or kind.startswith("decimal"):
        # A text is converted by rules that differ between clients.
        return Decimal(constant) if isinstance(constant, int | Decimal) else None
    if isinstance(constant, Time):
        return parsed_value(constant.text, kind) if kind in TIMES else None
    return parsed_value(constant, kind) if isinstance(constant, str) else None


def _column_types(metadata: TableMetadata) -> dict[str, str]:
    """Returns the types of the table's columns by name, without those that are not of a simple type."""
    try:
        fields = parse_object(metadata.schema_text.encode(), "schemaString").get("fields")
    except DamagedError:
        return {}
    named = [field for field in fields or [] if isinstance(field, dict)]
    return {str(field.get("name")): char_kind(field) for field in named if isinstance(field.get("type"), str)}
