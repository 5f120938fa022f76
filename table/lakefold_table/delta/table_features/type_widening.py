"""Type widening: a column may get a wider type, and files of before keep theirs (Delta fact 6.10).

The schema lists the changes of a column in its metadata. A reader converts the values of older files, and
must know all changes that are listed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import parse_object, to_json
from lakefold_table.delta.table_features.columns import SchemaColumn, all_columns
from lakefold_table.delta.table_features.simple_types import decimal_digits
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.delta.actions.table_actions import TableMetadata

FEATURES: Final = ("typeWidening", "typeWidening-preview")
ENABLED: Final = "delta.enableTypeWidening"
CHANGES: Final = "delta.typeChanges"
"""The key in the metadata of a column that lists the changes of its type."""
_VERSION: Final = "tableVersion"
WHOLE: Final = ("byte", "short", "integer", "long")
"""Whole numbers, each wider than those before."""
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""The digits before the point of a decimal that a whole number may become, as delta-spark has it."""
_FEWEST_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""The digits before the point of a decimal that has all values of a whole number."""


@value()
class TypeChange:
    """A change of a type. `path`: that in an array or a map, as `value.element`; empty if it is in none."""

    before: str
    after: str
    path: str


def is_wider(before: str, after: str, digits: Mapping[str, int] = _DIGITS) -> bool:
    """Returns whether a type may become another one: all of its values are values of that one.

    `digits`: how many a decimal needs before the point.
    """
    if before in WHOLE and after in WHOLE:
        return WHOLE.index(before) < WHOLE.index(after)
    if after == "double":
        return before in ("byte", "short", "integer", "float")
    if after == "timestamp_ntz":
        return before == "date"
    wide = _digits(after)
    if wide is None:
        return False
    narrow = (digits[before], 0) if before in digits else _digits(before)
    return narrow is not None and narrow[0] <= wide[0] and narrow[1] <= wide[1] and before != after


def _digits(kind: str) -> tuple[int, int] | None:
    """Returns the digits before and after the point of a decimal."""
    digits = decimal_digits(kind)
    return None if digits is None else (digits[0] - digits[1], digits[1])


def changes_of(column: SchemaColumn) -> tuple[TypeChange, ...] | None:
    """Returns the changes that a column lists, None if they are malformed or one is not to a wider type.

    Other clients may have made a number a decimal of fewer digits than is proposed here.
    """
    listed: Any = column.keys.get(CHANGES, ())
    if not isinstance(listed, list | tuple):
        return None
    changes = []
    for each in listed:
        names = ("fromType", "toType", "fieldPath")
        before, after, path = (each.get(name) for name in names) if isinstance(each, dict) else (None,) * 3
        if not isinstance(before, str) or not isinstance(after, str) or not isinstance(path, str | None):
            return None
        if not is_wider(before, after, _FEWEST_DIGITS):
            return None
        changes.append(TypeChange(before, after, path or ""))
    return tuple(changes)


def unknown_change(metadata: TableMetadata) -> str:
    """Returns the name of a column whose type was changed in a way that readers don't know, empty if none."""
    return next((column.name for column in all_columns(metadata) if changes_of(column) is None), "")


def with_version(metadata: TableMetadata, before: int, after: int) -> TableMetadata:
    """Returns metadata whose changes of types say a version instead of the one before, if they say any.

    A proposal names the version after the one that it was built on. Raises `DamagedError` if there is no
    schema.
    """
    if before == after or f'"{_VERSION}"' not in metadata.schema_text:
        return metadata
    schema = parse_object(metadata.schema_text.encode(), "schemaString")
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict) and part.get(_VERSION) == before and "fromType" in part:
            part[_VERSION] = after
        elif isinstance(part, dict | list):
            left.extend(part.values() if isinstance(part, dict) else part)
    return replace(metadata, schema_text=to_json(schema))


def unrecorded(before: SchemaColumn, after: SchemaColumn, metadata: TableMetadata) -> str:
    """Returns why the types of a column can't change so, empty if they can.

    `metadata`: of the table with the new column. What was listed stays listed, as files may need it.
    """
    listed, now = changes_of(before), changes_of(after)
    if listed is not None and (now is None or now[: len(listed)] != listed):
        return f"the column {before.name!r} loses entries of {CHANGES}"
    if before.kinds == after.kinds:
        return ""
    name, old_kind, new_kind = before.differing(after)
    shown = f"the column {name!r} gets the type {new_kind} instead of {old_kind}"
    kinds = zip(after.parts, before.kinds, after.kinds, strict=False)
    widened = [each for each in kinds if each[1] != each[2]]
    if before.parts != after.parts or not all(is_wider(old, new) for _, old, new in widened):
        return shown
    if not metadata.is_on(ENABLED):
        return f"{shown}, and {ENABLED} is not true"
    added = () if now is None else now[len(listed or ()) :]
    if not all(_end(added, part, old) == new for part, old, new in widened):
        return f"{shown}, which {CHANGES} does not list"
    return ""


def _end(changes: Sequence[TypeChange], path: str, kind: str) -> str:
    """Returns the type to which the changes of a path lead from a type."""
    for each in changes:
        if each.path == path and each.before == kind:
            kind = each.after
    return kind
