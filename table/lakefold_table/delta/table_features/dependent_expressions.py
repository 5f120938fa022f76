"""Expressions of a table that depend on its columns: CHECK constraints, and those of generated columns.

If a column gets a wider type, the type of such an expression may change with it, and with the type what it
says of rows that are in the table already: an integer sum overflows where one of longs does not. So the type
of a column stays while an expression uses it (Delta fact 6.11).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.columns import all_columns
from lakefold_table.delta.table_features.malformed_sql import malformed_part
from lakefold_table.delta.table_features.metadata_rules import (
    CONSTRAINTS,
    GENERATED,
    INVARIANT,
    columns_of_both,
)
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakefold_table.delta.actions.table_actions import TableMetadata

DROP_FIRST: Final = "leave the column as it is, or drop what uses it, change the column, and add that again"
MOST_TEXT: Final = 8 << 10
"""The longest expression that is read."""
_NAME: Final = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*)"
_UNIT: Final = r"(?:year|quarter|month|week|day(?:ofyear)?|hour|minute|(?:milli|micro)?second)s?\b"
_SPAN: Final = rf"(?:\s+{_UNIT}(?:\s+to\s+{_UNIT})?)?"
"""What makes a number or a text an interval."""
_TOKEN: Final = re.compile(
    rf"""
        '(?:[^'\\]|\\.|\\\Z)*(?:'{_SPAN}|(?P<single>\Z))
      | "(?:[^"\\]|\\.|\\\Z)*(?:"{_SPAN}|(?P<double>\Z))
      | \d[\w.]*{_SPAN}
      | \.\s*{_NAME}
      | (?:as\s+|::\s*){_NAME}(?:\s*<(?:[\w\s,:<>`]|\(\s*\d[\d\s,]*\)){{0,200}}>)?
      | extract\s*\(\s*{_NAME}(?=\s+from\b)
      | timestamp(?:add|diff)\s*\(\s*{_UNIT}(?=\s*,)
      | date_?(?:add|diff)\s*\(\s*{_UNIT}(?=\s*,[^,()'"]*,)
      | (?P<names>{_NAME}(?:\s*\.\s*{_NAME})*)(?P<other>(?=\s*[('"]))?
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""What is in an expression, with types and units beside what makes them such: they are not columns.

`other`: the name is that of a function, or of the type of a constant. `single` and `double`: a text in quotes
has no end.
"""
_OPERATORS: Final = {
    "and",
    "or",
    "not",
    "in",
    "is",
    "between",
    "like",
    "ilike",
    "rlike",
    "regexp",
    "escape",
    "div",
}
_CONSTANTS: Final = {"null", "true", "false", "unknown", "user", "session_user", "localtimestamp"} | {
    f"current_{name}" for name in ("catalog", "database", "date", "schema", "time", "timestamp", "user")
}
_CLAUSES: Final = {"any", "some", "all", "case", "when", "then", "else", "end", "exists", "distinct"}
_UNITS: Final = {"year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second"}
_WORDS: Final = _OPERATORS | _CONSTANTS | _CLAUSES | _UNITS | {"millisecond", "microsecond"}
"""Words of SQL, which may be columns as well."""
_OTHER_NAMES: Final = re.compile(
    r"->|::|--|/\*|\b(?:as|interval|extract|from|over|collate|placing|using)\b", re.IGNORECASE
)
"""What is in expressions of which names may be those of types, parts of times or parameters."""


@value()
class DependentExpression:
    """An expression that uses columns. `name`: whose it is, for people. `text`: SQL."""

    name: str
    text: str

    def uses(self, path: tuple[str, ...]) -> bool:
        """Returns whether it may use a column, one that it is in, or a field in it. Case does not count."""
        folded, named = tuple(part.lower() for part in path), _paths_in(self.text)
        if named is None:
            return True
        parts = (folded[:length] for length in range(1, len(folded)))
        return folded in named.inside or any(part in named.paths for part in parts)

    def unknown(self, columns: Collection[str]) -> str:
        """Returns a name in it that is surely none of these columns at the top, empty if there is none.

        `columns`: their names in lower case.
        """
        named = _paths_in(self.text)
        if named is None or _OTHER_NAMES.search(self.text):
            return ""
        meant = {*columns, *_WORDS}
        return next((".".join(path) for path in named.paths if path[0] not in meant), "")


def expressions_of(metadata: TableMetadata) -> tuple[DependentExpression, ...]:
    """Returns the constraints of a table and the expressions of its generated columns.

    Raises `DamagedError` if there is no schema.
    """
    constraints = (
        DependentExpression(f"the constraint {name.removeprefix(CONSTRAINTS)}", text)
        for name, text in sorted(metadata.configuration.items())
        if name.startswith(CONSTRAINTS) and text is not None
    )
    generated = (
        DependentExpression(f"the generated column {column.name}", text)
        for column in all_columns(metadata)
        if isinstance(text := column.keys.get(GENERATED), str)
    )
    return (*constraints, *generated)


def adds_check(before: TableMetadata, after: TableMetadata) -> bool:
    """Returns whether a table gets a constraint or an invariant, which its rows must meet from then on.

    See Delta fact 6.13. Raises `DamagedError` if there is no schema.
    """
    constraints = {name: text for name, text in after.configuration.items() if name.startswith(CONSTRAINTS)}
    if any(text not in (None, before.configuration.get(name)) for name, text in constraints.items()):
        return True
    # A column that is renamed keeps its invariant.
    invariants = {now.path: old.keys.get(INVARIANT) for old, now in columns_of_both(before, after)}
    return any(
        column.keys.get(INVARIANT) not in (None, invariants.get(column.path)) for column in all_columns(after)
    )


def expression_faults(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    """Yields which expressions are surely no SQL, or name columns that the table lacks.

    Raises as `expressions_of`.
    """
    columns = {column.path[0].lower() for column in all_columns(metadata)}
    for each in expressions_of(metadata):
        malformed = malformed_part(each.text) if len(each.text) <= MOST_TEXT else ""
        if malformed:
            yield f"{each.name} is no expression of SQL, {malformed}", "write a condition that Spark can read"
        unknown = each.unknown(columns)
        if unknown:
            message = f"{each.name} names {unknown}, which is not a column: {each.text!r}"
            yield message, "name columns of the table, and text in quotes"


def dependent_fault(before: TableMetadata, after: TableMetadata) -> tuple[str, str] | None:
    """Returns why a column can't change or go because an expression uses it, with what to do, or None.

    Expressions that the table gets at the same time are about the new columns. Raises `DamagedError` if there
    is no schema.
    """
    names_before = {each.name for each in expressions_of(before)}
    kept = [each for each in expressions_of(after) if each.name in names_before]
    if not kept:
        return None
    now = {column.name.lower() for column in all_columns(after)}
    for each in kept:
        for old, new in columns_of_both(before, after):
            if old.kinds != new.kinds and each.uses(new.path):
                name, kind, before_kind = new.differing(old)
                message = (
                    f"the column {name!r} can't get the type {kind} instead of {before_kind}: "
                    f"{each.name} uses it, which is {each.text!r}"
                )
                return message, DROP_FIRST
        for old in all_columns(before):
            if old.name.lower() not in now and each.uses(old.path):
                message = f"the column {old.name!r} can't go or be renamed: {each.name} uses it"
                return f"{message}, which is {each.text!r}", DROP_FIRST
    return None


@value()
class NamedPaths:
    """The paths that an expression names, in order. `inside`: those with the columns that they are in."""

    paths: Mapping[tuple[str, ...], None]
    inside: frozenset[tuple[str, ...]]


@lru_cache(256)
def _paths_in(text: str) -> NamedPaths | None:
    """Returns what may be columns in an expression, in lower case. Returns None if it can't be read."""
    paths: dict[tuple[str, ...], None] = {}
    if len(text) > MOST_TEXT:
        return None
    for match in _TOKEN.finditer(text):
        if match["single"] is not None or match["double"] is not None:
            return None
        if match["names"] is not None and match["other"] is None:
            parts = re.findall(_NAME, match["names"])
            plain = (part.removeprefix("`").removesuffix("`").replace("``", "`") for part in parts)
            paths[tuple(part.lower() for part in plain)] = None
    inside = frozenset(path[:length] for path in paths for length in range(1, len(path) + 1))
    return NamedPaths(paths, inside)
