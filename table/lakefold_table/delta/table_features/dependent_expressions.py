"""Expressions of a table that depend on its columns: CHECK constraints, and those of generated columns.

If a column gets a wider type, the type of such an expression may change with it, and with the type what it
says of rows that are in the table already: an integer sum overflows where one of longs does not. So the type
of a column stays while an expression uses it (Delta fact 6.11).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.table_features.columns import all_columns
from lakefold_table.delta.table_features.metadata_rules import CONSTRAINTS, columns_of_both
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.delta.actions.table_actions import TableMetadata

GENERATED: Final = "delta.generationExpression"
"""The key in the metadata of a column that is generated."""
INVARIANT: Final = "delta.invariants"
"""The key in the metadata of a column whose values meet a condition."""
DROP_FIRST: Final = "leave the type as it is, or drop what uses the column, change the type, and add it again"
_NAME: Final = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*)"
_TOKEN: Final = re.compile(
    rf"""
        '(?:[^'\\]|\\.)*'
      | "(?:[^"\\]|\\.)*"
      | \d[\w.]*
      | \.\s*{_NAME}
      | (?P<names>{_NAME}(?:\s*\.\s*{_NAME})*)(?P<other>(?=\s*[('"]))?
    """,
    re.VERBOSE | re.DOTALL,
)
"""What is in an expression. `other`: the name is that of a function, or of the type of a constant."""


@value()
class DependentExpression:
    """An expression that uses columns. `name`: whose it is, for people. `text`: SQL."""

    name: str
    text: str

    def uses(self, path: tuple[str, ...]) -> bool:
        """Returns whether it may use a column, one that it is in, or a field in it. Case does not count."""
        folded = [part.lower() for part in path]
        return any(
            all(ours == theirs for ours, theirs in zip(names, folded, strict=False))
            for names in _names_in(self.text)
        )


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
    return bool(_checks(after) - _checks(before))


def _checks(metadata: TableMetadata) -> set[tuple[str, str]]:
    known = metadata.configuration.items()
    constraints = {(name, str(text)) for name, text in known if name.startswith(CONSTRAINTS)}
    columns = ((column.name, column.keys.get(INVARIANT)) for column in all_columns(metadata))
    return constraints | {(name, str(text)) for name, text in columns if text is not None}


def retyped_fault(before: TableMetadata, after: TableMetadata) -> tuple[str, str] | None:
    """Returns why a column can't get another type because an expression uses it, with what to do, or None.

    Expressions that the table gets at the same time are about the new types. Raises `DamagedError` if there
    is no schema.
    """
    pairs = [pair for pair in columns_of_both(before, after) if pair[0].kinds != pair[1].kinds]
    if not pairs:
        return None
    known = {each.name for each in expressions_of(before)}
    for each in expressions_of(after):
        for old, new in pairs:
            if each.name in known and each.uses(new.path):
                message = (
                    f"the column {new.name!r} can't get the type {new.kinds[0]} instead of {old.kinds[0]}: "
                    f"{each.name} uses it, which is {each.text!r}"
                )
                return message, DROP_FIRST
    return None


def _names_in(text: str) -> Iterator[list[str]]:
    """Yields the names that may be of columns, in lower case, each as its path."""
    for match in _TOKEN.finditer(text):
        names = match["names"]
        if names is not None and match["other"] is None:
            parts = re.findall(_NAME, names)
            yield [part.removeprefix("`").removesuffix("`").replace("``", "`").lower() for part in parts]
