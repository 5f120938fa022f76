"""The statistics of a data file: how many rows and nulls it has, and the least and greatest values.

They are wide enough rather than exact if JSON or the protocol can't hold a value: long texts are cut, and
the greatest one is rounded up; the greatest time is rounded up to a millisecond. A value that can't be
bounded, as NaN, leaves out the bounds.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_reader.delta.schema import is_numeric, schema_in
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.table_features.property_values import number_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_table.delta.actions.table_actions import TableMetadata

INDEXED: Final = "delta.dataSkippingNumIndexedCols"
NAMED: Final = "delta.dataSkippingStatsColumns"
MOST_COLUMNS: Final = 32
"""Of how many columns a file has statistics, if the table doesn't set another number. Nested ones count."""
PREFIX: Final = 32
"""How many characters of a text statistics have."""
_EXACT_DIGITS: Final = 15
"""The number of digits that every reader keeps of a number in JSON."""
_LAST: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)
_PART: Final = re.compile(r"`(?:[^`]|``)*`|[,.]|[^,.`]+|`")
Path = tuple[str, ...]


def indexed_columns(
    metadata: TableMetadata, stored: pa.Schema, clustering: Collection[Path] = ()
) -> tuple[Path, ...]:
    """Returns the columns of which files get statistics, by their paths in the files.

    They are those that the table names, in the names that people see, else as many as it says of the first
    ones at any depth, without partition columns. `stored`: what the files store, which may lack some.
    `clustering`: columns by which the table is clustered, which always get some, also if files lack them.
    """
    schema = schema_in(metadata)
    columns = [column for column in schema.columns if column.physical not in schema.partitions]
    leaves = [leaf for column in columns for leaf in _named_leaves(column, (), ())]
    named = metadata.configuration.get(NAMED)
    if named is not None:
        names = _names_in(named)
        chosen = {path for name, path in leaves if any(name[: at + 1] in names for at in range(len(name)))}
    else:
        number = number_of(metadata.configuration.get(INDEXED))
        most = MOST_COLUMNS if number is None else number
        chosen = {path for _, path in (leaves if most < 0 else leaves[:most])}
    held = list(_leaves(stored, ()))
    lacking = (path for path in clustering if path not in held)
    return (*(path for path in held if path in chosen or path in clustering), *lacking)


def _names_in(listed: str) -> set[Path]:
    """Returns the names in a list, each as its path, in lower case. They may be in backticks."""
    names: list[list[str]] = [[""]]
    for part in _PART.findall(listed.lower()):
        match part:
            case ",":
                names.append([""])
            case ".":
                names[-1].append("")
            case _:
                quoted = len(part) > 1 and part[0] == part[-1] == "`"
                names[-1][-1] += part[1:-1].replace("``", "`") if quoted else part.strip()
    return {tuple(name) for name in names}


def _named_leaves(column: DeltaColumn, name: Path, path: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the columns without fields in a column: the path of names in lower case, and that in files."""
    name, path = (*name, column.field.name.lower()), (*path, column.physical)
    if not types.is_struct(column.field.type):
        yield name, path
        return
    for child in column.children:
        yield from _named_leaves(child, name, path)


def _leaves(fields: Iterable[pa.Field], path: Path) -> Iterator[Path]:
    for field in fields:
        if types.is_struct(field.type):
            yield from _leaves(
                [field.type.field(at) for at in range(field.type.num_fields)], (*path, field.name)
            )
        else:
            yield (*path, field.name)


class FileStatistics:
    """The statistics of a file, while rows are added to it. `columns`: those of which it has them."""

    def __init__(self, columns: Iterable[Path]) -> None:
        self._columns = tuple(columns)
        self._rows = 0
        self._nulls = dict.fromkeys(self._columns, 0)
        self._bounds: dict[Path, tuple[Any, Any] | None] = {}

    def add(self, rows: pa.Table) -> None:
        """Adds rows of the file."""
        self._rows += rows.num_rows
        given = set(rows.column_names)
        for path in self._columns:
            if path[0] not in given:
                self._nulls[path] += rows.num_rows
                continue
            column = rows.column(path[0])
            for name in path[1:]:
                column = pc.struct_field(column, name)
            self._nulls[path] += column.null_count
            if self._bounds.get(path, ()) is not None:
                self._widen(path, column)

    def text(self) -> str:
        """Returns the statistics as JSON."""
        nulls: dict[str, Any] = {}
        least: dict[str, Any] = {}
        most: dict[str, Any] = {}
        for path in self._columns:
            _put(nulls, path, self._nulls[path])
            bounds = self._bounds.get(path)
            if bounds is not None:
                for into, bound in ((least, _least(bounds[0])), (most, _most(bounds[1]))):
                    if bound is not None:
                        _put(into, path, bound)
        return to_json({"numRecords": self._rows, "minValues": least, "maxValues": most, "nullCount": nulls})

    def _widen(self, path: Path, column: pa.ChunkedArray) -> None:
        """Widens the bounds of a column by its values. After a value without bounds the column has none."""
        kind = column.type
        if not _has_bounds(kind):
            self._bounds[path] = None
            return
        if column.null_count == len(column):
            return
        if types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
            self._bounds[path] = None
            return
        ends = pc.min_max(column)
        try:
            low, high = ends["min"].as_py(), ends["max"].as_py()
        except (OverflowError, ValueError):
            # Python has no dates after the year 9999.
            self._bounds[path] = None
            return
        known = self._bounds.get(path)
        self._bounds[path] = (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(is_numeric(kind) or types.is_date(kind) or types.is_timestamp(kind) or types.is_string(kind))


def _put(into: dict[str, Any], path: Path, content: object) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = content


def _least(bound: Any) -> Any:  # noqa: ANN401 - a value of a column
    return bound[:PREFIX] if isinstance(bound, str) else _plain(bound, up=False)


def _most(bound: Any) -> Any:  # noqa: ANN401 - a value of a column
    return rounded_up(bound) if isinstance(bound, str) else _plain(bound, up=True)


def rounded_up(text: str) -> str | None:
    """Returns a short text that is not below this one by its code points; None if there is none."""
    if len(text) <= PREFIX:
        return text
    prefix = text[:PREFIX]
    while prefix:
        following = ord(prefix[-1]) + 1
        if following == _SURROGATES[0]:
            following = _SURROGATES[1] + 1
        if following <= _LAST:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None


def _plain(bound: Any, *, up: bool) -> Any:  # noqa: ANN401 - a value of a column
    """Returns a bound as JSON has it, or None if JSON can't. `up`: the bound may only become greater."""
    match bound:
        case dt.datetime():
            return _time(bound, up=up)
        case dt.date():
            return bound.isoformat()
        case Decimal():
            return _number(bound)
        case 0.0 if isinstance(bound, float):
            # Clients that order floats by their bits, as DataFusion, have -0.0 below 0.0; rows may have both.
            return 0.0 if up else -0.0
        case float():
            return bound if math.isfinite(bound) else None
        case _:
            return bound


def _number(bound: Decimal) -> int | float | None:
    digits = len(bound.as_tuple().digits)
    if bound == bound.to_integral_value():
        return int(bound)
    return float(bound) if digits <= _EXACT_DIGITS else None


def _time(bound: dt.datetime, *, up: bool) -> str | None:
    """Returns a time with milliseconds."""
    rest = bound.microsecond % 1000
    if rest and up:
        try:
            bound += dt.timedelta(microseconds=1000 - rest)
        except OverflowError:
            return None
    text = bound.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if bound.tzinfo is None else f"{text}Z"
