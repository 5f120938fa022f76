"""What numbers and texts of Debezium mean: dates, times, instants, decimals and bytes in Arrow's types.

Debezium and Kafka Connect send them as whole numbers (since 1970-01-01), as texts, or as the bytes of an
unscaled number. Which it is says the schema of a message, or the option `debeziumTypes`. A value is converted
before it is fitted to the table's column. A timestamp without a zone is one in UTC if the column has a zone.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.rows.row_faults import RowFaults, find_faults
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

WORD: Final = 16
"""The bytes of a decimal in Arrow, which has up to 38 digits."""
DIGITS: Final = 38
BYTES: Final = "Bytes"
"""The type of bytes, which JSON has as base64. In a schema it has no name."""
_NAME: Final = re.compile(r"\s*([\w.]+)\s*(?:\(\s*(\d+)\s*\))?\s*")
_ZEROS: Final = r"(\.[0-9]{6})0+"
_NANOSECONDS: Final = r"\.[0-9]{7}"
_DAY: Final = 86_400
_INSTANTS: Final = frozenset({"Timestamp", "MicroTimestamp", "NanoTimestamp"})


@dataclass(frozen=True, slots=True)
class DebeziumType:
    """The type of a column: the last part of its name in Debezium's schema, and the scale of a `Decimal`."""

    name: str
    scale: int = 0

    @property
    def json_type(self) -> pa.DataType:
        """The type in which JSON has its values."""
        return pa.string() if self.name in {"Decimal", "ZonedTimestamp", BYTES} else pa.int64()

    def __str__(self) -> str:
        return f"{self.name}({self.scale})" if self.name == "Decimal" else self.name


def named_types(given: Mapping[str, str] | None) -> dict[str, DebeziumType]:
    """Returns the types that a user has named by column, such as `Date` or `Decimal(2)`.

    Raises `InvalidError` naming one that is unknown.
    """
    result = {}
    for column, text in (given or {}).items():
        match = _NAME.fullmatch(text)
        kind = None if match is None else _known(match[1], match[2])
        if kind is None:
            hint = f"give one of {', '.join(_READ)}; a Decimal with its scale, as Decimal(2)"
            raise InvalidError(
                f"there is no type {text!r} (column {column})", where=OptionName("debezium_types"), hint=hint
            )
        result[column] = kind
    return result


def types_in_schema(schema: object) -> dict[str, DebeziumType]:
    """Returns the types of the columns of a row, or of the rows in an envelope, by a message's schema."""
    fields = _fields(schema)
    images = [each for each in fields if each.get("field") in {"before", "after"}]
    rows = [field for image in images for field in _fields(image)] if images else fields
    result = {}
    for field in rows:
        parameters = field.get("parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        kind = _known(str(field.get("name") or ""), scale)
        if kind is None and field.get("type") == "bytes":
            kind = DebeziumType(BYTES)
        if kind is not None:
            result[str(field.get("field"))] = kind
    return result


def _fields(schema: object) -> list[dict[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [field for field in fields or () if isinstance(field, dict)]


def _known(name: str, scale: object) -> DebeziumType | None:
    short = name.rpartition(".")[2]
    prefix = name.removesuffix(short)
    if short not in _READ or prefix not in {"", "io.debezium.time.", "org.apache.kafka.connect.data."}:
        return None
    if short != "Decimal":
        return DebeziumType(short)
    digits = str(scale)
    return DebeziumType(short, int(digits)) if digits.isdecimal() and int(digits) <= DIGITS else None


def converted(
    rows: pa.Table, kinds: Mapping[str, DebeziumType], table: pa.Schema | None, faults: RowFaults
) -> pa.Table:
    """Returns the rows with the columns of these types converted. Notes values that can't be in `faults`.

    `table` is the table's schema; None: it does not exist. Raises `InvalidError` naming a column of a type
    that such values never have.
    """
    columns, fields = rows.columns, list(rows.schema)
    wanted = {} if table is None else dict(zip(table.names, table.types, strict=True))
    for index, field in enumerate(fields):
        if field.name in kinds:
            column = columns[index].combine_chunks()
            columns[index] = _converted(column, kinds[field.name], wanted.get(field.name), field.name, faults)
            fields[index] = pa.field(field.name, columns[index].type)
    return pa.table(columns, schema=pa.schema(fields, rows.schema.metadata)) if fields else rows


def _converted(
    column: pa.Array, kind: DebeziumType, wanted: pa.DataType | None, name: str, faults: RowFaults
) -> pa.Array:
    keeps_text = kind.name == BYTES and wanted is not None and not _has_bytes(wanted)
    if types.is_null(column.type) or keeps_text:
        return column
    if not _is_raw(column.type, kind):
        if types.is_temporal(column.type) or types.is_decimal(column.type) or _has_bytes(column.type):
            # It was converted when the columns were made.
            return column
        message = f"it is {column.type}, which a {kind} of Debezium never is"
        raise InvalidError(
            message,
            where=name,
            hint=("name its type in ", OptionName("debezium_types"), ", or leave it out there"),
        )

    def read(part: pa.Array) -> pa.Array:
        values = _READ[kind.name](part, kind)
        if kind.name == "Decimal" and wanted is not None and types.is_decimal(wanted):
            return values.cast(wanted)
        has_zone = wanted is not None and types.is_timestamp(wanted) and wanted.tz is not None
        return pc.assume_timezone(values, "UTC") if kind.name in _INSTANTS and has_zone else values

    def fault(start: int, stop: int) -> str | None:
        try:
            read(column.slice(start, stop - start))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            return f"it is not a {kind} of Debezium: {error}"
        return None

    wrong = find_faults(len(column), fault)
    for index, reason in wrong:
        faults.add(np.array([index], np.int64), name, reason)
    if wrong:
        keep = np.ones(len(column), np.bool_)
        keep[[index for index, _ in wrong]] = False
        column = pc.if_else(pa.array(keep), column, pa.scalar(None, column.type))
    return read(column)


def _has_bytes(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _is_raw(have: pa.DataType, kind: DebeziumType) -> bool:
    if kind.name == "Decimal":
        return bool(types.is_string(have) or _has_bytes(have))
    if kind.name in {"ZonedTimestamp", BYTES}:
        return bool(types.is_string(have))
    return bool(types.is_integer(have))


def _as(number: pa.DataType, kind: pa.DataType) -> Callable[[pa.Array, DebeziumType], pa.Array]:
    return lambda column, _: column.cast(number).cast(kind)


def _times(kind: pa.DataType, second: int) -> Callable[[pa.Array, DebeziumType], pa.Array]:
    def read(column: pa.Array, _: DebeziumType) -> pa.Array:
        numbers = column.cast(pa.int64())
        outside = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, _DAY * second))
        if pc.any(outside).as_py():
            raise ValueError("a time is not within a day")
        return numbers.cast(pa.int32()).cast(kind) if types.is_time32(kind) else numbers.cast(kind)

    return read


def _zoned(column: pa.Array, _: DebeziumType) -> pa.Array:
    """Returns instants of texts, in nanoseconds if one has more than six digits of a second."""
    texts = pc.replace_substring_regex(column, _ZEROS, r"\1")
    is_fine = pc.any(pc.match_substring_regex(texts, _NANOSECONDS)).as_py()
    return texts.cast(pa.timestamp("ns" if is_fine else "us", "UTC"))


def _decimals(column: pa.Array, kind: DebeziumType) -> pa.Array:
    """Returns decimals of bytes, or of their base64: unscaled numbers, the highest byte first."""
    values = [None if value is None else _unscaled(value) for value in column.to_pylist()]
    words = b"".join((value or 0).to_bytes(WORD, "little", signed=True) for value in values)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        pa.decimal128(DIGITS, kind.scale), len(values), [valid.buffers()[1], pa.py_buffer(words)]
    )


def _bytes(column: pa.Array, _: DebeziumType) -> pa.Array:
    return pa.array([None if value is None else _decoded(value) for value in column.to_pylist()], pa.binary())


def _unscaled(value: str | bytes) -> int:
    number = int.from_bytes(_decoded(value), "big", signed=True)
    if abs(number) >= 10**DIGITS:
        raise ValueError(f"it has more than {DIGITS} digits")
    return number


def _decoded(value: str | bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error as error:
        raise ValueError(f"{value!r} is not base64 ({error})") from error


_READ: Final[dict[str, Callable[[pa.Array, DebeziumType], pa.Array]]] = {
    "Date": _as(pa.int32(), pa.date32()),
    "Time": _times(pa.time32("ms"), 1000),
    "MicroTime": _times(pa.time64("us"), 10**6),
    "NanoTime": _times(pa.time64("ns"), 10**9),
    "Timestamp": _as(pa.int64(), pa.timestamp("ms")),
    "MicroTimestamp": _as(pa.int64(), pa.timestamp("us")),
    "NanoTimestamp": _as(pa.int64(), pa.timestamp("ns")),
    "ZonedTimestamp": _zoned,
    "Decimal": _decimals,
    BYTES: _bytes,
}


def common_types(groups: Iterable[Mapping[str, DebeziumType]]) -> dict[str, DebeziumType]:
    """Returns the types of all columns. Raises `InvalidError` naming a column that has two."""
    result: dict[str, DebeziumType] = {}
    for group in groups:
        for name, kind in group.items():
            other = result.setdefault(name, kind)
            if other != kind:
                hint = "read fewer messages at a time, so that a batch ends where the source was changed"
                message = f"the messages of the batch have it as {other} and as {kind}"
                raise InvalidError(message, where=name, hint=hint)
    return result
