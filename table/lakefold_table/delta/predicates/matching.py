"""Whether a file can have rows that match a predicate, by its partition values and its statistics.

Only a file of which no row can match is left out. A value whose type is not compared here, a column that the
schema lacks and statistics that are missing leave it open, and then the file may match. Floating-point
numbers are not compared: a constant may be rounded to them, and NaN may be missing in statistics.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import is_long, parse_object
from lakefold_table.delta.predicates.syntax import (
    Always,
    Both,
    Comparison,
    Either,
    NullCheck,
    Time,
    parse_predicate,
)
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
    from lakefold_table.delta.actions.table_actions import TableMetadata
    from lakefold_table.delta.predicates.syntax import Constant, Predicate

Value = Any
"""A value that can be compared with others of its column."""
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_TIMES: Final = ("date", "timestamp", "timestamp_ntz")
_NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_STATS_STEP: Final = dt.timedelta(milliseconds=1)
"""How much the largest time may be above the one in the statistics, which have milliseconds."""


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
        facts = _Facts(file, self._types, self._partitions)
        return any(_may_match(predicate, facts) for predicate in self._predicates)


def _may_match(predicate: Predicate, facts: _Facts) -> bool:
    match predicate:
        case Always():
            return predicate.met
        case Both():
            return all(_may_match(part, facts) for part in predicate.parts)
        case Either():
            return any(_may_match(part, facts) for part in predicate.parts)
        case NullCheck():
            return facts.may_be_null(predicate.column, is_null=predicate.is_null)
        case Comparison():
            return facts.may_compare(predicate)
        case _:
            return True


class _Facts:
    """What the log says of the values in one file."""

    def __init__(
        self, file: AddFile | RemoveFile, types: Mapping[str, str], partitions: frozenset[str]
    ) -> None:
        self._file = file
        self._types = types
        self._partitions = partitions
        self._parsed: dict[str, Any] | None = None

    def may_be_null(self, column: tuple[str, ...], *, is_null: bool) -> bool:
        name = self._known(column)
        if name is None:
            return True
        if name in self._partitions:
            known, text = self._partition(name)
            return not known or (text is None) is is_null
        nulls, rows = self._statistic("nullCount", name), self._stats().get("numRecords")
        if not is_long(nulls) or not is_long(rows):
            return True
        return nulls > 0 if is_null else nulls < rows

    def may_compare(self, comparison: Comparison) -> bool:
        name = self._known(comparison.column)
        if name is None:
            return True
        kind = self._types[name]
        constant = _constant(comparison.constant, kind)
        if constant is None:
            return True
        if name in self._partitions:
            known, text = self._partition(name)
            if not known:
                return True
            exact = None if text is None else _parsed(text, kind)
            if text is not None and exact is None:
                return True
            # A comparison with a null is never true.
            return exact is not None and _between(exact, exact, comparison.operator, constant)
        least, most = (_of_statistics(self._statistic(end, name), kind) for end in ("minValues", "maxValues"))
        if isinstance(most, dt.datetime):
            most += _STATS_STEP
        return _between(least, most, comparison.operator, constant)

    def _known(self, column: tuple[str, ...]) -> str | None:
        """Returns the name of a column of the table, None for nested and for unknown ones."""
        if len(column) != 1:
            return None
        if column[0] in self._types:
            return column[0]
        same_name = [name for name in self._types if name.lower() == column[0].lower()]
        return same_name[0] if len(same_name) == 1 else None

    def _partition(self, name: str) -> tuple[bool, str | None]:
        """Returns whether the value of a partition column is known, and the value as the log has it."""
        values = self._file.partition_values
        if values is None or name not in values:
            return False, None
        text = values[name]
        return True, None if text in ("", _NO_PARTITION) else text

    def _stats(self) -> dict[str, Any]:
        if self._parsed is None:
            try:
                self._parsed = parse_object((self._file.stats or "{}").encode(), self._file.path)
            except DamagedError:
                self._parsed = {}
        return self._parsed

    def _statistic(self, kind: str, name: str) -> Any:  # noqa: ANN401 - a JSON value
        values = self._stats().get(kind)
        return values.get(name) if isinstance(values, dict) else None


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


def _constant(constant: Constant, kind: str) -> Value:
    """Returns a constant of a predicate as values of a column are compared, None if that is not known."""
    if kind == "boolean":
        return constant if isinstance(constant, bool) else None
    if isinstance(constant, bool):
        return None
    if kind in _INTEGERS or kind.startswith("decimal"):
        # A text is converted by rules that differ between clients.
        return Decimal(constant) if isinstance(constant, int | Decimal) else None
    if isinstance(constant, Time):
        return _parsed(constant.text, kind) if kind in _TIMES else None
    return _parsed(constant, kind) if isinstance(constant, str) else None


def _parsed(text: str, kind: str) -> Value:
    """Returns a value of a type by its text, None if it has no such text or the type is not compared."""
    try:
        if kind in _INTEGERS or kind.startswith("decimal"):
            number = Decimal(text)
            return number if number.is_finite() else None
        if kind == "string":
            return text
        if kind == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        if kind == "date":
            return dt.date.fromisoformat(text)
        if kind in ("timestamp", "timestamp_ntz"):
            at = dt.datetime.fromisoformat(text)
            # Times without a zone are of the session that wrote them, which is not known.
            needs_zone = kind == "timestamp"
            return at if (at.tzinfo is not None) is needs_zone else None
    except (ValueError, InvalidOperation):
        return None
    return None


def _of_statistics(content: object, kind: str) -> Value:
    """Returns a bound in the statistics, None if there is none."""
    if isinstance(content, bool):
        return content if kind == "boolean" else None
    if isinstance(content, int) and kind in _INTEGERS:
        return Decimal(content)
    # Decimals are JSON numbers there, which may have been rounded.
    return _parsed(content, kind) if isinstance(content, str) and not kind.startswith("decimal") else None


def _column_types(metadata: TableMetadata) -> dict[str, str]:
    """Returns the types of the table's columns by name, without those that are not of a simple type."""
    try:
        fields = parse_object(metadata.schema_text.encode(), "schemaString").get("fields")
    except DamagedError:
        return {}
    named = [field for field in fields or [] if isinstance(field, dict)]
    return {str(field.get("name")): field["type"] for field in named if isinstance(field.get("type"), str)}
