"""The schema of a Delta table as Arrow's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefold_table.delta.json_text import parse_object
from lakefold_table.errors import DamagedError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")


@dataclass(frozen=True)
class DeltaSchema:
    """See `Schema`."""

    arrow: pa.Schema

    @property
    def names(self) -> list[str]:
        """See `Schema.names`."""
        return list(self.arrow.names)

    def chosen(self, names: Sequence[str] | None) -> DeltaSchema:
        """See `Schema.chosen`."""
        if names is None:
            return self
        unknown = [name for name in names if name not in self.arrow.names]
        if unknown:
            hint = f"the columns are {', '.join(self.arrow.names)}"
            raise InvalidError(f"there is no column {unknown[0]!r}", where="columns", hint=hint)
        return DeltaSchema(pa.schema([self.arrow.field(name) for name in names]))

    def forms(self) -> Mapping[str, object]:
        """See `Schema.forms`."""
        return {field.name: field.type for field in self.arrow}


def schema_of(text: str, where: str = "") -> DeltaSchema:
    """Returns the schema in the text of a metaData action.

    Raises `DamagedError` if it is malformed, `InvalidError` for a type that this release does not know.
    """
    kind = _type(parse_object(text.encode(), where), where)
    if not pa.types.is_struct(kind):
        raise DamagedError("the schema is no struct", where=where)
    return DeltaSchema(pa.schema(list(kind)))


def _type(given: Any, where: str) -> pa.DataType:  # noqa: ANN401 - a JSON value
    match given:
        case str() if given in _TYPES:
            return _TYPES[given]
        case str() if decimal := _DECIMAL.fullmatch(given.replace(" ", "")):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        case {"type": "struct", "fields": [*fields]}:
            return pa.struct([_field(field, where) for field in fields])
        case {"type": "array", "elementType": element, **more}:
            nullable = more.get("containsNull") is not False
            return pa.list_(pa.field("element", _type(element, where), nullable=nullable))
        case {"type": "map", "keyType": key, "valueType": value, **more}:
            nullable = more.get("valueContainsNull") is not False
            return pa.map_(_type(key, where), pa.field("value", _type(value, where), nullable=nullable))
        case _:
            hint = "read the table by another client"
            raise InvalidError(f"the column type {given!r} is not known", where=where, hint=hint)


def _field(given: Any, where: str) -> pa.Field:  # noqa: ANN401 - a JSON value
    match given:
        case {"name": str(name), "type": kind, **more}:
            return pa.field(name, _type(kind, where), nullable=more.get("nullable") is not False)
        case _:
            raise DamagedError("a column of the schema is malformed", where=where)
