"""Whether the statistics of a file fit the types of a table's columns.

delta-rs reads the statistics of all files by a schema that it makes of these types, and does not open a table
with a file whose statistics don't fit (Delta fact 6.15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import is_long, to_json
from lakefold_table.delta.record_counts import BOUNDS, NULL_COUNT, statistics_members
from lakefold_table.delta.table_features.columns import stored_columns
from lakefold_table.delta.table_features.simple_types import decimal_digits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.actions.table_actions import TableMetadata

    Types = Mapping[str, Any]
    """The type of each column by its name in data files; of a struct the types of its fields."""

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TEXTS: Final = frozenset({"string", "binary", "date", "timestamp", "timestamp_ntz"})
_REALS: Final = frozenset({"float", "double"})
_STRUCT: Final = "struct"
_MOST_SHOWN: Final = 50
_HINT: Final = "write values of the types of the columns, or leave the statistics out"


def statistics_types(metadata: TableMetadata) -> Types:
    """Returns the types that the statistics of files have. Raises `DamagedError` if there is no schema."""
    types: dict[str, Any] = {}
    for path, column in stored_columns(metadata):
        within = types
        for name in path[:-1]:
            within = within[name]
        within[path[-1]] = {} if column.kinds == (_STRUCT,) else column.kinds[0]
    return types


def unfit_statistics(file: AddFile, types: Types) -> tuple[str, str] | None:
    """Returns which of a file's statistics don't fit these types, with what to do, or None."""
    members = statistics_members(file)
    for section in (NULL_COUNT, *BOUNDS):
        unfit = _unfit(members.get(section), types, section, is_count=section == NULL_COUNT)
        if unfit:
            return f"the statistics of {file.path!r} are malformed: {unfit}", _HINT
    return None


def _unfit(content: object, kind: object, name: str, *, is_count: bool) -> str:
    """Returns what does not fit, empty if all does. `kind`: a type, or those of the fields of a struct."""
    if content is None:
        return ""
    if isinstance(kind, dict):
        if not isinstance(content, dict):
            return f"{name} is {_shown(content)}, and not an object"
        for field, each in content.items():
            known = kind.get(field)
            if known is not None and (unfit := _unfit(each, known, f"{name}.{field}", is_count=is_count)):
                return unfit
        return ""
    if is_count:
        fits, needs = is_long(content) and content >= 0, "not a number of rows"
    else:
        fits, needs = _is_bound(content, str(kind)), f"the type of the column is {kind}"
    return "" if fits else f"{name} is {_shown(content)}, and {needs}"


def _is_bound(content: object, kind: str) -> bool:
    """Returns whether a value can be a bound of a column. Of arrays, maps and unknown types any value can."""
    if kind in _BITS:
        half = 2 ** (_BITS[kind] - 1)
        return isinstance(content, int | float) and not isinstance(content, bool) and -half <= content < half
    if kind in _REALS:
        return _is_real(content)
    if kind == "boolean":
        return isinstance(content, bool)
    if kind in _TEXTS or decimal_digits(kind) is not None:
        return isinstance(content, str | int | float) and not isinstance(content, bool)
    return True


def _is_real(content: object) -> bool:
    if isinstance(content, str):
        # JSON has no numbers for these values: Spark writes NaN and Infinity as texts.
        try:
            float(content)
        except ValueError:
            return False
        return True
    return isinstance(content, int | float) and not isinstance(content, bool)


def _shown(content: object) -> str:
    text = to_json(content)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
