"""Statistics and partition values of files as columns of a checkpoint, in the types of the table.

A table says by two properties whether its checkpoints have statistics as JSON, as columns, or as both (Delta
fact 4.2). A value that is not of its column's type is left out: nothing may be skipped by it.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import is_long, parse_object
from lakefold_table.delta.record_counts import statistics_members
from lakefold_table.delta.table_features.columns import PHYSICAL_NAME, all_columns
from lakefold_table.delta.table_features.partition_values import BITS, is_null, value_of
from lakefold_table.delta.table_features.simple_types import arrow_type, decimal_digits
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.actions.table_actions import TableMetadata

AS_JSON: Final = "delta.checkpoint.writeStatsAsJson"
AS_COLUMNS: Final = "delta.checkpoint.writeStatsAsStruct"
PARSED: Final = "stats_parsed"
PARSED_VALUES: Final = "partitionValues_parsed"
_STRUCT: Final = "struct"
_EXACT_DIGITS: Final = 15
"""How many digits of a number with a point survive in JSON."""
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_NONE: Final = frozenset[type[Any]]()
_PLAIN: Final = {
    **dict.fromkeys(BITS, frozenset[type[Any]]({int})),
    **dict.fromkeys(("float", "double"), frozenset[type[Any]]({int, float})),
    "string": frozenset[type[Any]]({str}),
    "boolean": frozenset[type[Any]]({bool}),
}
"""The types of JSON that Arrow takes for values of these types."""
_BOUNDED: Final = frozenset({*BITS, "float", "double", "string", *_TIMES})
_LARGEST: Final = {"float": (2 - 2**-23) * 2.0**127, "double": (2 - 2**-52) * 2.0**1023}
_NO_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@value()
class TypedColumn:
    """A column, or a field of a struct, by its name in data files. `fields`: of a struct, none otherwise."""

    name: str
    kind: str
    fields: tuple[TypedColumn, ...] = ()


@value()
class StatisticsForm:
    """How the checkpoints of a table have the statistics of files.

    `as_json`: as JSON. `columns`: those that the files get in addition, each of them a struct.
    """

    as_json: bool = True
    columns: tuple[TypedColumn, ...] = ()

    @classmethod
    def of(cls, metadata: TableMetadata) -> StatisticsForm:
        """Returns what the table's properties say. Raises `DamagedError` if the schema is malformed."""
        as_json = (metadata.configuration.get(AS_JSON) or "").lower() != "false"
        if not metadata.is_on(AS_COLUMNS):
            return cls(as_json)
        all_columns(metadata)  # Raises if the schema is malformed.
        fields = parse_object(metadata.schema_text.encode(), "schemaString")["fields"]
        by_name = {each["name"]: _column(each, maps=metadata.maps_columns) for each in fields}
        partitions = [by_name.pop(name) for name in metadata.partition_columns if name in by_name]
        counts = _struct("nullCount", map(_count, by_name.values()))
        bounds = [_bounds(each) for each in by_name.values()]
        kept = [each for each in bounds if each is not None]
        parts = [_struct("minValues", kept), _struct("maxValues", kept), counts]
        statistics = _struct(
            PARSED,
            [
                TypedColumn("numRecords", "long"),
                *(part for part in parts if part.fields),
                TypedColumn("tightBounds", "boolean"),
            ],
        )
        values = _struct(PARSED_VALUES, partitions)
        return cls(as_json, (statistics, values) if partitions else (statistics,))


JSON_ALONE: Final = StatisticsForm()


def column_type(column: TypedColumn) -> Any:  # noqa: ANN401 - an Arrow type
    """Returns the type of a column; that of texts if the column's own has none in Arrow."""
    import pyarrow as pa

    if column.fields:
        return pa.struct([(each.name, column_type(each)) for each in column.fields])
    kind = arrow_type(column.kind)
    return pa.string() if kind is None or pa.types.is_null(kind) else kind


def arrow_column(column: TypedColumn, files: Sequence[AddFile]) -> Any:  # noqa: ANN401 - an Arrow array
    """Returns a column of the form for some files."""
    if column.name == PARSED:
        statistics = (None if file.stats is None else statistics_members(file, exact=True) for file in files)
        return _array(column, list(statistics))
    kinds = {each.name: each.kind for each in column.fields}
    return _array(
        column,
        [
            {name: _partition(file.partition_values.get(name), kind) for name, kind in kinds.items()}
            for file in files
        ],
    )


def _partition(text: str | None, kind: str) -> Any | None:  # noqa: ANN401 - a value as `_value` takes it
    """Returns a partition's value, which is text in the log."""
    return None if text is None or is_null(text, kind) else value_of(text, kind)


def _column(field: Mapping[str, Any], *, maps: bool) -> TypedColumn:
    kind, name = field.get("type"), field["name"]
    if maps:
        name = field.get("metadata", {}).get(PHYSICAL_NAME, name)
    if not isinstance(kind, dict):
        return TypedColumn(name, str(kind))
    fields = kind.get("fields", ()) if kind.get("type") == _STRUCT else ()
    return TypedColumn(name, str(kind.get("type")), tuple(_column(each, maps=maps) for each in fields))


def _struct(name: str, fields: Iterable[TypedColumn]) -> TypedColumn:
    return TypedColumn(name, _STRUCT, tuple(fields))


def _count(column: TypedColumn) -> TypedColumn:
    fields = tuple(map(_count, column.fields))
    return TypedColumn(column.name, _STRUCT if fields else "long", fields)


def _bounds(column: TypedColumn) -> TypedColumn | None:
    """Returns a column as it has bounds, None if it has none."""
    if column.fields:
        inner = tuple(each for each in map(_bounds, column.fields) if each is not None)
        return TypedColumn(column.name, _STRUCT, inner) if inner else None
    return column if column.kind in _BOUNDED or decimal_digits(column.kind) is not None else None


def _array(column: TypedColumn, contents: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON and an Arrow array
    import pyarrow as pa

    if not column.fields:
        type_, types = column_type(column), set(map(type, contents)) - {type(None)}
        try:
            # Most columns have nothing but values of their type, which takes a tenth of the time.
            if types <= _PLAIN.get(column.kind, _NONE):
                return pa.array(contents, type_)
            if types == {str} and column.kind in _TIMES:
                return pa.array(contents).cast(type_)
        except (pa.ArrowException, OverflowError):
            pass
        return pa.array([_value(each, column.kind) for each in contents], type_)
    rows = [each if isinstance(each, dict) else None for each in contents]
    arrays = [
        _array(field, [None if row is None else row.get(field.name) for row in rows])
        for field in column.fields
    ]
    mask = pa.array([row is None for row in rows])
    return pa.StructArray.from_arrays(arrays, fields=list(column_type(column)), mask=mask)


def _value(content: Any, kind: str) -> Any:  # noqa: ANN401 - a value of JSON, and of Arrow
    """Returns a value in the type of its column, None if it has another one."""
    match content:
        case bool():
            return content if kind == "boolean" else None
        case int() | float() if kind in BITS:
            bound = 1 << (BITS[kind] - 1)
            return content if is_long(content) and -bound <= content < bound else None
        case int() | float() | Decimal() if kind in _LARGEST:
            return float(content) if -_LARGEST[kind] <= content <= _LARGEST[kind] else None
        case int() | float() | Decimal():
            number = Decimal(repr(content)) if isinstance(content, float) else Decimal(content)
            exact = not isinstance(content, float) or len(number.as_tuple().digits) <= _EXACT_DIGITS
            return value_of(str(number), kind) if exact and decimal_digits(kind) is not None else None
        case str() if kind == "string":
            return content
        case str() if kind in _LARGEST:
            return _NO_NUMBERS.get(content)
        case str() if kind in _TIMES:
            return _time(content, kind)
        case bytes() | dt.date():
            return content
        case _:
            return None


def _time(text: str, kind: str) -> dt.date | dt.datetime | None:
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if kind == "date":
        return at.date()
    if kind == "timestamp_ntz":
        return at.replace(tzinfo=None)
    try:
        return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
    except OverflowError:
        # In UTC it is before the year 1 or after 9999.
        return None
